"""Inputs for the settings of vLLM's engines, made from what `workbench.isolation.loader` declares.

Each may be left as it is, which means: as the model's card says, else as usual. This file knows no engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gradio as gr

from panels.widgets.option_inputs import label_of
from workbench.core.errors import BadInput
from workbench.core.options import OptionSpec
from workbench.core.settings import check_setting, settings_of

RUNTIME = "vllm"
# How many threads are used is for the owner of the machine to say.
SHOWN = tuple(spec for name, spec in settings_of(RUNTIME).items() if name != "threads")
UNSET = ""
AS_USUAL = ("as the model's card says", UNSET)
SWITCH = {"on": True, "off": False}


def make_settings() -> list[gr.components.Component]:
    """An input for each of `SHOWN`. Call it where they shall stand on the page."""
    return [_input(spec) for spec in SHOWN]


def _input(spec: OptionSpec) -> gr.components.Component:
    common: dict[str, Any] = {"label": label_of(spec.name), "info": spec.told, "elem_id": f"setting-{spec.name}"}
    choices = tuple(SWITCH) if spec.kind is bool else spec.choices
    if choices:
        return gr.Dropdown([AS_USUAL, *((each, each) for each in choices)], value=UNSET, **common)
    return gr.Textbox(value=UNSET, placeholder=AS_USUAL[0], max_lines=1, **common)  # Gradio makes an empty number 0


def read_settings(values: Sequence[Any]) -> dict[str, Any]:
    """The settings as given on the page, by name, without those that were left as they are.

    Raises `BadInput` for a value that makes no sense.
    """
    written = {spec.name: each.strip() if isinstance(each, str) else each for spec, each in zip(SHOWN, values)}
    return {
        spec.name: _checked(spec, _read(spec, written[spec.name]), label_of(spec.name))
        for spec in SHOWN
        if written[spec.name] not in (None, UNSET)
    }


def _read(spec: OptionSpec, written: Any) -> Any:
    """What stands in an input, as the value that is meant; as it is, where none is."""
    try:
        if spec.kind is bool:
            return SWITCH.get(written, written)
        return spec.kind(written) if isinstance(written, str) else written
    except ValueError:
        return written


def check_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as a script gives them, by name; raises `BadInput` for one that there is not, or a wrong value."""
    known = {spec.name: spec for spec in SHOWN}
    for name in given:
        if name not in known:
            raise BadInput(f"an engine has no setting {name!r} here; it has {', '.join(known)}")
    return {name: _checked(known[name], value, name) for name, value in given.items()}


def _checked(spec: OptionSpec, value: Any, called: str) -> Any:
    return check_setting(spec.name, value, f"{called} is {value!r:.80}", RUNTIME)
