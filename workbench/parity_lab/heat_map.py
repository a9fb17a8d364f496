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
from workbench.parity_lab.tables import broken, short
from workbench.trace.order import computation_order

METRICS = {"relative_l2": "rel. L2", "peak": "peak", "cosine_distance": "cosine d."}  # the columns of each candidate
ABOUT = (
    "A colour says how many times its limit a value is: blue and yellow are within, orange and red are beyond. "
    "“rel. L2” is the norm of the difference over that of the reference, “peak” the largest difference over the "
    "reference's RMS, and “cosine d.” 1 minus the cosine."
)
KEY = ("0", "to 1/1000", "to 1/100", "to 1/10", "to 1", "to 10", "more")
_STEPS = (0.0, 1e-3, 1e-2, 0.1, 1.0, 10.0)  # boundaries of error / limit between colours
_WORST = len(_STEPS)
_SHOWN = 40  # with more stages than this, stacks within tolerance are closed
_STACK = re.compile(r"(.+?\.layers)\.([0-9]{1,9})(?:\..+)?")


@dataclass(frozen=True)
class _Cell:
    """A cell of the table: its colour, its text, and the sentence in its tooltip."""

    kind: str  # h0 to h6, or none
    text: str
    title: str = ""
    across: int = 1

    @property
    def badness(self) -> int:
        return int(self.kind[1]) if self.kind.startswith("h") else -1


@dataclass(frozen=True)
class _Row:
    stage: str
    name: str
    cells: tuple[tuple[_Cell, ...], ...]  # the cells of each candidate

    @property
    def beyond(self) -> bool:
        return any(cell.badness > 4 for cells in self.cells for cell in cells)


def heat_map(run: ParityRun, pressable: bool = False, opened: str = "") -> Iterator[str]:
    """Yields the heat map with its key; nothing if no candidate was compared.

    Args:
        pressable: whether rows carry `data-stage` and a button, and cells `data-side`, the candidate's index in the
            run.
        opened: the stage that is shown in detail, whose row is marked.
    """
    compared = [(place, each) for place, each in enumerate(run.outcomes) if each.comparison]
    if not compared:
        return
    rows = _rows(run, [each for _, each in compared])
    places = [place for place, _ in compared] if pressable else []
    yield f'<p class="faint">{ABOUT}</p><p class="key">'
    for kind, meaning in enumerate(KEY):
        yield f'<span class="h{kind}">{meaning}</span>'
    yield "</p>"
    yield '<div class="scroll tall" tabindex="0" role="region" aria-label="Error of every stage"><table class="heat">'
    top = "".join(
        f'<th scope="colgroup" colspan="{len(METRICS)}"><span>{escape(each.name)}</span></th>' for _, each in compared
    )
    names = "".join(f'<th scope="col">{name}</th>' for name in METRICS.values()) * len(compared)
    yield f'<thead><tr><th scope="row" rowspan="2">stage</th>{top}</tr><tr>{names}</tr></thead>'
    for stack, several in itertools.groupby(rows, key=lambda row: _stack(row.stage)):
        yield from _group(stack, list(several), len(rows) <= _SHOWN, places, opened)
    yield "</table></div>"


def _rows(run: ParityRun, compared: Sequence[Outcome]) -> list[_Row]:
    found = [{each.stage: each for each in outcome.comparison.stages} for outcome in compared if outcome.comparison]
    order = computation_order(list(run.reference.trace), recorded=bool(run.reference.trace.meta))
    rows = []
    for stage in order:
        compared_stages = [each.get(stage) for each in found]
        if any(compared_stages):
            rows.append(_Row(stage, stage, tuple(map(_cells, compared_stages))))
        if any(each and each.logits for each in compared_stages):
            rows.append(_Row(stage, f"{stage}, as predictions", tuple(map(_predictions, compared_stages))))
    return rows


def _stack(stage: str) -> str:
    found = _STACK.fullmatch(stage)
    return found[1] if found else ""


def _group(stack: str, rows: list[_Row], small: bool, places: Sequence[int], opened: str) -> Iterator[str]:
    yield "<tbody>"
    if stack and len(rows) > 1:
        numbers = [int(found[2]) for row in rows if (found := _STACK.fullmatch(row.stage))]
        span = f"{min(numbers)}" if min(numbers) == max(numbers) else f"{min(numbers)} to {max(numbers)}"
        open_ = small or any(row.beyond or row.stage == opened for row in rows)
        box = f'<input type="checkbox"{" checked" if open_ else ""}>'
        cells = "".join(
            _cell(_worst([row.cells[side][min(column, len(row.cells[side]) - 1)] for row in rows]))
            for side in range(len(rows[0].cells))
            for column in range(len(METRICS))
        )
        yield (
            f'<tr class="group"><th scope="row"><label>{box} {broken(stack)} {span} '
            f"<small>worst of {len(rows)}</small></label></th>{cells}</tr>"
        )
    for row in rows:
        shown_prefix = f"{stack.rpartition('.')[0]}." if stack and len(rows) > 1 else ""
        yield _line(row, places, shown_prefix, row.name == opened)
    yield "</tbody>"


def _worst(cells: Sequence[_Cell]) -> _Cell:
    """Returns the worst cell of a column. A cell without a measure counts if it is worse than all cells with one."""
    measured = [cell for cell in cells if cell.across == 1]
    worst = max(cells, key=lambda cell: cell.badness, default=_Cell("none", ""))
    if not measured or worst.badness > max(cell.badness for cell in measured):
        return _Cell(worst.kind, "" if worst.badness < 0 else "–", worst.title or worst.text)
    return max(measured, key=lambda cell: (cell.badness, _number(cell.text)))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _line(row: _Row, places: Sequence[int], shown_prefix: str, opened: bool) -> str:
    """Returns a row. If the group's row already shows the beginning of the name, only screen readers get it again."""
    name = broken(row.name.removeprefix(shown_prefix))
    if shown_prefix and row.name.startswith(shown_prefix):
        name = f'<span class="known">{escape(shown_prefix)}</span>{name}'
    cells = []
    for number, several in enumerate(row.cells):
        side = f' data-side="{places[number]}"' if places else ""
        cells += [_cell(each, side) for each in several]
    if not places:
        return f'<tr{_kind(row, opened)}><th scope="row">{name}</th>{"".join(cells)}</tr>'
    button = f'<button type="button">{name}</button>'
    return (
        f'<tr{_kind(row, opened)} data-stage="{escape(row.stage)}"><th scope="row">{button}</th>{"".join(cells)}</tr>'
    )


def _kind(row: _Row, opened: bool) -> str:
    kinds = [*(["said"] if row.name != row.stage else []), *(["opened"] if opened else [])]
    return f' class="{" ".join(kinds)}"' if kinds else ""


def _cell(cell: _Cell, side: str = "") -> str:
    across = f' colspan="{cell.across}"' if cell.across > 1 else ""
    title = f' title="{escape(cell.title)}"' if cell.title else ""
    return f'<td class="{cell.kind}"{across}{title}{side}>{escape(cell.text)}</td>'


def _cells(each: StageComparison | None) -> tuple[_Cell, ...]:
    """Returns the cells of one stage of one candidate."""
    all_columns = len(METRICS)
    if each is None:
        return (_Cell("none", "not traced", across=all_columns),)
    if each.mismatch:
        return (_Cell("h6", "other shape", each.mismatch, all_columns),)
    if each.sequence:
        text = f"{each.sequence.errors} of {each.sequence.reference_length} differ" if each.differs else "equal"
        return (_Cell("h0" if not each.differs else "h4" if each.passes else "h5", text, across=all_columns),)
    if each.streams:
        text = f"{100 * each.streams.error_rate:.2g} % differ" if each.differs else "equal"
        return (_Cell("h0" if not each.differs else "h4" if each.passes else "h5", text, across=all_columns),)
    if each.logprobs:
        text = f"{each.logprobs.worst:.2g} nats" if each.differs else "0"
        return (_Cell("h0" if not each.differs else "h4" if each.passes else "h5", text, across=all_columns),)
    if each.numbers and each.numbers.nonfinite_differences:
        return (_Cell("h6", "not finite", across=all_columns),)
    return tuple(_measured(each, name) for name in METRICS)


def _predictions(each: StageComparison | None) -> tuple[_Cell, ...]:
    """Returns the cells of logits: divergence, share of rows with the same best candidate, overlap of the best."""
    if each is None or each.logits is None:
        return (_Cell("none", "", across=len(METRICS)),)
    found = each.logits
    beyond = {excess.measure for excess in each.beyond}
    divergence = _measured(each, "kl")
    kind = "h5" if "top1" in beyond else "h4" if found.flips else "h0"
    title = f"{found.flips} of {found.rows} rows prefer another candidate, limit {each.limits.top1:.4g}"
    overlap = f"share of the reference's best {found.top} that are among the candidate's"
    return (
        _Cell(divergence.kind, f"KL\n{divergence.text}", divergence.title),
        _Cell(kind, f"top-1\n{_share(found.top1_agreement)}", title),
        _Cell("none", f"top-{found.top}\n{_share(found.top_overlap)}", overlap),
    )


def _share(value: float) -> str:
    return f"{math.floor(1000 * value) / 10:.4g} %"  # rounded down, so that only a full share shows 100 %


def _measured(each: StageComparison, name: str) -> _Cell:
    value, limit = each.measured.get(name, math.nan), getattr(each.limits, name)
    times = value / limit if limit else 0.0 if value == 0 else math.inf
    kind = next((number for number, step in enumerate(_STEPS) if times <= step), _WORST)
    return _Cell(f"h{kind}", short(value), f"{value:.4g}, limit {limit:.2g}")
