"""Programs that call an endpoint and run without changes: in Python, in JavaScript, in a shell.

Gradio's own programs download a PDF from another machine, declare a constant twice, and lose the event's id in bash.
`routes` replaces them, and serves the sample recordings that they use.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gradio.route_utils import get_root_url
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from panels.running.root import Page
from workbench.registry.sources import assets

INFO = "/gradio_api/info"
SAMPLES = "/samples"


@dataclass(frozen=True)
class File:
    """A file in a call, by its name: a sample that the page serves, or one of the user's."""

    name: str
    served: bool = True


def routes() -> list[BaseRoute]:
    """Returns the routes that the server answers itself, before Gradio."""
    samples = assets() / "samples"
    served = [Mount(SAMPLES, StaticFiles(directory=samples))] if samples.is_dir() else []
    return [Route(INFO, describe), Route(f"{INFO}/", describe), *served]


def describe(request: Request) -> JSONResponse:
    """Returns the endpoints with their parameters as Gradio describes them, with this project's programs."""
    page: Page = request.app.get_blocks()
    everything = bool(request.query_params.get("all_endpoints"))
    api_info: dict[str, Any] = copy.deepcopy(dict(page.get_api_info(all_endpoints=everything)))
    root = get_root_url(request, INFO, request.app.root_path)
    for name, endpoint in api_info["named_endpoints"].items():
        endpoint["code_snippets"] = snippets(root, name, page.examples.get(name.removeprefix("/"), {}))
    return JSONResponse(api_info)


def snippets(root: str, endpoint: str, call: Mapping[str, Any]) -> dict[str, str]:
    """Returns programs by language, for the page.

    Args:
        root: the address of the page.
        endpoint: its name, with a slash.
        call: values by parameter; a `File` represents an uploaded file.
    """
    return {
        "python": _python(root, endpoint, call),
        "javascript": _javascript(root, endpoint, call),
        "bash": _bash(root, endpoint, call),
        "cli": _cli(root, endpoint, call),
    }


def _files(call: Mapping[str, Any]) -> list[File]:
    return [value for value in call.values() if isinstance(value, File)]


def _python(root: str, endpoint: str, call: Mapping[str, Any]) -> str:
    files = _files(call)
    lines = ["from gradio_client import Client" + (", handle_file" if files else ""), ""]
    if any(file.served for file in files):
        lines = ["from urllib.request import urlretrieve", "", *lines]
    for file in files:
        if file.served:
            lines.append(f'urlretrieve("{root}{SAMPLES}/{file.name}", "{file.name}")  # or take a file of your own')
    lines += [f'client = Client("{root}")', "result = client.predict("]
    for name, value in call.items():
        literal = f'handle_file("{value.name}")' if isinstance(value, File) else _literal(value)
        lines.append(f"    {name}={literal},")
    return "\n".join([*lines, f'    api_name="{endpoint}",', ")", "print(result)"])


def _literal(value: Any) -> str:
    return repr(value) if isinstance(value, bool) else json.dumps(value, ensure_ascii=False)


def _javascript(root: str, endpoint: str, call: Mapping[str, Any]) -> str:
    files = _files(call)
    lines = [f'import {{ Client{", handle_file" if files else ""} }} from "@gradio/client";']
    if any(not file.served for file in files):
        lines.append('import { readFile } from "node:fs/promises";')
    lines.append("")
    places = {file: f"file{number}" for number, file in enumerate(dict.fromkeys(files), 1)}
    for file, place in places.items():
        content = (
            f'await (await fetch("{root}{SAMPLES}/{file.name}")).blob()'
            if file.served
            else f'await readFile("{file.name}")'
        )
        lines.append(f'const {place} = new File([{content}], "{file.name}");')
    lines += [
        f'const client = await Client.connect("{root}");',
        f'const result = await client.predict("{endpoint}", {{',
    ]
    for name, value in call.items():
        literal = f"handle_file({places[value]})" if isinstance(value, File) else json.dumps(value, ensure_ascii=False)
        lines.append(f"  {name}: {literal},")
    return "\n".join([*lines, "});", "console.log(result.data);"])


def _bash(root: str, endpoint: str, call: Mapping[str, Any]) -> str:
    lines, values = [], {}
    for number, (name, value) in enumerate(call.items(), 1):
        if isinstance(value, File):
            lines += [f"curl -s -O {root}{SAMPLES}/{value.name}"] if value.served else []
            lines.append(f"FILE{number}=$(curl -s -F 'files=@{value.name}' {root}/gradio_api/upload | tr -d '[]\"')")
            values[name] = f'{{"path": "\'"$FILE{number}"\'", "meta": {{"_type": "gradio.FileData"}}}}'
        else:
            values[name] = json.dumps(value, ensure_ascii=False).replace("'", "'\\''")
    body = ", ".join(f'"{name}": {literal}' for name, literal in values.items())
    return "\n".join(
        [
            *lines,
            f"EVENT=$(curl -s {root}/gradio_api/call/v2{endpoint} -H 'Content-Type: application/json' \\",
            f"  -d '{{{body}}}' | cut -d '\"' -f 4)",
            f"curl -s -N {root}/gradio_api/call{endpoint}/$EVENT",
        ]
    )


def _cli(root: str, endpoint: str, call: Mapping[str, Any]) -> str:
    """Returns the arguments for Gradio's own command; the page replaces `{command}` by its name."""
    values = {
        name: {"path": value.name, "meta": {"_type": "gradio.FileData"}} if isinstance(value, File) else value
        for name, value in call.items()
    }
    fetched = [f"curl -s -O {root}{SAMPLES}/{file.name}" for file in _files(call) if file.served]
    body = json.dumps(values, ensure_ascii=False).replace("'", "'\\''")
    return "\n".join([*fetched, f"{{command}} predict {root} {endpoint} '{body}'"])
