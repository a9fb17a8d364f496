"""A parity run as one HTML file (`document`). All text from users and traces is escaped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from workbench import __version__
from workbench.compare.noise.report import NoiseReport
from workbench.compare.report import rows
from workbench.core.phrases import as_sentence
from workbench.parity_lab.outcome import STATUS, Computed, Outcome, ParityRun
from workbench.parity_lab.report.document import document, write_document
from workbench.parity_lab.report.figures import noise_picture, stages_to_show
from workbench.parity_lab.report.heat_map import heat_map
from workbench.parity_lab.report.stage_detail import sequence_html, stage_details
from workbench.parity_lab.report.tables import pairs, short_number, table


def write_page(run: ParityRun, path: str | Path, figures: int = 4) -> Path:
    """Writes `page` to a file; raises `BadInput` if the file cannot be written."""
    return write_document(path, lambda: page(run, figures))


def page(run: ParityRun, figures: int = 4) -> str:
    """Returns the whole document.

    Args:
        figures: the number of stages of each candidate that are shown as figures.
    """
    parts = [
        f'<p class="faint">Input: {escape(run.source.removesuffix("."))}. Reference: {escape(run.reference.name)}. '
        f"Speech Workbench {escape(__version__)}.</p>",
        f'<p class="faint">{escape(run.mode)}</p>',
        *(verdict(each) for each in run.outcomes),
        f'<p class="faint">Noise and bugs are not distinguished: {escape(run.no_exact)}</p>' if run.no_exact else "",
        "<h2>How each side was computed</h2>",
        *sides(run),
        *_heat(run),
        *(part for each in run.outcomes if each.comparison for part in _candidate(run, each, figures)),
    ]
    return document(f"Parity of {run.model}", parts, run.to_dict())


def verdict(outcome: Outcome) -> str:
    """Returns a candidate's verdict as HTML: its status in a word, its sentences, and further details."""
    comparison, outcome_verdict = outcome.comparison, outcome.verdict
    lines = [f"{comparison.about_tolerance}."] if comparison else []
    lines += comparison.warnings if comparison else ()
    # Details that the sentence already states are not repeated.
    lines += outcome_verdict.further_details if outcome_verdict else []
    if outcome.no_noise and outcome.computed:
        lines.append(f"noise and bugs are not distinguished: {outcome.no_noise}")
    if outcome.precision:
        lines.append(outcome.precision)
    if outcome.no_peer:
        lines.append(f"not compared with this model in the same precision: {outcome.no_peer}")
    first_sentence, *other_sentences = outcome.sentences
    mark, status = STATUS[outcome.status]
    return (
        f'<section class="verdict {outcome.status}"><p class="is"><b>{escape(outcome.name)}</b> '
        f'<span><span aria-hidden="true">{mark}</span> {status}</span></p><p>{escape(first_sentence)}</p>'
        f"{_items(other_sentences, 'found')}{_items(lines, 'notes')}</section>"
    )


def _items(lines: Sequence[str], kind: str) -> str:
    return f'<ul class="{kind}">{"".join(f"<li>{escape(line)}</li>" for line in lines)}</ul>' if lines else ""


def sides(run: ParityRun) -> Iterator[str]:
    """Yields a table of reference, float64 and candidates, and the versions of their packages."""
    computed = [("reference", run.reference), *([("reference in float64", run.exact)] if run.exact else [])]
    computed += [("the same precision", each) for each in run.peers]
    computed += [("candidate", each.computed) for each in run.outcomes if each.computed]
    head = ("", "part", "runtime", "arithmetic", "input digest", "options", "load s", "trace s")
    yield f'<div class="scroll">{table(head, [_side(part, each) for part, each in computed])}</div>'
    names: dict[str, list[str]] = {}
    for _, each in computed:
        names.setdefault(pairs(each.trace.meta.get("versions")) or "not said", []).append(each.name)
    for versions, side_names in names.items():
        sides_clause = "" if len(names) == 1 else f" of {', '.join(side_names)}"
        yield f'<p class="faint">Versions{escape(sides_clause)}: {escape(versions)}</p>'


def _side(part: str, each: Computed) -> tuple[str, ...]:
    meta = each.trace.meta
    arithmetic = meta.get("quantization") or meta.get("dtype") or "not said"
    seconds = [f"{value:.1f}" if value else "" for value in (each.load_seconds, each.trace_seconds)]
    digest = str(meta.get("input_digest") or "not said")
    runtime = str(meta.get("runtime", "not said"))
    return (each.name, part, runtime, str(arithmetic), f"{digest:.12}", pairs(meta.get("options")), *seconds)


def _heat(run: ParityRun) -> Iterator[str]:
    if any(each.comparison for each in run.outcomes):
        yield "<h2>Error of every stage</h2>"
        yield from heat_map(run)


def _candidate(run: ParityRun, outcome: Outcome, figures: int) -> Iterator[str]:
    comparison, computed, verdict, noise = outcome.comparison, outcome.computed, outcome.verdict, outcome.noise
    assert comparison and computed and verdict
    yield f"<h2>{escape(outcome.name)} against {escape(run.reference.name)}</h2>"
    for each in comparison.stages:
        if each.kind == "text" or (each.sequence and each.differs):
            if each.stage.startswith("prompt.") and not each.differs:
                continue
            yield f"<h3>{escape(each.stage)}</h3>"
            reference_trace = (outcome.compared_reference or run.reference).trace
            yield from sequence_html(each, reference_trace, computed.trace, comparison.first_token)
    for each in stages_to_show(comparison, verdict.largest_own, figures, verdict.faulty_stage):
        yield f"<h3>{escape(each.stage)}</h3>"
        yield from stage_details(run, outcome, each.stage)
    if noise:
        yield from noise_details(noise)
    names, *lines = [row[1:] for row in rows(comparison)]
    marks = [not comparison.passes(each) for each in comparison.stages]
    yield f"<details><summary>All {len(lines)} stages</summary>"
    yield f'<div class="scroll tall">{table(names, lines, marks, wide_columns=(len(names) - 1,))}</div></details>'


def noise_details(noise: NoiseReport) -> Iterator[str]:
    """Yields the answer to noise or bug, a figure of the distances from float64, and their table."""
    yield f"<h3>Noise or bug?</h3><p>{escape(as_sentence(noise.sentence))}</p>"
    yield noise_picture(noise)
    yield "<details><summary>All distances from float64</summary>"
    rows = [
        (
            each.stage,
            short_number(reference),
            short_number(candidate),
            short_number(bound),
            f"bug{place}" if each.is_bug else "noise",
        )
        for each in noise.stages
        for candidate, reference, bound, place in (each.deciding,)
    ]
    marks = [each.is_bug for each in noise.stages]
    head = ("stage", noise.beside.removeprefix("the "), "candidate", "bug above", "")
    yield f'<div class="scroll tall">{table(head, rows, marks)}</div></details>'
