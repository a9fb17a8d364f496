"""What `workbench compare` does: reads, compares, judges, and gives the lines to print and the exit status."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.compare.compare import AS_ASKED, Comparison, compare
from workbench.compare.noise import NoiseReport, noise_or_bug
from workbench.compare.presets import Tolerances, find_preset, preset_of, read_rules
from workbench.compare.report import table, to_json
from workbench.compare.verdict import Verdict, judge
from workbench.core.errors import BadInput
from workbench.trace.mapping import read_mapping
from workbench.trace.read import read_trace

WITHIN, BEYOND = 0, 1  # exit status; bad input has its own


@dataclass(frozen=True)
class Result:
    """A comparison with all that was concluded from it."""

    comparison: Comparison
    verdict: Verdict
    noise: NoiseReport | None

    @property
    def status(self) -> int:
        """The exit status of the command."""
        return WITHIN if self.verdict.within else BEYOND

    def lines(
        self, as_json: bool = False, profiles: bool = False, screen: os.terminal_size | None = None
    ) -> Iterator[str]:
        """The lines to print: a table with the verdict at its head, or JSON.

        Args:
            screen: that the table is to fit in; on one that is too low for it, the verdict stands below it once more.
        """
        if as_json:
            yield to_json(self.comparison, self.verdict, self.noise, profiles)
            return
        found = list(table(self.comparison, self.verdict, self.noise, screen.columns if screen else None))
        yield from found
        if screen and len(found) >= screen.lines:
            yield ""
            yield from found[: found.index("")]


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
        preset: its name; without, what the traces' metadata ask for.
        rules: limits of one's own, as `workbench.compare.presets.read_rules` takes them.
        mapping: a mapping file for the candidate's names and layouts.
        stages: which to compare, a glob.
        exact: a trace of the reference in float64, to tell noise from a bug.
        peer: a trace of the reference's model in the candidate's half precision, to hold the candidate's noise to.
        force: compare traces of different inputs too.
        on_stage: told before each stage how many are done, of how many, and its name.

    Raises `BadInput` for anything that cannot be read or compared.
    """
    changes = read_rules(rules)
    chosen = find_preset(preset) if preset else None
    names = read_mapping(mapping) if mapping else None
    ours, theirs = read_trace(reference), read_trace(candidate, names)
    if peer and not exact:
        raise BadInput("a trace in the same precision says how far from float64 that is; expected one in float64 too")
    third, same = (read_trace(path) if path else None for path in (exact, peer))
    found, reason = (chosen, AS_ASKED) if chosen else preset_of(ours.meta, theirs.meta)
    comparison = compare(ours, theirs, Tolerances(found, changes), stages, force, on_stage, reason)
    noise = noise_or_bug(ours, theirs, third, stages, same) if third else None
    return Result(comparison, judge(comparison, noise), noise)
