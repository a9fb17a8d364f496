"""What the Chat tab offers, as plain data: the models for conversations, their options, and examples.

The browser draws the inputs from it and sends the values to `panels.chat.request`. This file draws nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath
from typing import Any

from panels.running.choices import RuntimeOffer, offers
from panels.widgets.option_inputs import capitalised, label_of
from panels.widgets.samples import Sample
from workbench.core.options import OptionSpec, option_specs
from workbench.families import FAMILIES
from workbench.families.family import CONVERSE
from workbench.registry.registry import Registry
from workbench.serving.admission.guard import Guard
from workbench.session.values import CONVERSATION, PROMPT, RECORDING

MAIN = ("modalities", "temperature", "cfg", "seed", "probabilities", "thinking", "language")  # the others are folded
NOT_SHOWN = (
    "system",
    "chat",
    "alternatives",
    "batch_size",
)  # the page has a system prompt of its own, and sends one conversation
KINDS = {bool: "switch", int: "number", float: "number", str: "text", tuple: "lines"}
EXAMPLES = {  # by the input of a model; the demo models can answer these
    CONVERSATION: ("say three seven one", "count from two to six", "say 4 0 8 in the voice of lucas"),
    PROMPT: ("Count from two to six.", "Write in words: 371", "Reverse: four zero eight"),
    RECORDING: (),
}
NOBODY = (
    "No model on this machine can answer. Install PyTorch (pip install torch transformers), which runs the demo "
    "models, or add a language model or a SpeechLM to your list of models. "
    "The Models tab says why each model cannot run."
)


def catalogue(registry: Registry, samples: Iterable[Sample], guard: Guard | None = None) -> dict[str, Any]:
    """Returns the models that can answer now, with their options and examples; if there are none, the reason.

    Args:
        guard: has the limits that the help texts name.
    """
    models = [_model(offer, guard) for offer in sorted(offers(registry, CONVERSE), key=_order) if offer.possible]
    return {
        "models": models,
        "nobody": "" if models else NOBODY,
        "samples": [
            {
                "file": PurePath(sample.path).name,
                "text": sample.text,
                "seconds": sample.seconds,
                "credit": sample.credit,
            }
            for sample in samples
        ],
    }


def chat_options(offer: RuntimeOffer) -> tuple[OptionSpec, ...]:
    """Returns the options of a conversation with a model on its runtime."""
    options_class = FAMILIES[offer.card.family].chat_options_class
    specs = option_specs(options_class) if options_class else ()
    return tuple(spec for spec in specs if not spec.runtimes or offer.cell.runtime in spec.runtimes)


def _order(offer: RuntimeOffer) -> tuple[bool, int]:
    """Returns a sort key: models on this machine come first; among them those that speak, then those that read."""
    family_input = FAMILIES[offer.card.family].input
    return not offer.ready or offer.elsewhere, (CONVERSATION, PROMPT, RECORDING).index(family_input)


def _model(offer: RuntimeOffer, guard: Guard | None) -> dict[str, Any]:
    family_input = FAMILIES[offer.card.family].input
    return {
        "value": offer.cell.value,
        "model": offer.card.id,
        "runtime": offer.cell.runtime,
        "name": offer.card.name,
        "how": offer.cell.how,
        "note": _note(offer),
        "about": offer.card.about,
        "examples": EXAMPLES[family_input],
        "speaks": family_input == CONVERSATION,
        "hears": family_input != PROMPT,
        "remembers": family_input != RECORDING,  # otherwise each turn stands alone
        "options": [
            _option(spec, guard)
            for spec in chat_options(offer)
            if spec.name not in NOT_SHOWN and (spec.name != "modalities" or family_input == CONVERSATION)
        ],
    }


def _note(offer: RuntimeOffer) -> str:
    notes = []
    if offer.elsewhere:
        notes.append(f"runs on {offer.card.place}, which receives what you send")
    elif not offer.ready:
        notes.append("downloads its files first")
    if FAMILIES[offer.card.family].input == RECORDING:
        notes.append("answers about one recording at a time, without the earlier turns")
    return "; ".join(notes)


def _option(spec: OptionSpec, guard: Guard | None) -> dict[str, Any]:
    default = "\n".join(spec.default) if isinstance(spec.default, tuple) else spec.default
    return {
        "name": spec.name,
        "label": label_of(spec.name),
        "info": capitalised((guard.bounded(spec) if guard is not None else spec).help_with_limits),
        "kind": "choice" if spec.choices else KINDS.get(spec.kind, "lines"),
        "choices": list(spec.choices),
        "default": default,
        "whole": spec.kind is int,
        "main": spec.name in MAIN or spec.name.startswith(("text_", "audio_", "min_", "max_")),
    }
