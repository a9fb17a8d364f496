"""The request for a comparison: as a user describes it, and after its check.

This file knows neither Gradio nor HTML.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from panels.parity.several import check_several
from panels.parity.sides import find_card, is_gguf_file, read_sides
from panels.running.choices import options_for
from workbench.compare import find_preset, read_mapping, read_rules
from workbench.compare.precision import AUTO
from workbench.core.errors import BadInput
from workbench.embeddings import Embedding, read_embedding
from workbench.families import FAMILIES
from workbench.families.family import Family
from workbench.parity_lab import Input, ParityOptions, Side
from workbench.parity_lab.judgement.clean_spread import check_precision
from workbench.registry.cards import Card
from workbench.registry.registry import Registry
from workbench.session.conversation import Messages
from workbench.session.values import CONVERSATION, PROMPT, RECORDING, AudioSource, Prompt
from workbench.trace.steps import read_steps
from workbench.trace.trace import StageFilter

NO_INPUT = "traces only"
MISSING = {
    RECORDING: ("recording", "add a file, record one, or click a sample"),
    PROMPT: ("prompt", "write one"),
    CONVERSATION: ("text and no recording", "add one of them, or both"),
}


@dataclass(frozen=True)
class UncheckedRequest:
    """A comparison as a user describes it.

    Args:
        source: a recording, a prompt, or messages; None or an empty text for a comparison of traces alone.
        reference: a side as text, or the name of a trace.
        candidates: the same.
        uploads: the paths of uploaded traces and GGUF files, by name.
        mapping: the path of a mapping file.
        embeddings: paths of embeddings for the placeholders in a prompt; models that take a recording accept none.
        steps: decoding steps, in the notation of `workbench.trace.steps.read_steps`.
        precision: the type of the candidates that are traces, the name of an uploaded GGUF file, or `auto`.
        inputs: several recordings or prompts in place of the source.
    """

    model: str
    source: AudioSource | Prompt | Messages | None
    reference: str
    candidates: Sequence[str]
    uploads: Mapping[str, str] = field(default_factory=dict)
    stages: str = "*"
    options: Mapping[str, Any] = field(default_factory=dict)
    exact: bool = True
    preset: str | None = None
    rules: Sequence[str] = ()
    mapping: str | None = None
    force: bool = False
    isolated: bool = False
    embeddings: Sequence[str] = ()
    steps: str = ""
    precision: str = AUTO
    inputs: Sequence[Input] = ()


@dataclass(frozen=True)
class Request:
    """A comparison to run, checked as far as possible without reading a recording or loading a model."""

    model: str
    source: AudioSource | Prompt | Messages
    reference: Side
    candidates: tuple[Side, ...]
    options: ParityOptions
    inputs: tuple[Input, ...] = ()  # several in place of the source, for one verdict over all of them


def source_of(family: Family, recording: str | None, prompt: str | None) -> AudioSource | Prompt | Messages | None:
    """Returns the input for a model of the family; None or an empty text if there is none.

    A model that answers text and speech gets one message of the user, with the recording, the text, or both. So a text
    stays a text there, even if a file of this machine has such a name.
    """
    text = (prompt or "").strip()
    if family.input != CONVERSATION:
        return text if family.reads_text else recording
    parts: list[dict[str, Any]] = [{"type": "audio", "audio": recording}] if recording else []
    parts += [{"type": "text", "text": text}] if text else []
    return [{"role": "user", "content": parts}] if parts else None


def check_request(registry: Registry, unchecked: UncheckedRequest) -> Request:
    """Returns the request that a user described; raises `BadInput` that says what is wrong."""
    card = find_card(registry, unchecked.model)
    source, exact = unchecked.inputs[0].source if unchecked.inputs else unchecked.source, unchecked.exact
    reference, candidates = _sides(registry, card, unchecked)
    from_models = [side for side in (reference, *candidates) if side.path is None]
    if unchecked.inputs:
        check_several(card, len(from_models) < 1 + len(candidates), bool(unchecked.embeddings))
    if not source:
        if from_models:
            missing, remedy = MISSING[FAMILIES[card.family].input]
            raise BadInput(f"there is no {missing} for {from_models[0].name}; {remedy}")
        source, exact = NO_INPUT, False
    if unchecked.preset:
        find_preset(unchecked.preset)
    read_rules(unchecked.rules)
    StageFilter(unchecked.stages)
    read_steps(unchecked.steps)
    options = ParityOptions(
        stages=unchecked.stages,
        steps=unchecked.steps,
        options=options_for(registry, card.id, _checked_options(registry, card.id, unchecked.options)),
        embeddings=_read(unchecked.embeddings) if FAMILIES[card.family].input == PROMPT else (),
        exact=exact,
        isolated=unchecked.isolated,
        narrow=not unchecked.isolated and not unchecked.inputs,
        preset=unchecked.preset,
        rules=tuple(unchecked.rules),
        mapping=read_mapping(unchecked.mapping) if unchecked.mapping else None,
        force=unchecked.force,
        precision=_precision(unchecked.precision, unchecked.uploads),
    )
    return Request(card.id, source, reference, candidates, options, tuple(unchecked.inputs))


def _sides(registry: Registry, card: Card, unchecked: UncheckedRequest) -> tuple[Side, tuple[Side, ...]]:
    """Returns the reference and the candidates."""
    if not unchecked.reference.strip():
        raise BadInput("no reference is named; choose one, such as pytorch:f32")
    [reference] = read_sides(registry, card, [unchecked.reference.strip()], unchecked.uploads, "the reference")
    if reference.file is not None:
        raise BadInput(
            f"the reference {reference.name} is a GGUF file; make it a candidate, and choose pytorch:f32 here"
        )
    candidates = read_sides(registry, card, unchecked.candidates, unchecked.uploads, "the candidate")
    if not candidates:
        uploaded = next(iter(unchecked.uploads), None)
        advice = f"press or name one, such as {uploaded:.80}" if uploaded else "press at least one, or upload a file"
        raise BadInput(f"no candidate is chosen; {advice}")
    return reference, candidates


def _precision(name: str, uploads: Mapping[str, str]) -> str:
    """Returns a checked precision; a GGUF file must be an uploaded one, as the page opens no other file."""
    if is_gguf_file(name):
        if name not in uploads:
            raise BadInput(f"precision is {name!r:.80}; expected a type such as q8_0, auto, or an uploaded GGUF file")
        return check_precision(uploads[name])
    return check_precision(name)


def _read(paths: Sequence[str]) -> tuple[Embedding, ...]:
    return tuple(read_embedding(Path(path), name=Path(path).name) for path in paths)


def _checked_options(registry: Registry, model: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
    names = registry.options_class(model).__dataclass_fields__
    for name in options:
        if name not in names:
            raise BadInput(f"{model} has no option {name!r:.40}; it has {', '.join(names)}")
    return options
