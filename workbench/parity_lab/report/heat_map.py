"""The heat map of a run as HTML: a row for each stage in the order of the computation, coloured by error / limit.

The layers of a stack form a group. The group's row shows the worst of them, and a checkbox in it shows and hides them
without any script. For a page with a script, rows and cells also name their stage and candidate.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from workbench.compare.stage import StageComparison
from workbench.parity_lab.outcome import Outcome, ParityRun
from workbench.parity_lab.report.tables import breakable_html, short_number
from workbench.trace.order import computation_order

METRICS = {"relative_l2": "rel. L2", "peak": "peak", "cosine_distance": "cosine d."}  # the columns of each candidate
LEGEND = (
    "The colour shows the value divided by its limit: blue and yellow are within the limit, orange and red beyond it. "
    "“rel. L2” is the norm of the difference divided by the norm of the reference. “peak” is the largest difference "
    "divided by the reference's RMS. “cosine d.” is 1 minus the cosine."
)
COLOUR_MEANINGS = ("0", "to 1/1000", "to 1/100", "to 1/10", "to 1", "to 10", "more")
_STEPS = (0.0, 1e-3, 1e-2, 0.1, 1.0, 10.0)  # boundaries of error / limit between colours
_WORST_COLOUR = len(_STEPS)
_FOLDING_ROWS = 40  # with more stages than this, stacks within tolerance are closed
_STACK = re.compile(r"(.+?\.layers)\.([0-9]{1,9})(?:\..+)?")


@dataclass(frozen=True)
class _Cell:
    """A cell of the table: its colour, its text, and the sentence in its tooltip."""

    kind: str  # h0 to h6, or none
    text: str
    title: str = ""
    column_span: int = 1

    @property
    def colour_number(self) -> int:
        return int(self.kind[1]) if self.kind.startswith("h") else -1


@dataclass(frozen=True)
class _Row:
    stage: str
    name: str
    cells: tuple[tuple[_Cell, ...], ...]  # the cells of each candidate

    @property
    def is_beyond(self) -> bool:
        return any(cell.colour_number > 4 for cells in self.cells for cell in cells)


def heat_map(run: ParityRun, has_buttons: bool = False, opened_stage: str = "") -> Iterator[str]:
    """Yields the heat map with its key; nothing if no candidate was compared.

    Args:
        has_buttons: whether rows carry `data-stage` and a button, and cells `data-side`, the candidate's index in the
            run.
        opened_stage: the stage that is shown in detail, whose row is marked.
    """
    compared_outcomes = [(place, each) for place, each in enumerate(run.outcomes) if each.comparison]
    if not compared_outcomes:
        return
    rows = _rows(run, [each for _, each in compared_outcomes])
    places = [place for place, _ in compared_outcomes] if has_buttons else []
    yield f'<p class="faint">{LEGEND}</p><p class="key">'
    for kind, meaning in enumerate(COLOUR_MEANINGS):
        yield f'<span class="h{kind}">{meaning}</span>'
    yield "</p>"
    yield '<div class="scroll tall" tabindex="0" role="region" aria-label="Error of every stage"><table class="heat">'
    head_cells = "".join(
        f'<th scope="colgroup" colspan="{len(METRICS)}"><span>{escape(each.name)}</span></th>'
        for _, each in compared_outcomes
    )
    names = "".join(f'<th scope="col">{name}</th>' for name in METRICS.values()) * len(compared_outcomes)
    yield f'<thead><tr><th scope="row" rowspan="2">stage</th>{head_cells}</tr><tr>{names}</tr></thead>'
    for stack, stack_rows in itertools.groupby(rows, key=lambda row: _stack(row.stage)):
        yield from _group(stack, list(stack_rows), len(rows) <= _FOLDING_ROWS, places, opened_stage)
    yield "</table></div>"


def _rows(run: ParityRun, outcomes: Sequence[Outcome]) -> list[_Row]:
    stages_by_name = [
        {each.stage: each for each in outcome.comparison.stages} for outcome in outcomes if outcome.comparison
    ]
    order = computation_order(list(run.reference.trace), recorded=run.reference.trace.is_ordered)
    rows = []
    for stage in order:
        compared_stages = [each.get(stage) for each in stages_by_name]
        if any(compared_stages):
            rows.append(_Row(stage, stage, tuple(map(_cells, compared_stages))))
        if any(each and each.logits for each in compared_stages):
            rows.append(_Row(stage, f"{stage}, as predictions", tuple(map(_predictions, compared_stages))))
    return rows


def _stack(stage: str) -> str:
    match = _STACK.fullmatch(stage)
    return match[1] if match else ""


def _group(stack: str, rows: list[_Row], is_small: bool, places: Sequence[int], opened_stage: str) -> Iterator[str]:
    yield "<tbody>"
    if stack and len(rows) > 1:
        numbers = [int(match[2]) for row in rows if (match := _STACK.fullmatch(row.stage))]
        span = f"{min(numbers)}" if min(numbers) == max(numbers) else f"{min(numbers)} to {max(numbers)}"
        is_open = is_small or any(row.is_beyond or row.stage == opened_stage for row in rows)
        box = f'<input type="checkbox"{" checked" if is_open else ""}>'
        cells = "".join(
            _cell(_worst([row.cells[side][min(column, len(row.cells[side]) - 1)] for row in rows]))
            for side in range(len(rows[0].cells))
            for column in range(len(METRICS))
        )
        yield (
            f'<tr class="group"><th scope="row"><label>{box} {breakable_html(stack)} {span} '
            f"<small>worst of {len(rows)}</small></label></th>{cells}</tr>"
        )
    for row in rows:
        hidden_prefix = f"{stack.rpartition('.')[0]}." if stack and len(rows) > 1 else ""
        yield _line(row, places, hidden_prefix, row.name == opened_stage)
    yield "</tbody>"


def _worst(cells: Sequence[_Cell]) -> _Cell:
    """Returns the worst cell of a column. A cell without a measure counts if it is worse than all cells with one."""
    measured = [cell for cell in cells if cell.column_span == 1]
    worst = max(cells, key=lambda cell: cell.colour_number, default=_Cell("none", ""))
    if not measured or worst.colour_number > max(cell.colour_number for cell in measured):
        return _Cell(worst.kind, "" if worst.colour_number < 0 else "–", worst.title or worst.text)
    return max(measured, key=lambda cell: (cell.colour_number, _number(cell.text)))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _line(row: _Row, places: Sequence[int], hidden_prefix: str, is_opened: bool) -> str:
    """Returns a row. If the group's row already shows the beginning of the name, only screen readers get it again."""
    name = breakable_html(row.name.removeprefix(hidden_prefix))
    if hidden_prefix and row.name.startswith(hidden_prefix):
        name = f'<span class="known">{escape(hidden_prefix)}</span>{name}'
    cells = []
    for number, candidate_cells in enumerate(row.cells):
        side = f' data-side="{places[number]}"' if places else ""
        cells += [_cell(each, side) for each in candidate_cells]
    if not places:
        return f'<tr{_kind(row, is_opened)}><th scope="row">{name}</th>{"".join(cells)}</tr>'
    button = f'<button type="button">{name}</button>'
    data_stage = f' data-stage="{escape(row.stage)}"'
    return f'<tr{_kind(row, is_opened)}{data_stage}><th scope="row">{button}</th>{"".join(cells)}</tr>'


def _kind(row: _Row, is_opened: bool) -> str:
    kinds = [*(["said"] if row.name != row.stage else []), *(["opened"] if is_opened else [])]
    return f' class="{" ".join(kinds)}"' if kinds else ""


def _cell(cell: _Cell, side: str = "") -> str:
    column_span = f' colspan="{cell.column_span}"' if cell.column_span > 1 else ""
    title = f' title="{escape(cell.title)}"' if cell.title else ""
    return f'<td class="{cell.kind}"{column_span}{title}{side}>{escape(cell.text)}</td>'


def _cells(each: StageComparison | None) -> tuple[_Cell, ...]:
    """Returns the cells of one stage of one candidate."""
    all_columns = len(METRICS)
    if each is None:
        return (_Cell("none", "not traced", column_span=all_columns),)
    if each.mismatch:
        return (_Cell("h6", "other shape", each.mismatch, all_columns),)
    if each.sequence:
        text = f"{each.sequence.errors} of {each.sequence.reference_length} differ" if each.differs else "equal"
        return (_Cell("h0" if not each.differs else "h4" if each.passes else "h5", text, column_span=all_columns),)
    if each.streams:
        text = f"{100 * each.streams.error_rate:.2g} % differ" if each.differs else "equal"
        return (_Cell("h0" if not each.differs else "h4" if each.passes else "h5", text, column_span=all_columns),)
    if each.logprobs:
        text = f"{each.logprobs.worst:.2g} nats" if each.differs else "0"
        return (_Cell("h0" if not each.differs else "h4" if each.passes else "h5", text, column_span=all_columns),)
    if each.numbers and each.numbers.nonfinite_differences:
        return (_Cell("h6", "not finite", column_span=all_columns),)
    return tuple(_measured(each, name) for name in METRICS)


def _predictions(each: StageComparison | None) -> tuple[_Cell, ...]:
    """Returns the cells of logits: divergence, share of rows with the same best candidate, overlap of the best."""
    if each is None or each.logits is None:
        return (_Cell("none", "", column_span=len(METRICS)),)
    logits = each.logits
    measures_beyond = {excess.measure for excess in each.beyond}
    divergence = _measured(each, "kl")
    kind = "h5" if "top1" in measures_beyond else "h4" if logits.flips else "h0"
    title = f"{logits.flips} of {logits.rows} rows prefer another candidate, limit {each.limits.top1:.4g}"
    overlap = f"share of the reference's best {logits.top} that are among the candidate's"
    return (
        _Cell(divergence.kind, f"KL\n{divergence.text}", divergence.title),
        _Cell(kind, f"top-1\n{_share(logits.top1_agreement)}", title),
        _Cell("none", f"top-{logits.top}\n{_share(logits.top_overlap)}", overlap),
    )


def _share(value: float) -> str:
    return f"{math.floor(1000 * value) / 10:.4g} %"  # rounded down, so that only a full share shows 100 %


def _measured(each: StageComparison, name: str) -> _Cell:
    value, limit = each.measured.get(name, math.nan), getattr(each.limits, name)
    times = value / limit if limit else 0.0 if value == 0 else math.inf
    kind = next((number for number, step in enumerate(_STEPS) if times <= step), _WORST_COLOUR)
    return _Cell(f"h{kind}", short_number(value), f"{value:.4g}, limit {limit:.2g}")
