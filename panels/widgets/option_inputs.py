"""Inputs for the options of models, made from the options dataclasses, so that an option is declared once.

Families share most options, and each option is shown once. An option that only some families have says so, and is
hidden while none of them is chosen. An option whose choices, default or meaning differ between families is shown once
for each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr

from panels.running.choices import ModelOnRuntime, neural_choices, vad_choices
from panels.widgets.tab_parts import folded_card
from workbench.core.errors import BadInput
from workbench.core.options import OptionSpec, option_specs
from workbench.decoding.ctc_options import CtcBeamOptions
from workbench.families import FAMILIES
from workbench.registry.registry import Registry
from workbench.serving.admission.guard import Guard

ACRONYMS = {"vad", "itn", "cmvn", "cif", "kv", "cfg", "lm"}
LABELS = {
    "nbest": "N-best list size",
    "boost": "Boosted phrases",
    "ban_emo_unk": "Always name an emotion",
    "end_silence_ms": "End silence (ms)",
    "max_segment_seconds": "Max segment length (s)",
    "system": "System message",
    "chat": "Use the chat template",
}
"""Labels of options whose names alone do not say what they do."""
BEAM_SEARCH = {spec.name for spec in option_specs(CtcBeamOptions)}


def label_of(name: str) -> str:
    """Returns the label of an option: from `LABELS`, else `beam_size` as "Beam size" and `itn` as "ITN"."""
    return LABELS.get(name) or capitalised(
        " ".join(word.upper() if word in ACRONYMS else word for word in name.split("_"))
    )


def capitalised(words: str) -> str:
    """Returns a text with its first letter in upper case: on the page, help texts stand beside sentences."""
    return words[:1].upper() + words[1:]


@dataclass(frozen=True)
class OptionField:
    """An option on the page, and the families that have it."""

    spec: OptionSpec
    families: tuple[str, ...]
    everywhere: bool  # all families on the page have it
    only: bool = True  # no other input has an option with this name
    bounded: OptionSpec | None = None  # the option with the limits of this server, for its help text

    @property
    def key(self) -> str:
        """The input's name: the option, and its first family if there are several inputs of that name."""
        return self.spec.name if self.only else f"{self.spec.name}-{self.families[0]}"

    @property
    def label(self) -> str:
        """The label from `label_of`; with the families if others differ."""
        return label_of(self.spec.name) + ("" if self.only else f" ({self._titles})")

    @property
    def info(self) -> str:
        """The option's effect and its families."""
        kind = self.spec.kind
        lines = "" if kind in (bool, float, int, str) else "; one per line"
        does = capitalised((self.bounded or self.spec).help_with_limits + lines)
        return does if self.everywhere or not self.only else f"{does} ({self._titles})"

    @property
    def _titles(self) -> str:
        *earlier, last = (FAMILIES[name].title for name in self.families)
        return f"{', '.join(earlier)} and {last}" if earlier else last


def shown_options(registry: Registry, *tasks: str, guard: Guard | None = None) -> tuple[OptionField, ...]:
    """Returns the options of every family for some tasks, by default for transcribing.

    Options of all families come first, options of the beam search last.

    Args:
        guard: has the limits that the help texts name.
    """
    chosen_tasks = set(tasks or ("transcribe",))
    listed_families = dict.fromkeys(card.family for card in registry.cards() if chosen_tasks & set(card.tasks))
    families = [family for family in listed_families if family in FAMILIES]  # a card may name an unknown family
    found: dict[str, dict[OptionSpec, list[str]]] = {}
    for family in families:
        for spec in option_specs(FAMILIES[family].options_class):
            found.setdefault(spec.name, {}).setdefault(spec, []).append(family)
    listed = [
        OptionField(
            spec,
            tuple(names),
            len(names) == len(families),
            len(variants) == 1,
            guard.bounded(spec) if guard is not None else None,
        )
        for variants in found.values()
        for spec, names in variants.items()
    ]
    return tuple(sorted(listed, key=lambda option: (not option.everywhere, option.spec.name in BEAM_SEARCH)))


def make_inputs(
    options: Iterable[OptionField], registry: Registry, prefix: str = "option"
) -> dict[str, gr.components.Component]:
    """Creates an input for each option, by `OptionField.key`, at the current position of the page.

    Args:
        prefix: the beginning of their ids in the page, different for every tab.
    """
    return {option.key: _input(option, registry, prefix) for option in options}


def options_card(
    options: Iterable[OptionField], registry: Registry, prefix: str = "option"
) -> dict[str, gr.components.Component]:
    """Creates the card with the options of the models; returns what `make_inputs` returns."""
    with folded_card("Options of the models"):
        return make_inputs(options, registry, prefix)


def _input(option: OptionField, registry: Registry, prefix: str) -> gr.components.Component:
    spec = option.spec
    common: dict[str, Any] = {"label": option.label, "info": option.info, "elem_id": f"{prefix}-{option.key}"}
    choices = {"vad": vad_choices, "neural_lm": neural_choices}.get(spec.name, lambda _: spec.choices)(registry)
    if spec.file:
        # A longer label would cover the text of the box.
        return gr.File(
            type="filepath", label=option.label, height="6.875rem", elem_id=common["elem_id"], elem_classes="boxed"
        )
    if choices and spec.default is None:
        return gr.Dropdown([("default", ""), *((each, each) for each in choices)], value="", **common)
    if choices:
        return gr.Dropdown(list(choices), value=spec.default, **common)
    if spec.default is None and spec.kind in (float, int):  # Gradio turns an empty number into 0
        return gr.Textbox(value="", placeholder="default", max_lines=1, **common)
    # No limits here: Gradio would refuse a number with its own message before this project's check.
    makers: dict[type, Callable[[], gr.components.Component]] = {
        bool: lambda: gr.Checkbox(value=spec.default, **common),
        float: lambda: gr.Number(value=spec.default, **common),
        int: lambda: gr.Number(value=spec.default, precision=0, **common),
        str: lambda: gr.Textbox(value=spec.default, **common),
    }
    # Other options are lists of phrases, one per line.
    return makers.get(spec.kind, lambda: gr.Textbox(value="\n".join(spec.default or ()), lines=3, **common))()


def read_inputs(options: Sequence[OptionField], values: Sequence[Any]) -> dict[str, Any]:
    """Returns the options from the page, by `OptionField.key`; an empty number means the default.

    Raises `BadInput` for a text in place of a number.
    """
    return {option.key: _value(option.spec, value) for option, value in zip(options, values)}


def by_family(options: Iterable[OptionField], values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns the result of `read_inputs` as each family's options, by family and name."""
    found: dict[str, dict[str, Any]] = {}
    for option in options:
        for family in option.families:
            found.setdefault(family, {})[option.spec.name] = values[option.key]
    return found


def _value(spec: OptionSpec, value: Any) -> Any:
    if value is None or (spec.default is None and not str(value).strip()):
        return spec.default
    if spec.kind in (float, int) and isinstance(value, str):
        return _number(spec, value.strip())
    if spec.kind in (bool, float, int, str):
        return spec.kind(value)
    return tuple(line.strip() for line in str(value).splitlines() if line.strip())


def _number(spec: OptionSpec, entry: str) -> float | int:
    try:
        return spec.kind(entry)
    except ValueError:
        expected = "a whole number" if spec.kind is int else "a number"
        raise BadInput(f"{label_of(spec.name)} is {entry!r:.80}; expected {expected}, or nothing") from None


def visible_for(options: Sequence[OptionField], registry: Registry, values: Iterable[str]) -> list[bool]:
    """Returns for each option whether one of the chosen models has it."""
    cards = {card.id: card for card in registry.cards() if card.family in FAMILIES}
    models = {ModelOnRuntime.parse(value).model for value in values}
    chosen = {
        (cards[model].family, name)
        for model in models & cards.keys()
        for name in registry.options_class(model).__dataclass_fields__
    }
    return [
        option.everywhere or any((family, option.spec.name) in chosen for family in option.families)
        for option in options
    ]
