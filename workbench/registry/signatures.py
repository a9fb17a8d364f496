"""Shows the options of an open session's calls in signatures and in `help()`.

A family's options are declared once as a dataclass (`workbench.core.options`). Here they become keyword parameters with
types and defaults, each with a line in the docstring. This file calls nothing and checks no value.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_type_hints

from workbench.core.options import OptionSpec, option_specs
from workbench.core.runtimes import RUNTIMES
from workbench.families import FAMILIES
from workbench.families.family import CONVERSE
from workbench.session.protocols import Capabilities
from workbench.session.values import CONVERSATION, PROMPT, RECORDING

TRANSCRIBE_CALLS = ("stream", "stream_batch", "transcribe", "transcribe_batch")
GENERATE_CALLS = ("generate_stream", "generate")
CONVERSE_CALLS = ("converse_stream", "converse")
DETECT_CALLS = ("detect",)
# By what a family takes: its calls, and the one that messages recommend.
CALLS_FOR = {RECORDING: TRANSCRIBE_CALLS, PROMPT: GENERATE_CALLS, CONVERSATION: CONVERSE_CALLS}
METHOD_FOR = {RECORDING: "transcribe", PROMPT: "generate", CONVERSATION: "converse"}
KINDS = {str: "text", bool: "true or false", int: "whole number", float: "number", tuple: "list of texts"}


@functools.cache
def session_class(base: type[Any], family: str) -> type[Any]:
    """Returns a class like `base` whose calls have the options of a family as documented parameters."""
    family_entry = FAMILIES[family]
    calls = CALLS_FOR[family_entry.input]
    detect_calls = DETECT_CALLS if "vad" in family_entry.tasks else ()
    converse_calls = CONVERSE_CALLS if CONVERSE in family_entry.tasks else ()
    methods = {
        name: _with_options(base, name, family)
        for name in dict.fromkeys((*calls, *detect_calls, *converse_calls, "trace"))
    }
    refused_names = [
        name for name in (*TRANSCRIBE_CALLS, *GENERATE_CALLS, *CONVERSE_CALLS, *DETECT_CALLS) if name not in methods
    ]
    methods |= {
        name: _refused(base, name, family_entry.title, METHOD_FOR[family_entry.input]) for name in refused_names
    }
    return type(base.__name__, (base,), {**methods, "__module__": base.__module__, "__doc__": base.__doc__})


def runtimes_of(spec: OptionSpec, family: str) -> list[str]:
    """Returns the runtimes that support an option; the family's options class may limit them in `ONLY_ON`, by name."""
    only_on: Mapping[str, Sequence[str]] = getattr(FAMILIES[family].options_class, "ONLY_ON", {})
    usable = only_on.get(spec.name) or spec.runtimes or RUNTIMES
    return [name for name in RUNTIMES if FAMILIES[family].cell(name).module and name in usable]


def range_of(spec: OptionSpec) -> str:
    """Returns the values that an option may have, in words; empty if its type is the only limit."""
    if spec.choices:
        return f"one of {', '.join(spec.choices)}"
    return spec.limits


def _with_options(base: type[Any], name: str, family: str) -> Callable[..., Any]:
    """Returns a call of `base` whose signature and docstring list its options."""
    family_entry = FAMILIES[family]
    options_class: Any = family_entry.chat_options_class if name in CONVERSE_CALLS else family_entry.options_class
    specs, hints = option_specs(options_class), get_type_hints(options_class)
    method = _delegating(getattr(base, name))
    signature = inspect.signature(getattr(base, name))
    named_parameters = [
        each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    parameters = [
        inspect.Parameter(spec.name, inspect.Parameter.KEYWORD_ONLY, default=spec.default, annotation=hints[spec.name])
        for spec in specs
    ]
    if name == "trace" and family_entry.input == PROMPT:
        parameters.insert(
            0, inspect.Parameter("embeddings", inspect.Parameter.KEYWORD_ONLY, default=(), annotation=Sequence[Any])
        )
    method.__signature__ = signature.replace(parameters=[*named_parameters, *parameters])  # type: ignore[attr-defined]
    lines = [_line(spec, family) for spec in specs]
    method.__doc__ = "\n".join([_doc(name), "", f"Options of {family_entry.title}:", *lines])
    return method


def _refused(base: type[Any], name: str, title: str, instead: str) -> Callable[..., Any]:
    """Returns a call of `base` whose docstring says that models of the family do not support it."""
    method = _delegating(getattr(base, name))
    method.__signature__ = inspect.signature(getattr(base, name))  # type: ignore[attr-defined]
    method.__doc__ = f"{_doc(name)}\n\n{title} does not do this and raises `BadInput`; use `{instead}`."
    return method


def _delegating(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return original(self, *args, **kwargs)

    del method.__wrapped__
    return method


def _doc(name: str) -> str:
    return inspect.getdoc(getattr(Capabilities, name)) or ""


def _line(spec: OptionSpec, family: str) -> str:
    details = [spec.help, range_of(spec)]
    if len(runtimes := runtimes_of(spec, family)) < sum(bool(each.module) for each in FAMILIES[family].cells.values()):
        details.append(f"on {' and '.join(runtimes)}")
    kind = KINDS[spec.kind]
    return f"    {spec.name} ({kind}, default {spec.default!r}): {'; '.join(filter(None, details))}"
