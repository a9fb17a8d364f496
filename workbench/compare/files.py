"""Compares two files that hold traces: reads, compares and judges them; returns lines to print and an exit status."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.compare.compare import compare
from workbench.compare.comparison import REQUESTED, Comparison
from workbench.compare.explain import with_hints
from workbench.compare.noise.noise_or_bug import noise_or_bug
from workbench.compare.noise.report import NoiseReport
from workbench.compare.presets import Tolerances, find_preset, preset_of, read_rules
from workbench.compare.report import table, to_json
from workbench.compare.verdict import Verdict, judge
from workbench.core.errors import BadInput
from workbench.trace.mapping import read_mapping
from workbench.trace.read import read_trace

EXIT_WITHIN, EXIT_BEYOND = 0, 1  # exit status; bad input has another


@dataclass(frozen=True)
class Result:
    """A comparison with its conclusions."""

    comparison: Comparison
    verdict: Verdict
    noise: NoiseReport | None

    @property
    def status(self) -> int:
        """The exit status of the command."""
        return EXIT_WITHIN if self.verdict.within else EXIT_BEYOND

    def lines(
        self, as_json: bool = False, profiles: bool = False, screen: os.terminal_size | None = None
    ) -> Iterator[str]:
        """Yields the lines to print: a table with the verdict at its top, or JSON.

        Args:
            screen: the size of the screen that the table should fit; if the screen is too low, the verdict appears
                again below the table.
        """
        if as_json:
            yield to_json(self.comparison, self.verdict, self.noise, profiles)
            return
        table_lines = list(table(self.comparison, self.verdict, self.noise, screen.columns if screen else None))
        yield from table_lines
        if screen and len(table_lines) >= screen.lines:
            yield ""
            yield from table_lines[: table_lines.index("")]


def compare_files(
    reference: str | Path,
    candidate: str | Path,
    *,
    preset: str | None = None,
    rules: Sequence[str] = (),
    mapping: str | Path | None = None,
    stages: str = "*",
    exact: str | Path | None = None,
    peer: str | Path | None = None,
    force: bool = False,
    on_stage: Callable[[int, int, str], None] | None = None,
) -> Result:
    """Compares two files, or directories, that hold traces.

    Args:
        preset: its name; by default chosen from the traces' metadata.
        rules: other limits, as `workbench.compare.presets.read_rules` takes them.
        mapping: a mapping file for the candidate's names and layouts.
        stages: a glob of the stages to compare.
        exact: a trace of the reference in float64, to tell noise from a bug.
        peer: a trace of the reference's model in the candidate's half precision, as bound for the candidate's noise.
        force: also compare traces of different inputs.
        on_stage: called before each stage with the number of finished stages, the number of all, and the name.

    Raises `BadInput` for anything that cannot be read or compared.
    """
    changes = read_rules(rules)
    requested = find_preset(preset) if preset else None
    names = read_mapping(mapping) if mapping else None
    reference_trace, candidate_trace = read_trace(reference), read_trace(candidate, names)
    if peer and not exact:
        raise BadInput("a trace in the same precision requires one in float64 too")
    exact_trace, peer_trace = (read_trace(path) if path else None for path in (exact, peer))
    chosen_preset, reason = (
        (requested, REQUESTED) if requested else preset_of(reference_trace.meta, candidate_trace.meta)
    )
    comparison = compare(
        reference_trace, candidate_trace, Tolerances(chosen_preset, changes), stages, force, on_stage, reason
    )
    noise = noise_or_bug(reference_trace, candidate_trace, exact_trace, stages, peer_trace) if exact_trace else None
    comparison = with_hints(comparison, noise, reference_trace, candidate_trace)
    return Result(comparison, judge(comparison, noise), noise)
