"""Judges one candidate: compares its trace with the reference's traces, and tells noise from bugs.

This file computes no traces and knows no runtimes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial

import numpy as np

from workbench.artifacts.linear_layers import CheckpointLayers
from workbench.audio.read import read, read_as_recorded
from workbench.compare.compare import compare
from workbench.compare.comparison import REQUESTED
from workbench.compare.explain import with_hints
from workbench.compare.noise.consistency import Measurement, measurements_of
from workbench.compare.noise.noise_or_bug import noise_or_bug
from workbench.compare.noise.report import NoiseReport
from workbench.compare.noise.spread import noise_by_spread
from workbench.compare.presets import Preset, Tolerances, preset_of
from workbench.compare.verdict import judge
from workbench.core.errors import BadInput
from workbench.core.progress import report
from workbench.parity_lab.judgement.clean_spread import FLOAT32
from workbench.parity_lab.judgement.sources import Sources
from workbench.parity_lab.outcome import Computed, Outcome
from workbench.session.values import AudioSource
from workbench.trace.cuts import cut_like

Changes = tuple[tuple[str, Mapping[str, float]], ...]
"""Other limits of stages, from `workbench.compare.presets.read_rules`."""


@dataclass(frozen=True)
class Judge:
    """The rules by which a run judges its candidates.

    Args:
        stages: a glob of the stages to compare.
        preset: the expected difference; None for that of each candidate's arithmetic.
        changes: other limits of stages.
        force: also compare traces of different inputs.
        several: give each outcome its measurements, as one of several inputs.
        sound: the recording that all sides hear; None for another input.
        layers: the linear layers of the reference; None if they cannot be read.

    It can be pickled, so that another process may judge. It reports what it compares (`workbench.core.progress`).
    """

    stages: str
    preset: Preset | None
    changes: Changes
    force: bool
    several: bool
    sound: AudioSource | None = None
    layers: CheckpointLayers | None = None

    def outcome(self, sources: Sources, candidate: Computed) -> Outcome:
        """Returns the outcome of a candidate; raises `BadInput` if it cannot be compared."""
        reference_trace, candidate_trace = sources.reference.trace, candidate.trace
        preset, reason = (
            (self.preset, REQUESTED) if self.preset else preset_of(reference_trace.meta, candidate_trace.meta)
        )
        tolerances, on_stage = Tolerances(preset, self.changes), partial(_report_stage, candidate.name)
        comparison = compare(reference_trace, candidate_trace, tolerances, self.stages, self.force, on_stage, reason)
        exact, no_noise = sources.exact
        clean, no_peer = sources.clean
        noise: NoiseReport | None = None
        measurements: tuple[Measurement, ...] = ()
        if exact:
            try:
                noise, measurements = self._noise(sources, exact, candidate)
            except BadInput as error:
                no_noise = str(error)
        comparison = with_hints(
            comparison,
            noise,
            reference_trace,
            candidate_trace,
            self._samples,
            self.layers,
            self._recorded,
            clean.exact.trace if clean and clean.exact else None,
        )
        verdict = judge(comparison, noise)
        cut = cut_like(reference_trace, candidate_trace)
        return Outcome(
            candidate.name,
            "within" if verdict.within else "beyond",
            computed=candidate,
            comparison=comparison,
            verdict=verdict,
            noise=noise,
            no_noise=no_noise,
            no_peer=no_peer,
            compared_reference=None if cut is reference_trace else replace(sources.reference, trace=cut),
            measurements=measurements,
        )

    def of_own_sources(self, sources: Sources, candidate: Computed) -> Outcome:
        """Returns the outcome of a candidate whose sources are not those of the run, so the outcome names them."""
        outcome = replace(self, several=False).outcome(sources, candidate)
        return replace(outcome, compared_reference=outcome.compared_reference or sources.reference)

    def inside(self, sources: Sources, candidate: Computed) -> Outcome:
        """Returns the outcome of the stages inside a layer; limits for other stages do not matter there."""
        traced_stages = list(sources.reference.trace)
        matching_changes = tuple(
            each for each in self.changes if any(fnmatchcase(stage, each[0]) for stage in traced_stages)
        )
        return replace(self, stages="*", changes=matching_changes).of_own_sources(sources, candidate)

    def _samples(self) -> np.ndarray | None:
        """Returns the samples of the sound, as front ends take them; None if the recording is gone by now.

        Only a hint needs them, and a run without one is still a run.
        """
        try:
            return None if self.sound is None else read(self.sound).samples
        except BadInput:
            return None

    def _recorded(self) -> tuple[np.ndarray, int] | None:
        """Returns the samples [n, channels] of the sound at its own rate, and that rate; None if it is gone by now."""
        try:
            return None if self.sound is None else read_as_recorded(self.sound)
        except BadInput:
            return None

    def _noise(
        self, sources: Sources, exact: Computed, candidate: Computed
    ) -> tuple[NoiseReport, tuple[Measurement, ...]]:
        """Returns what is noise, and the measurements if they are asked for.

        A candidate in low precision must stay within the clean spread of its precision. In float32 only the
        measurements use the spread.
        """
        reference_trace, candidate_trace = sources.reference.trace, candidate.trace
        clean, _ = sources.clean
        spread_noise = (
            noise_by_spread(reference_trace, candidate_trace, clean.clean(exact.trace), self.stages) if clean else None
        )
        if spread_noise and clean and clean.precision not in FLOAT32:
            noise = spread_noise
        else:
            noise = noise_or_bug(reference_trace, candidate_trace, exact.trace, self.stages)
        if self.several and (spread_noise or not noise.coarser):
            return noise, measurements_of(spread_noise or noise, len(clean.computed) if clean else 1)
        return noise, ()


def _report_stage(name: str, finished: int, count: int, stage: str) -> None:
    report(finished / max(count, 1), f"comparing {name}: {stage}")
