"""The parameters of the endpoints for scripts: their types, their descriptions, and how they are read.

A script may send a single value instead of a list, and an object instead of JSON text. Invalid values are refused with
this project's own sentence. This file knows no model and no endpoint.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.components.api_component import Api
from gradio.data_classes import FileData
from gradio_client.utils import is_file_obj_with_meta  # type: ignore[import-untyped]

from panels.running.error_boundary import with_error_boundary
from panels.running.root import Page
from workbench.core.errors import BadInput

TEXT_SCHEMA: dict[str, Any] = {"type": "string"}
OBJECT_SCHEMA: dict[str, Any] = {"type": "object", "additionalProperties": {}}
UPLOAD = "with gradio_client as handle_file(PATH), else with a POST to /gradio_api/upload"


@dataclass(frozen=True)
class Kind:
    """A type of parameter: its JSON schema and its reader; `read` raises `BadInput` that names the parameter."""

    schema: Mapping[str, Any]
    read: Callable[[Any, str], Any]


@dataclass(frozen=True)
class Parameter:
    """One parameter of an endpoint. A parameter without a default is required."""

    label: str
    about: str  # a sentence or two: its effect and its format
    kind: Kind
    default: Any = None


def read_text(value: Any, name: str) -> str:
    """Reads a text; None becomes an empty text."""
    if value is not None and not isinstance(value, str):
        raise BadInput(f"{name} is {_kind_of(value)}; expected a text")
    return value or ""


def read_texts(value: Any, name: str) -> list[str]:
    """Reads one text, or a list of them, as a list."""
    listed = [value] if isinstance(value, str) else value or []
    if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
        raise BadInput(f"{name} is {_kind_of(value)}; expected a text or a list of texts")
    return [each for each in listed if each]


def read_object(value: Any, name: str) -> dict[str, Any]:
    """Reads an object, or JSON text of one."""
    found = value or {}
    if isinstance(value, str) and value.strip():
        try:
            found = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise BadInput(f"{name} is not JSON ({error!s:.100}); expected an object, or JSON text of one") from error
    if not isinstance(found, dict):
        raise BadInput(f"{name} is {_kind_of(value)}; expected a JSON object")
    return found


def read_messages(value: Any, name: str) -> str | list[Any]:
    """Reads a text, or a list of messages, which may also be JSON text."""
    if isinstance(value, str) and value.lstrip().startswith("[{"):
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(value)
    if not value or not isinstance(value, (str, list)):
        raise BadInput(f"{name} is {_kind_of(value)}; expected a text or a list of messages")
    return value


def read_switch(value: Any, name: str) -> bool:
    """Reads true or false; None becomes false."""
    if value is not None and not isinstance(value, bool):
        raise BadInput(f"{name} is {_kind_of(value)}; expected true or false")
    return bool(value)


def read_files(value: Any, name: str) -> list[str]:
    """Returns the paths of one uploaded file, or of a list of them."""
    listed = value if isinstance(value, list) else [value] if value is not None else []
    for each in listed:
        # For such objects, Gradio has checked that the file was uploaded to this page.
        if not is_file_obj_with_meta(each):
            raise BadInput(f"{name} is {_kind_of(each)}; expected an uploaded file, {UPLOAD}")
    return [str(each["path"]) for each in listed]


def read_file(value: Any, name: str) -> str | None:
    """Returns the path of an uploaded file, or None."""
    paths = read_files(value, name)
    if len(paths) > 1:
        raise BadInput(f"{name} is a list of {len(paths)} files; expected one file")
    return paths[0] if paths else None


def _kind_of(value: Any) -> str:
    return f"{json.dumps(value, ensure_ascii=False, default=str):.60}"


def _file_schema(several: bool) -> dict[str, Any]:
    schema = FileData.model_json_schema()
    definitions = schema.pop("$defs")
    schema.pop("description", None)  # the text of Gradio's class, which does not help a user
    single = {"$ref": "#/$defs/FileData"}
    lists = [{"type": "array", "items": single}] if several else []
    return {"$defs": {**definitions, "FileData": schema}, "anyOf": [single, *lists]}


TEXT = Kind(TEXT_SCHEMA, read_text)
TEXTS = Kind({"anyOf": [{"type": "array", "items": TEXT_SCHEMA}, TEXT_SCHEMA]}, read_texts)
MESSAGES = Kind({"anyOf": [{"type": "array", "items": OBJECT_SCHEMA}, TEXT_SCHEMA]}, read_messages)
OBJECT = Kind({"anyOf": [OBJECT_SCHEMA, TEXT_SCHEMA]}, read_object)
SWITCH = Kind({"type": "boolean"}, read_switch)
FILE_SCHEMA = _file_schema(several=False)
FILE = Kind(FILE_SCHEMA, read_file)
FILES = Kind(_file_schema(several=True), read_files)

OBJECTS_SCHEMA: dict[str, Any] = {"type": "array", "items": OBJECT_SCHEMA}  # schema of an answer


def endpoint(
    page: Page,
    function: Callable[..., Any],
    parameters: Mapping[str, Parameter],
    answer: str,
    schema: Mapping[str, Any],
    name: str,
    about: str,
    example: Mapping[str, Any],
    further_results: Sequence[tuple[str, Mapping[str, Any]]] = (),
    **settings: Any,
) -> None:
    """Adds an endpoint of that name to the page, in the current context.

    Args:
        function: takes a value for each of `parameters` by name, and returns JSON; a tuple with `further_results`.
        parameters: by name, in the order of a script's positional arguments.
        answer: the result's name.
        schema: the JSON schema of the result.
        about: a sentence on what the endpoint does.
        example: the values of a call, by parameter, for the programs on the page.
        further_results: name and JSON schema of each further result.
        settings: more settings of Gradio's event.
    """

    @functools.wraps(function)
    def call(*values: Any) -> Any:
        read = {name: each.kind.read(value, name) for (name, each), value in zip(parameters.items(), values)}
        return function(**read)

    inputs: Sequence[Api] = [
        Api(each.default, {**each.kind.schema, "additional_description": each.about}, each.label)
        for each in parameters.values()
    ]
    outputs = [Api(None, dict(each), name) for name, each in ((answer, schema), *further_results)]
    page.examples[name] = example
    gr.Button().click(with_error_boundary(call), inputs, outputs, api_name=name, api_description=about, **settings)
