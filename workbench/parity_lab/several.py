"""Runs a comparison on several inputs, one after another, and gives one verdict on each candidate.

A fault may be as small as rounding on every single input. It still shows, because it is there on all inputs
(`workbench.compare.noise.consistency`). Each side is loaded once. The traces of an input are removed before the next
one is computed, so the run needs the memory and the disk of one input.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from workbench.compare.noise.consistency import Consistency, Measurement, consistency
from workbench.compare.weights.report import WeightReport
from workbench.core.caller import Caller, call_directly
from workbench.core.progress import OnProgress
from workbench.core.sides import Side, read_sides
from workbench.parity_lab.inputs import Input, with_dump
from workbench.parity_lab.judgement.clean_spread import check_precision
from workbench.parity_lab.kept_sessions import KeptSessions
from workbench.parity_lab.options import USUAL, ParityOptions
from workbench.parity_lab.outcome import FORMAT, Outcome, Status, exit_status
from workbench.parity_lab.run import run_parity
from workbench.parity_lab.weights import WeightChecks
from workbench.prepared.pool import prepared_processes
from workbench.registry.registry import Registry
from workbench.trace.order import computation_order


@dataclass(frozen=True)
class OnInput:
    """A candidate's result on one input."""

    input: str
    status: Status
    sentence: str
    faulty_stage: str | None
    measurements: tuple[Measurement, ...] = ()
    result: dict[str, Any] | None = None  # as in `Outcome.to_dict`


@dataclass(frozen=True)
class CandidateOnInputs:
    """A candidate's results on all inputs."""

    name: str
    on_inputs: tuple[OnInput, ...]
    weights: WeightReport | None = None  # as in `Outcome`
    no_weights: str = ""  # as in `Outcome`

    @property
    def consistency(self) -> Consistency | None:
        """The verdict on all inputs together; None if no input could be judged with float64."""
        measurements = [each.measurements for each in self.on_inputs if each.measurements]
        return consistency(measurements) if measurements else None

    @property
    def single_input_fault(self) -> tuple[str, int] | None:
        """The stage that most single inputs find at fault, and the number of these inputs; of equal stages the
        earliest.
        """
        stages = Counter(each.faulty_stage for each in self.on_inputs if each.faulty_stage)
        if not stages:
            return None
        maximum = max(stages.values())
        first = computation_order([stage for stage, count in stages.items() if stage and count == maximum])[0]
        return first, maximum

    @property
    def faulty_stage(self) -> str | None:
        """The stage to examine: the faulty stage over all inputs together, else the one of most single inputs."""
        fault = self.consistency.first_fault if self.consistency else None
        return fault.stage if fault else self.single_input_fault[0] if self.single_input_fault else None

    @property
    def status(self) -> Status:
        """The worst status: `within` if neither a single input nor all together show a fault; `beyond` is worse than
        unusable.
        """
        statuses = {each.status for each in self.on_inputs}
        if "beyond" in statuses or self.faulty_stage:
            return "beyond"
        return next((each for each in ("unusable", "unavailable") if each in statuses), "within")

    @property
    def sentence(self) -> str:
        """The verdict on all inputs."""
        parts = [self.consistency.sentence] if self.consistency else []
        count = len(self.on_inputs)
        if self.single_input_fault:
            stage, count_at_fault = self.single_input_fault
            parts.append(f"{stage} is the first stage in error on {count_at_fault} of {count} inputs by itself.")
        else:
            count_beyond = sum(each.status == "beyond" for each in self.on_inputs)
            parts.append(
                f"{count_beyond or 'None'} of {count} inputs {'is' if count_beyond < 2 else 'are'} beyond tolerance."
            )
        uncompared = [each for each in self.on_inputs if each.status in ("unusable", "unavailable")]
        if uncompared:
            parts.append(
                f"{len(uncompared)} of {count} inputs could not be compared: {uncompared[0].input}: "
                f"{uncompared[0].sentence}"
            )
        if self.weights and (self.weights.differs or self.status == "beyond"):
            parts.append(self.weights.sentence)
        return " ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """Returns plain JSON values."""
        return {
            "name": self.name,
            "status": self.status,
            "sentence": self.sentence,
            "faulty_stage": self.faulty_stage,
            "consistency": self.consistency.to_dict() if self.consistency else None,
            "weights": self.weights.to_dict() if self.weights else None,
            "no_weights": self.no_weights or None,
            "inputs": [
                {
                    "input": each.input,
                    "status": each.status,
                    "sentence": each.sentence,
                    "faulty_stage": each.faulty_stage,
                    "result": each.result,
                }
                for each in self.on_inputs
            ],
        }


@dataclass(frozen=True)
class ParityRuns:
    """The results of a run over several inputs. It holds no traces."""

    model: str
    inputs: tuple[str, ...]
    reference: str
    candidates: tuple[CandidateOnInputs, ...]

    def __getitem__(self, name: str) -> CandidateOnInputs:
        try:
            return next(each for each in self.candidates if each.name == name)
        except StopIteration:
            raise KeyError(f"no candidate {name!r}; there are {', '.join(o.name for o in self.candidates)}") from None

    @property
    def status(self) -> int:
        """The exit status of the command, as for one input (`ParityRun.status`)."""
        return exit_status(each.status for each in self.candidates)

    def to_dict(self) -> dict[str, Any]:
        """Returns plain JSON values, with the results of each input."""
        return {
            "format": FORMAT,
            "model": self.model,
            "inputs": list(self.inputs),
            "reference": self.reference,
            "status": self.status,
            "candidates": [each.to_dict() for each in self.candidates],
        }

    def to_json(self) -> str:
        """Returns `to_dict` as indented JSON with readable text (no ASCII escapes)."""
        return json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)


@prepared_processes(early=False)
def run_parity_on_inputs(
    registry: Registry,
    model: str | Path,
    inputs: Sequence[Input],
    reference: str | Side = "pytorch",
    candidates: str | Iterable[str | Side] = ("gguf",),
    how: ParityOptions = USUAL,
    *,
    on_progress: OnProgress | None = None,
    keep: str | Path | None = None,
    call: Caller = call_directly,
    **changes: Any,
) -> ParityRuns:
    """Compares each candidate with the reference on every input, and returns one verdict on each.

    Args:
        inputs: from `workbench.parity_lab.inputs.read_inputs`.
        candidates: as in `run_parity`; a folder of dumps has a folder or a file for each input, with its name.
        keep: a folder for the traces, with a folder for each input.
        how, call, changes: as in `run_parity`.

    Raises `BadInput` as `run_parity`, and if a folder lacks the dump of an input.
    """
    card = registry.card(model)
    sides = read_sides(candidates, registry.options_class(model), card.id, gguf_files=True)
    for each in inputs:
        for side in sides:
            with_dump(side, each.name)  # before anything is computed
    how = replace(how, **changes, several=True)
    sessions = KeptSessions(registry)
    results_by_name: dict[str, list[OnInput]] = {side.name: [] for side in sides}
    reference_name, activities = "", len(inputs) + 1  # the last one is the comparison of weights
    try:
        for number, each in enumerate(inputs):

            def on_input_progress(share: float, activity: str, number: int = number, name: str = each.name) -> None:
                if on_progress:
                    on_progress((number + share) / activities, f"{name}: {activity}")

            folder = None if keep is None else Path(keep) / each.name
            run = run_parity(
                sessions,  # type: ignore[arg-type]
                model,
                each.source,
                reference,
                [with_dump(side, each.name) for side in sides],
                how,
                on_progress=on_input_progress,
                keep=folder,
                call=call,
            )
            with run:
                reference_name = run.reference.name
                for outcome in run.outcomes:
                    results_by_name[outcome.name].append(_on_input(each, outcome))
    finally:
        sessions.close()

    def say(activity: str) -> None:
        if on_progress:
            on_progress(len(inputs) / activities, activity)

    checks = WeightChecks(card, check_precision(how.precision), say)
    candidates_on_inputs = []
    for side in sides:
        results = tuple(results_by_name[side.name])
        compared = any(each.status in ("within", "beyond") for each in results)
        weight_results = checks.of(side) if compared else (None, "")
        candidates_on_inputs.append(CandidateOnInputs(side.name, results, *weight_results))
    if on_progress:
        on_progress(1.0, "done")
    return ParityRuns(card.id, tuple(each.name for each in inputs), reference_name, tuple(candidates_on_inputs))


def _on_input(each: Input, outcome: Outcome) -> OnInput:
    result = replace(outcome, measurements=()).to_dict()
    return OnInput(each.name, outcome.status, outcome.sentence, outcome.faulty_stage, outcome.measurements, result)
