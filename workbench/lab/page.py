"""A parity run as one HTML file that needs nothing else: no network, no script, no font of its own.

The JSON of the run is inside, in the element `data`, for programs. All that comes from users and from traces is
escaped, and the file's own policy forbids it to load or run anything.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from workbench import __version__
from workbench.errors import BadInput
from workbench.lab.look import STYLE
from workbench.lab.outcome import Computed, Outcome, ParityRun
from workbench.lab.pictures import noise_picture, stage_pictures, worth_a_look
from workbench.parity.compare import FirstToken
from workbench.parity.discrete import Edit, as_text, as_tokens
from workbench.parity.order import computation_order
from workbench.parity.report import rows
from workbench.parity.stage import StageComparison
from workbench.session import Trace

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
METRICS = {"relative_l2": "rel. L2", "peak": "peak", "cosine_distance": "cosine d."}  # of the heat map
_STATUS = {"within": "within tolerance", "beyond": "beyond tolerance", "unavailable": "not available"}
_STATUS |= {"unusable": "could not be compared"}
_TOKENS = 400  # of a sequence that are shown


def write_page(run: ParityRun, path: str | Path, looks: int = 4) -> Path:
    """Writes `page` to a file; raises `BadInput` where that cannot be done."""
    path = Path(path)
    if path.is_dir() or not path.parent.is_dir():
        raise BadInput(f"{path} is no place for a report; expected the name of a file in a folder that exists")
    try:
        path.write_text(page(run, looks), encoding="utf-8")
    except OSError as error:
        raise BadInput(f"the report cannot be written to {path}: {error.strerror or error}") from error
    return path


def page(run: ParityRun, looks: int = 4) -> str:
    """The whole document.

    Args:
        looks: how many stages of each candidate are shown as pictures.
    """
    title = f"Parity of {run.model}"
    data = json.dumps(run.to_dict(), ensure_ascii=True, allow_nan=False).replace("<", "\\u003c")
    parts = [
        "<!doctype html>",
        f'<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
        f'<p class="quiet">Input: {escape(run.source)}. Reference: {escape(run.reference.name)}. '
        f"Speech Workbench {escape(__version__)}.</p>",
        *(_verdict(each) for each in run.outcomes),
        f'<p class="quiet">Noise is not told from a bug: {escape(run.no_exact)}</p>' if run.no_exact else "",
        "<h2>Who computed what</h2>",
        *_sides(run),
        *_heat(run),
        *(part for each in run.outcomes if each.comparison for part in _candidate(run, each, looks)),
        f'<script type="application/json" id="data">{data}</script>',
        "</body></html>",
    ]
    return "\n".join(part for part in parts if part) + "\n"


def _verdict(outcome: Outcome) -> str:
    comparison, verdict = outcome.comparison, outcome.verdict
    lines = [*(comparison.warnings if comparison else ()), *(verdict.details if verdict else ())]
    if outcome.no_noise and outcome.computed:
        lines.append(f"noise is not told from a bug: {outcome.no_noise}")
    if comparison:
        lines.insert(0, f"tolerance {comparison.tolerances.preset.name}: {comparison.reason}")
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return (
        f'<section class="verdict {outcome.status}"><span class="is">{escape(outcome.name)}: '
        f"{_STATUS[outcome.status]}</span><p>{escape(outcome.sentence)}</p>{f'<ul>{items}</ul>' if items else ''}"
        "</section>"
    )


# Tables.


def _table(
    head: Sequence[str], lines: Iterable[Sequence[str]], over: Sequence[bool] = (), wide: Sequence[int] = ()
) -> str:
    """A table of texts, the first cell of each line its name."""
    top = "".join(f'<th scope="col"{_kind(n, wide)}>{escape(cell)}</th>' for n, cell in enumerate(head))
    body = []
    for number, line in enumerate(lines):
        cells = "".join(f"<td{_kind(n, wide)}>{escape(cell)}</td>" for n, cell in enumerate(line[1:], 1))
        mark = ' class="over"' if number < len(over) and over[number] else ""
        body.append(f'<tr{mark}><th scope="row">{escape(line[0])}</th>{cells}</tr>')
    return f"<table><thead><tr>{top}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def _kind(column: int, wide: Sequence[int]) -> str:
    return ' class="wide"' if column in wide else ' class="text"' if column == 0 else ""


def _sides(run: ParityRun) -> Iterator[str]:
    computed = [("reference", run.reference), *([("reference in float64", run.exact)] if run.exact else [])]
    computed += [("candidate", each.computed) for each in run.outcomes if each.computed]
    head = ("", "part", "runtime", "arithmetic", "input digest", "options", "load s", "trace s")
    yield f'<div class="scroll">{_table(head, [_side(part, each) for part, each in computed])}</div>'
    names: dict[str, list[str]] = {}
    for _, each in computed:
        names.setdefault(_pairs(each.trace.meta.get("versions")) or "not said", []).append(each.name)
    for versions, whose in names.items():
        of = "" if len(names) == 1 else f" of {', '.join(whose)}"
        yield f'<p class="quiet">Versions{escape(of)}: {escape(versions)}</p>'


def _side(part: str, each: Computed) -> tuple[str, ...]:
    meta = each.trace.meta
    arithmetic = meta.get("quantization") or meta.get("dtype") or "not said"
    seconds = [f"{value:.1f}" if value else "" for value in (each.load_seconds, each.trace_seconds)]
    digest = str(meta.get("input_digest") or "not said")
    runtime = str(meta.get("runtime", "not said"))
    return (each.name, part, runtime, str(arithmetic), f"{digest:.12}", _pairs(meta.get("options")), *seconds)


def _pairs(values: Any) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items()) if isinstance(values, Mapping) else ""


# The heat map.


def _heat(run: ParityRun) -> Iterator[str]:
    compared = [each for each in run.outcomes if each.comparison]
    if not compared:
        return
    found = [{each.stage: each for each in outcome.comparison.stages} for outcome in compared if outcome.comparison]
    order = computation_order(list(run.reference.trace), recorded=bool(run.reference.trace.meta))
    yield "<h2>Error of every stage</h2>"
    yield '<p class="quiet">Coloured by how many times its limit a value is.</p><p class="key">'
    for kind, meaning in enumerate(("0", "to 1/1000", "to 1/100", "to 1/10", "to 1", "to 10", "more")):
        yield f'<span class="h{kind}">{meaning}</span>'
    top = "".join(f'<th scope="colgroup" colspan="{len(METRICS)}">{escape(each.name)}</th>' for each in compared)
    names = "".join(f'<th scope="col">{name}</th>' for name in METRICS.values()) * len(compared)
    yield '</p><div class="scroll tall"><table class="heat"><thead>'
    yield f'<tr><th scope="row" rowspan="2">stage</th>{top}</tr><tr>{names}</tr></thead><tbody>'
    for stage in order:
        cells = [_cells(held.get(stage)) for held in found]
        if any(stage in held for held in found):
            name = escape(stage).replace(".", ".<wbr>")
            yield f'<tr><th scope="row">{name}</th>{"".join(cells)}</tr>'
    yield "</tbody></table></div>"


def _cells(each: StageComparison | None) -> str:
    """The cells of one stage of one candidate."""
    across = f'colspan="{len(METRICS)}"'
    if each is None:
        return f'<td {across} class="none">not traced</td>'
    if each.mismatch:
        return f'<td {across} class="h6" title="{escape(each.mismatch)}">other shape</td>'
    if each.sequence:
        said = f"{each.sequence.errors} of {each.sequence.reference_length} differ" if each.differs else "equal"
        return f'<td {across} class="{"h0" if not each.differs else "h4" if each.passes else "h5"}">{said}</td>'
    if each.numbers and each.numbers.nonfinite_differences:
        return f'<td {across} class="h6">not finite</td>'
    measured = each.measured
    return "".join(_cell(measured.get(name, math.nan), getattr(each.limits, name)) for name in METRICS)


def _cell(value: float, limit: float) -> str:
    times = value / limit if limit else 0.0 if value == 0 else math.inf
    steps = (0.0, 1e-3, 1e-2, 0.1, 1.0, 10.0)
    kind = next((number for number, step in enumerate(steps) if times <= step), len(steps))
    return f'<td class="h{kind}" title="{value:.4g}, limit {limit:.2g}">{_short(value)}</td>'


def _short(value: float) -> str:
    if value == 0 or 0.01 <= abs(value) < 1000:
        return f"{value:.2g}"
    return f"{value:.1e}".replace("e-0", "e-").replace("e+0", "e")


# One candidate.


def _candidate(run: ParityRun, outcome: Outcome, looks: int) -> Iterator[str]:
    comparison, computed, verdict, noise = outcome.comparison, outcome.computed, outcome.verdict, outcome.noise
    assert comparison and computed and verdict
    yield f"<h2>{escape(outcome.name)} against {escape(run.reference.name)}</h2>"
    yield from _written(run.reference.trace, computed.trace, outcome)
    for each in worth_a_look(comparison, verdict.largest_own, looks):
        yield f"<h3>{escape(each.stage)}</h3>"
        yield f'<p class="quiet">{escape(_about(each, verdict.first_divergent, verdict.largest_own))}</p>'
        yield '<div class="pictures">'
        yield from stage_pictures(each, run.reference.trace, computed.trace)
        yield "</div>"
    if noise:
        yield f"<h3>Noise or bug?</h3><p>{escape(noise.sentence[:1].upper() + noise.sentence[1:])}.</p>"
        yield noise_picture(noise)
        yield "<details><summary>All distances from float64</summary>"
        far = [
            (each.stage, *map(_short, (each.reference, each.candidate, each.bound)), "bug" if each.is_bug else "noise")
            for each in noise.stages
        ]
        over = [each.is_bug for each in noise.stages]
        head = ("stage", "reference", "candidate", "bug above", "")
        yield f'<div class="scroll tall">{_table(head, far, over)}</div></details>'
    names, *lines = [row[1:] for row in rows(comparison)]
    over = [not comparison.passes(each) for each in comparison.stages]
    yield f"<details><summary>All {len(lines)} stages</summary>"
    yield f'<div class="scroll tall">{_table(names, lines, over, wide=(len(names) - 1,))}</div></details>'


def _about(each: StageComparison, first: str | None, largest: str | None) -> str:
    parts = ["the first divergent stage"] if each.stage == first else []
    if each.stage == largest:
        parts.append("where the error grows most")
    if each.numbers:
        found = each.numbers
        parts.append(f"relative L2 {found.relative_l2:.2g}, limit {each.limits.relative_l2:.2g}")
        if found.worst:
            worst = found.worst
            parts.append(f"worst at {list(worst.index)}: {worst.reference:.6g} and {worst.candidate:.6g}")
        if found.reference_nonfinite or found.candidate_nonfinite:
            parts.append(f"not finite: {found.reference_nonfinite} and {found.candidate_nonfinite} values")
    said = "; ".join([*parts, *(each.hint or each.mismatch or "").splitlines()])
    return said[:1].upper() + said[1:] + "."


def _written(reference: Trace, candidate: Trace, outcome: Outcome) -> Iterator[str]:
    """Texts and tokens of both, and where they differ."""
    comparison = outcome.comparison
    assert comparison
    for each in comparison.stages:
        if not each.sequence or (each.stage.startswith("prompt.") and not each.differs):
            continue
        sides = [_shown(each, trace) for trace in (reference, candidate)]
        if each.kind == "tokens" and not each.differs:
            continue
        yield f"<h3>{escape(each.stage)}</h3>"
        if not each.differs:
            yield f"<p>The same on both sides:</p><pre>{escape(sides[0])}</pre>"
            continue
        for whose, said in zip(("Reference", "Candidate"), sides):
            yield f'<p class="quiet">{whose}</p><pre>{escape(said)}</pre>'
        yield _edits(each.sequence.edits)
        if each.stage == "tokens" and comparison.first_token:
            yield _first_token(comparison.first_token)


def _shown(each: StageComparison, trace: Trace) -> str:
    array = np.asarray(trace[each.stage])
    if each.kind == "text":
        return as_text(each.stage, array)
    ids = as_tokens(each.stage, array)
    return " ".join(map(str, ids[:_TOKENS].tolist())) + (" …" if len(ids) > _TOKENS else "")


def _edits(edits: Sequence[Edit]) -> str:
    lines = [(each.kind, each.reference, each.candidate) for each in edits if each.kind != "equal"]
    return f'<div class="scroll">{_table(("edit", "reference", "candidate"), lines, wide=(1, 2))}</div>'


def _first_token(first: FirstToken) -> str:
    ids = ["the end" if each is None else str(each) for each in (first.reference, first.candidate)]
    said = f"The first token that differs is at place {first.place}: {ids[0]} and {ids[1]}"
    if first.choice is None:
        return f"<p>{said}; the traces do not hold the logits that decided on it.</p>"
    choice = first.choice
    tie = "a near tie" if first.near_tie else "no near tie"
    return (
        f"<p>{said}, {tie}. Row {choice.row} of the logits decided: the reference prefers its token by "
        f"{choice.reference_margin:.3g}, the candidate its own by {choice.candidate_margin:.3g}; the row's logits have "
        f"a deviation of {choice.spread:.3g}.</p>"
    )
