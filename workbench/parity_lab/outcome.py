"""The results of a parity run: for each candidate its comparison, or why it could not be compared."""

from __future__ import annotations

import json
import shutil
import weakref
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from workbench.compare.advice import names_of
from workbench.compare.comparison import Comparison
from workbench.compare.noise.consistency import Measurement
from workbench.compare.noise.report import NoiseReport
from workbench.compare.report import to_dict
from workbench.compare.verdict import Verdict
from workbench.compare.weights.report import WeightReport
from workbench.core.errors import BadInput, Unavailable
from workbench.text.scripts import clipped
from workbench.trace.trace import Trace

FORMAT = 1  # version of the JSON; it increases when a key changes its meaning
MAX_VERDICT_CHARACTERS = 160  # most characters of a verdict in a notebook
EXIT_WITHIN, EXIT_BEYOND = 0, 1  # exit status, besides those of `BadInput` and `Unavailable`

_MAX_MISSING = 7  # stages that a port could write, in a sentence

Status = Literal["within", "beyond", "unavailable", "unusable"]

STATUS: dict[Status, tuple[str, str]] = {
    "within": ("✓", "within tolerance"),
    "beyond": ("✗", "beyond tolerance"),
    "unavailable": ("–", "not available"),
    "unusable": ("!", "could not be compared"),
}
"""A sign and words for each status of a candidate."""


@dataclass(frozen=True)
class Computed:
    """A trace, and the time that it took."""

    name: str  # the side as the user wrote it
    trace: Trace
    load_seconds: float = 0.0  # 0 for a trace from a file
    trace_seconds: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """The result for one candidate."""

    name: str
    status: Status
    reason: str = ""  # why it was not compared; empty if it was
    computed: Computed | None = None
    comparison: Comparison | None = None
    verdict: Verdict | None = None
    noise: NoiseReport | None = None
    no_noise: str = ""  # why noise and bugs are not distinguished although requested
    no_peer: str = ""  # why it was not compared with the same model in its precision although possible
    precision: str = ""  # for a trace that does not name its precision: what it is judged as, and why
    compared_reference: Computed | None = (
        None  # the reference as it was compared, if computed from the candidate's stages, or cut
    )
    measurements: tuple[Measurement, ...] = ()  # for a verdict over several inputs
    inside: LayerOutcome | None = None  # what is inside the first layer in error, if it was looked into
    weights: WeightReport | None = None  # its GGUF file against the checkpoint, if it names a file
    no_weights: str = ""  # why they were not compared although it names one

    def __repr__(self) -> str:
        return f"<Outcome of {self.name}: {self.status}, {clipped(self.sentence, MAX_VERDICT_CHARACTERS)}>"

    @property
    def sentences(self) -> tuple[str, ...]:
        """The verdict, also on the inside of a layer, or why there is none."""
        if self.verdict is None:
            return (self.reason,)
        all_sentences = [*self.verdict.sentences, *(self.inside.sentences if self.inside else ())]
        if self.weights and (self.weights.differs or self.status == "beyond"):
            all_sentences.append(self.weights.sentence)
        return tuple(all_sentences)

    @property
    def sentence(self) -> str:
        """The sentences, one after another."""
        return " ".join(self.sentences)

    @property
    def faulty_stage(self) -> str | None:
        """The first stage in error; the one inside a layer if that layer was looked into."""
        inner_stage = self.inside.outcome.faulty_stage if self.inside else None
        return inner_stage or (self.verdict.faulty_stage if self.verdict else None)

    def to_dict(self, profiles: bool = False) -> dict[str, Any]:
        """Returns the outcome as plain JSON values, with `comparison` from `workbench.compare.report.to_dict`."""
        values: dict[str, Any] = {"name": self.name, "status": self.status, "sentence": self.sentence}
        if self.computed:
            values |= {"load_seconds": self.computed.load_seconds, "trace_seconds": self.computed.trace_seconds}
        if self.comparison and self.verdict:
            values["comparison"] = to_dict(self.comparison, self.verdict, self.noise, profiles)
            values["no_noise"] = self.no_noise or None
            values["no_peer"] = self.no_peer or None
            values["precision"] = self.precision or None
            values["weights"] = self.weights.to_dict() if self.weights else None
            values["no_weights"] = self.no_weights or None
        if self.inside:
            values["inside"] = {
                "layer": self.inside.layer,
                "faulty_stage": self.inside.outcome.faulty_stage,
                "seconds": self.inside.seconds,
                **self.inside.outcome.to_dict(profiles),
            }
        return values


@dataclass(frozen=True)
class LayerOutcome:
    """The inner stages of a layer in error."""

    layer: str
    outcome: Outcome  # of the stages inside the layer, and of the layer's own stage
    seconds: float  # of loading and tracing again
    is_same: bool = False  # whether the first stage in error of a trace file stays the same; only its hint may be new

    @property
    def sentences(self) -> tuple[str, ...]:
        """Which stage inside the layer is the first in error, or why that is not known."""
        if self.outcome.verdict is None:
            return (f"Inside {self.layer} nothing is compared: {self.outcome.reason}.",)
        if self.outcome.status == "within":
            return (f"Inside {self.layer} every stage is within tolerance.",)
        if self.is_same:
            hint = self.outcome.verdict.explanation
            return (f"Beside what is inside {self.layer}: {hint.sentence}.",) if hint else self._missing_stages()
        first, *other_sentences = self.outcome.verdict.sentences
        return (f"Inside {self.layer}: {first}", *other_sentences, *self._missing_stages())

    def _missing_stages(self) -> tuple[str, ...]:
        """Returns which stages a port could write to be inspected further, if nothing explains the error."""
        comparison, verdict = self.outcome.comparison, self.outcome.verdict
        if comparison is None or verdict is None or verdict.explanation or not comparison.only_reference:
            return ()
        first, *others = comparison.only_reference
        names = [first, *(each.removeprefix(self.layer) for each in others)]
        return (f"To look further, write these stages too: {names_of(names, _MAX_MISSING)}.",)


def exit_status(statuses: Iterable[str]) -> int:
    """Returns the exit status of a command, from the status of each candidate (see `ParityRun.status`)."""
    found = set(statuses)
    if "beyond" in found:
        return EXIT_BEYOND
    if "unusable" in found:
        return BadInput.exit_status
    return EXIT_WITHIN if "within" in found else Unavailable.exit_status


class ParityRun:
    """The outcomes of a run. The traces stay in files until `close`, or permanently if the user wants to keep them.

    Args:
        folder: the folder with the traces.
        is_kept: whether the traces stay after `close`.
        isolated: whether the candidates were computed from the reference's own inputs, stage by stage.
    """

    def __init__(
        self,
        model: str,
        source: str,
        reference: Computed,
        exact: Computed | None,
        no_exact: str,
        outcomes: Collection[Outcome],
        folder: Path,
        is_kept: bool,
        isolated: bool = False,
        peers: Collection[Computed] = (),
    ):
        self.model = model
        self.source = source  # the recording's name, or the beginning of the prompt
        self.reference = reference
        self.exact = exact  # the reference in float64, if computed
        self.no_exact = no_exact  # why it was not computed
        self.outcomes = tuple(outcomes)
        self.folder = folder
        self.isolated = isolated
        self.peers = tuple(peers)  # the reference's model in the precisions of candidates
        self._end = None if is_kept else weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy in another process does not remove the traces."""
        sides = (self.reference, self.exact, self.no_exact, self.outcomes)
        return ParityRun, (self.model, self.source, *sides, self.folder, True, self.isolated, self.peers)

    def __repr__(self) -> str:
        outcomes = ", ".join(f"{each.name} {each.status}" for each in self.outcomes)
        return f"<ParityRun of {self.model} on {self.source}: {self.reference.name} against {outcomes}>"

    def _repr_html_(self) -> str:
        from workbench.parity_lab.report.display import run_html

        return run_html(self)

    def __getitem__(self, name: str) -> Outcome:
        try:
            return next(each for each in self.outcomes if each.name == name)
        except StopIteration:
            raise KeyError(f"no candidate {name!r}; there are {', '.join(o.name for o in self.outcomes)}") from None

    @property
    def mode(self) -> str:
        """A sentence that says which errors the error of a stage includes."""
        if self.isolated:
            input_sides = {
                each.comparison.inputs for each in self.outcomes if each.comparison and each.comparison.inputs
            }
            if input_sides == {"candidate"}:
                return (
                    "Isolated: every stage of the reference is computed from the candidate's own inputs, so it shows "
                    "only the candidate's own error there."
                )
            dump_clause = "; for a dump, from the dump's own inputs" if "candidate" in input_sides else ""
            return (
                f"Isolated: every stage is computed from the reference's own inputs{dump_clause}, so it shows only its "
                "own error."
            )
        return (
            "End to end: each side continues with its own values, so later stages include the errors of earlier ones."
        )

    @property
    def status(self) -> int:
        """The exit status of the command.

        It is 1 if a candidate is beyond tolerance, else 2 if one could not be used, else 0 if one is within tolerance,
        else 3, because no candidate is available.
        """
        return exit_status(each.status for each in self.outcomes)

    def to_dict(self, profiles: bool = False) -> dict[str, Any]:
        """Returns the run as plain JSON values, without arrays.

        Args:
            profiles: whether to add the error of each stage over positions and over channels.
        """
        return {
            "format": FORMAT,
            "model": self.model,
            "source": self.source,
            "isolated": self.isolated,
            "reference": {"name": self.reference.name, **self.reference.trace.meta},
            "float64": self.exact is not None,
            "no_float64": self.no_exact or None,
            "same_precision": [each.name for each in self.peers],
            "status": self.status,
            "candidates": [each.to_dict(profiles) for each in self.outcomes],
        }

    def to_json(self, profiles: bool = False) -> str:
        """Returns `to_dict` as indented JSON with readable text (no ASCII escapes)."""
        return json.dumps(self.to_dict(profiles), indent=1, ensure_ascii=False, allow_nan=False)

    def close(self) -> None:
        """Removes the traces, unless the user wants to keep them. A second call does nothing."""
        if self._end is not None:
            self._end()

    def __enter__(self) -> ParityRun:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
