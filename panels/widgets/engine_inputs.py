"""Inputs for the settings of vLLM's engines, made from the declarations in `workbench.core.settings`.

An unchanged input means the value in the model's card, else the default. This file knows no engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gradio as gr

from panels.widgets.option_inputs import capitalised, label_of
from workbench.core.errors import BadInput
from workbench.core.options import OptionSpec
from workbench.core.settings import check_setting, settings_of

RUNTIME = "vllm"
# The owner of the machine decides the number of threads.
SETTINGS = tuple(spec for name, spec in settings_of(RUNTIME).items() if name != "threads")
UNSET = ""
AS_USUAL = ("as the model's card says", UNSET)
SWITCH = {"on": True, "off": False}


def make_settings() -> list[gr.components.Component]:
    """Creates an input for each of `SETTINGS` at the current position of the page."""
    return [_input(spec) for spec in SETTINGS]


def _input(spec: OptionSpec) -> gr.components.Component:
    common: dict[str, Any] = {
        "label": label_of(spec.name),
        "info": capitalised(spec.help_with_limits),
        "elem_id": f"setting-{spec.name}",
    }
    choices = tuple(SWITCH) if spec.kind is bool else spec.choices
    if choices:
        return gr.Dropdown([AS_USUAL, *((each, each) for each in choices)], value=UNSET, **common)
    # Gradio turns an empty number into 0.
    return gr.Textbox(value=UNSET, placeholder=AS_USUAL[0], max_lines=1, **common)


def read_settings(values: Sequence[Any]) -> dict[str, Any]:
    """Returns the settings from the page by name, without unchanged ones.

    Raises `BadInput` for an invalid value.
    """
    entries = {spec.name: each.strip() if isinstance(each, str) else each for spec, each in zip(SETTINGS, values)}
    return {
        spec.name: _checked(spec, _read(spec, entries[spec.name]), label_of(spec.name))
        for spec in SETTINGS
        if entries[spec.name] not in (None, UNSET)
    }


def _read(spec: OptionSpec, entry: Any) -> Any:
    """Returns the value of an input's text; the text itself if it has no valid value."""
    try:
        if spec.kind is bool:
            return SWITCH.get(entry, entry)
        return spec.kind(entry) if isinstance(entry, str) else entry
    except ValueError:
        return entry


def check_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a script's settings by name; raises `BadInput` for an unknown one, or a wrong value."""
    known = {spec.name: spec for spec in SETTINGS}
    for name in settings:
        if name not in known:
            raise BadInput(f"an engine has no setting {name!r:.80} here; it has {', '.join(known)}")
    return {name: _checked(known[name], value, name) for name, value in settings.items()}


def _checked(spec: OptionSpec, value: Any, name: str) -> Any:
    return check_setting(spec.name, value, f"{name} is {value!r:.80}", RUNTIME)
