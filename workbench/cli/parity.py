"""The output of `workbench parity`: a verdict for each candidate, and the error of every stage side by side."""

from __future__ import annotations

from collections.abc import Iterator

from workbench.compare.stage import StageComparison
from workbench.parity_lab.outcome import ParityRun
from workbench.text.scripts import display_width
from workbench.trace.order import computation_order


def lines(run: ParityRun) -> Iterator[str]:
    """Yields the verdicts, then a table of relative L2 errors with a row for each stage.

    `!` marks the stages beyond tolerance.
    """
    for each in run.outcomes:
        yield f"{each.name} ({each.status}): {each.sentence}"
    if run.isolated:
        yield run.mode
    if run.no_exact:
        yield f"Noise and bugs are not distinguished: {run.no_exact}"
    for each in run.outcomes:
        if each.no_peer:
            yield f"{each.name} is not compared with this model in the same precision: {each.no_peer}"
    compared = [(each.name, each.comparison) for each in run.outcomes if each.comparison]
    if not compared:
        return
    held = [{each.stage: each for each in comparison.stages} for _, comparison in compared]
    order = computation_order(list(run.reference.trace), recorded=bool(run.reference.trace.meta))
    rows = [("relative L2", *(name for name, _ in compared))]
    for stage in order:
        if any(stage in stages for stages in held):
            cells = [_cell(stages.get(stage)) for stages in held]
            marks = [
                "!" if stage in stages and not one.passes(stages[stage]) else " "
                for stages, (_, one) in zip(held, compared)
            ]
            rows.append((stage, *(f"{cell} {mark}" for cell, mark in zip(cells, marks))))
    widths = [max(display_width(row[column]) for row in rows) for column in range(len(rows[0]))]
    yield ""
    for row in rows:
        padded = [" " * (width - display_width(cell)) for cell, width in zip(row, widths)]
        yield "  ".join([row[0] + padded[0], *(pad + cell for pad, cell in zip(padded[1:], row[1:]))]).rstrip()


def _cell(each: StageComparison | None) -> str:
    if each is None:
        return "-"
    if each.mismatch:
        return "other shape"
    if each.sequence:
        return "equal" if not each.differs else f"{each.sequence.errors} of {each.sequence.reference_length} differ"
    if each.streams:
        return "equal" if not each.differs else f"{100 * each.streams.error_rate:.2g} % differ"
    if each.logprobs:
        return f"{each.logprobs.worst:.1e} nats" if each.logprobs.worst else "0"
    assert each.numbers
    if each.numbers.nonfinite_differences:
        return "not finite"
    return f"{each.numbers.relative_l2:.1e}" if each.numbers.relative_l2 else "0"
