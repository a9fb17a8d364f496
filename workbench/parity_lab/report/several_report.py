"""A run over several inputs as one HTML file (`document`): the verdicts, every stage over all inputs, each input.

All text from users and traces is escaped.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path

from workbench.parity_lab.outcome import STATUS
from workbench.parity_lab.report.document import document, write_document
from workbench.parity_lab.report.tables import short_number, table
from workbench.parity_lab.several import CandidateOnInputs, ParityRuns

STAGE_COLUMNS = (
    "stage",
    "measure",
    "inputs beyond the limit",
    "least",
    "quartile",
    "median",
    "quartile",
    "largest error / limit",
    "p",
    "p, corrected",
)


def write_several(runs: ParityRuns, path: str | Path) -> Path:
    """Writes `several_page` to a file; raises `BadInput` if the file cannot be written."""
    return write_document(path, lambda: several_page(runs))


def several_page(runs: ParityRuns) -> str:
    """Returns the whole document."""
    introduction = (
        f'<p class="faint">Inputs: {escape(", ".join(runs.inputs))}. Reference: {escape(runs.reference)}.</p>'
    )
    title = f"Parity of {runs.model} over {len(runs.inputs)} inputs"
    return document(title, [introduction, *several_parts(runs)], runs.to_dict())


def several_parts(runs: ParityRuns) -> Iterator[str]:
    """Yields the verdicts and tables as HTML, for a page of its own or for a part of one."""
    for each in runs.candidates:
        mark, status = STATUS[each.status]
        yield (
            f'<section class="verdict {each.status}"><p class="is"><b>{escape(each.name)}</b> '
            f'<span><span aria-hidden="true">{mark}</span> {status}</span></p><p>{escape(each.sentence)}</p></section>'
        )
    for each in runs.candidates:
        yield f"<h2>{escape(each.name)}</h2>"
        yield from _stages(each)
        yield "<h3>Each input by itself</h3>"
        lines = [
            (result.input, STATUS[result.status][1], result.faulty_stage or "", result.sentence)
            for result in each.on_inputs
        ]
        marks = [result.status != "within" for result in each.on_inputs]
        head = ("input", "", "first stage in error", "verdict")
        yield f'<div class="scroll tall">{table(head, lines, marks, wide_columns=(3,))}</div>'


def _stages(each: CandidateOnInputs) -> Iterator[str]:
    if each.consistency is None:
        yield '<p class="faint">No input could be judged beside float64, so the inputs show nothing together.</p>'
        return
    lines = [
        (
            stage.stage,
            stage.measure,
            f"{stage.farther} of {stage.inputs}",
            *(short_number(value) for value in stage.ratios),
            short_number(stage.p),
            short_number(stage.corrected),
        )
        for stage in each.consistency.stages
    ]
    marks = [stage.is_fault for stage in each.consistency.stages]
    yield f'<div class="scroll tall">{table(STAGE_COLUMNS, lines, marks)}</div>'
