"""Reads and checks the arguments of a parity run before anything is computed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.artifacts.linear_layers import CheckpointLayers
from workbench.compare.noise.spread import ORDERS
from workbench.compare.presets import find_preset, read_rules
from workbench.core.caller import Caller
from workbench.core.errors import BadInput
from workbench.core.options import build_options
from workbench.core.sides import Side, read_side, read_sides
from workbench.embeddings.prompt import read_embeddings
from workbench.families import FAMILIES
from workbench.parity_lab.judgement.clean_spread import check_precision, precisions_of
from workbench.parity_lab.judgement.dumps import is_dump
from workbench.parity_lab.judgement.judging import Judge
from workbench.parity_lab.options import ParityOptions
from workbench.parity_lab.source_name import source_name
from workbench.parity_lab.tracer import TraceRequest
from workbench.registry.cards import Card
from workbench.registry.registry import Registry
from workbench.registry.sources import local_checkpoint
from workbench.registry.weights import check_quantization
from workbench.session.protocols import checked_recording
from workbench.session.values import CONVERSATION, RECORDING, AudioSource, Prompt
from workbench.text.prompts import check_prompt, messages_of
from workbench.trace.steps import read_steps
from workbench.trace.trace import StageFilter


@dataclass(frozen=True)
class Plan:
    """The sides of a run, what each of them traces, and how they are judged."""

    card: Card
    source_name: str
    request: TraceRequest
    how: ParityOptions
    reference: Side
    candidates: tuple[Side, ...]
    dumps: tuple[Side, ...]  # the candidates from whose stages the reference is computed
    judge: Judge
    precision: str  # of trace files, checked

    @property
    def has_runs(self) -> bool:
        """Whether a candidate is compared with the one trace of the reference."""
        return len(self.dumps) < len(self.candidates)

    @property
    def has_clean(self) -> bool:
        """Whether candidates are held to the clean spread of their precision."""
        return self.how.exact and self.how.same_precision

    def traces(self, call: Caller) -> int:
        """Returns the largest possible number of traces, for the progress; `call` calls functions that read traces."""
        options, arguments = self.how, (self.candidates, self.how.mapping, self.precision)
        spreads = call(precisions_of, *arguments) if self.has_clean else set()
        count = 1 + options.exact * self.has_runs + (1 + ORDERS) * len(spreads)
        count += len(self.candidates) + len(self.dumps) * (1 + options.exact)
        return count * (1 + options.narrow)


def plan_run(
    registry: Registry,
    model: str | Path,
    source: AudioSource | Prompt,
    reference: str | Side,
    candidates: str | Iterable[str | Side],
    how: ParityOptions,
) -> Plan:
    """Returns the plan of a run; raises `BadInput` for arguments that cannot be used."""
    options_class = registry.options_class(model)
    card = registry.card(model)
    family = FAMILIES[card.family]
    if family.input == CONVERSATION:
        source = messages_of(source)
    elif family.reads_text:
        check_prompt(source, card.id)
    recording = checked_recording(source) if family.input == RECORDING and source is not None else None
    source = source if recording is None else recording
    options = dict(how.options or {})
    build_options(options_class, registry.resolve_options(options), card.id)
    if how.embeddings:
        if not family.reads_text:
            raise BadInput(f"{card.id} takes a recording; expected a language model and a prompt for the embeddings")
        options["embeddings"] = read_embeddings(how.embeddings)
    if how.narrow and how.isolated:
        raise BadInput("a layer is looked into end to end; expected narrow or isolated, not both")
    read_steps(how.steps)
    StageFilter(how.stages, is_recorded=True)
    rules, preset = read_rules(how.rules), find_preset(how.preset) if how.preset else None
    checkpoint = None if how.several or card.kind == "gguf" else local_checkpoint(card)
    layers = CheckpointLayers(checkpoint, card.family) if checkpoint else None
    judge = Judge(how.stages, preset, rules, how.force, how.several, recording, layers)
    settings: dict[str, Any] = dict(how.settings or {})
    reference_side = read_side(reference, options_class, card.id).with_default(**settings)
    reference_side = reference_side.with_default(
        dtype="float32", **({} if card.kind == "gguf" else {"quantization": "f32"})
    )
    sides = read_sides(candidates, options_class, card.id, gguf_files=True)
    candidate_sides = tuple(each.with_default(**settings) for each in sides)
    for side in candidate_sides:
        if side.file is not None:
            _check_file(registry, side.file, card)
        try:
            check_quantization(card, side.settings.get("quantization", "auto"))
        except BadInput as error:
            raise BadInput(f"{side.name}: {error}") from None
    from_stages = how.isolated and reference_side.path is None
    return Plan(
        card,
        source_name(source, family.reads_text),
        TraceRequest(model, source, how.stages, options, how.mapping, how.steps),
        how,
        reference_side,
        candidate_sides,
        tuple(side for side in candidate_sides if from_stages and is_dump(side, how.mapping)),
        judge,
        check_precision(how.precision),
    )


def _check_file(registry: Registry, file: Path, card: Card) -> None:
    """Raises `BadInput` for a GGUF file of another family."""
    if (family := registry.card(file).family) != card.family:
        raise BadInput(f"{file} is a model of the family {family}; expected one of {card.family}, as {card.id} is")
