"""One stage of one candidate in detail, as HTML: figures, all measures, and the differences of texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

import numpy as np

from workbench.compare.comparison import FirstToken
from workbench.compare.noise.report import AT_MOST_SUFFIX, NoiseReport, side_of
from workbench.compare.stage import StageComparison
from workbench.compare.tokens.discrete import Edit, as_text, as_tokens
from workbench.compare.verdict import MEASURE_NAMES, margins_of
from workbench.core.phrases import as_sentence
from workbench.parity_lab.outcome import Outcome, ParityRun
from workbench.parity_lab.report.figures import stage_pictures
from workbench.parity_lab.report.tables import short_number, table
from workbench.trace.trace import Trace

_MAX_TOKENS = 400  # most tokens of a sequence that are shown
_MAX_ROWS, _ROWS_BEFORE = 12, 3  # rows of streams that are shown, and of those the rows before the first difference


def stage_html(run: ParityRun, place: int, stage: str) -> str:
    """Returns all details of a stage of the candidate with that index. Raises `KeyError` as `stage_details` does."""
    return "".join(stage_details(run, run.outcomes[place], stage))


def stage_details(run: ParityRun, outcome: Outcome, stage: str) -> Iterator[str]:
    """Yields all details of a stage of a compared candidate. Raises `KeyError` for a stage that was not compared."""
    comparison, computed, verdict = outcome.comparison, outcome.computed, outcome.verdict
    assert comparison and computed and verdict
    each, reference = comparison[stage], (outcome.compared_reference or run.reference).trace
    yield f'<p class="faint">{escape(remarks(each, verdict.first_divergent, verdict.largest_own))}</p>'
    if each.sequence:
        yield from sequence_html(each, reference, computed.trace, comparison.first_token)
    elif each.streams:
        yield from streams_html(each, reference, computed.trace)
    elif not each.logprobs:
        yield '<div class="pictures">'
        yield from stage_pictures(each, reference, computed.trace)
        yield "</div>"
    yield '<div class="statistics">'
    yield from _statistics(each, comparison.passes(each), outcome.noise)
    yield "</div>"


def remarks(each: StageComparison, first: str | None, largest: str | None) -> str:
    """Returns a sentence about the remarkable values of a stage.

    Args:
        first: the first divergent stage.
        largest: the stage of the largest own contribution.
    """
    parts = ["the first divergent stage"] if each.stage == first else []
    if each.stage == largest:
        parts.append("the largest own error" if each.before is None else "where the error grows most")
    if each.numbers:
        numbers = each.numbers
        parts.append(f"relative L2 {numbers.relative_l2:.2g}, limit {each.limits.relative_l2:.2g}")
        if numbers.worst:
            worst = numbers.worst
            parts.append(f"worst at {list(worst.index)}: {worst.reference:.6g} and {worst.candidate:.6g}")
        if numbers.reference_nonfinite or numbers.candidate_nonfinite:
            parts.append(f"values that are not finite: {numbers.reference_nonfinite} and {numbers.candidate_nonfinite}")
    if logprobs := each.logprobs:
        parts.append(f"{logprobs.steps} steps after the same tokens, at most {short_number(logprobs.worst)} nats apart")
    if ids := each.streams:
        lengths = f"{ids.reference_rows} and {ids.candidate_rows} rows of {ids.streams} streams"
        difference = f"{ids.errors} ids differ, first in row {ids.row}, stream {ids.stream}"
        parts.append(f"{difference}; {lengths}" if ids.errors else f"equal, {lengths}")
    if each.sequence:
        sequence = each.sequence
        lengths = f"{sequence.reference_length} and {sequence.candidate_length}"
        unit = "tokens" if each.kind == "tokens" else "units"
        parts.append(f"{sequence.errors} edits, {lengths} {unit}" if each.differs else f"equal, {lengths} {unit}")
    sentence = "; ".join([*parts, *(each.hint or each.mismatch or "").splitlines()])
    return as_sentence(sentence)


# Statistics.


def _statistics(each: StageComparison, passes: bool, noise: NoiseReport | None) -> Iterator[str]:
    lines, marks = [], []
    measures_beyond = {excess.measure for excess in each.beyond}
    passing_limits = each.passing_limits
    for name, value in each.measured.items():
        limit, passing_limit = getattr(each.limits, name), passing_limits.get(name)
        lines.append(
            (
                MEASURE_NAMES[name],
                short_number(value),
                short_number(limit),
                "–" if passing_limit is None else f"{passing_limit:g}",
            )
        )
        marks.append(name in measures_beyond)
    if lines:
        yield f'<div class="scroll">{table(("measure", "found", "limit", "passes at"), lines, marks)}</div>'
    facts = [*_facts(each, passes), *_distances(each.stage, noise)]
    yield f'<div class="scroll">{table((), facts, wide_columns=(1,))}</div>'


def _facts(each: StageComparison, passes: bool) -> Iterator[tuple[str, str]]:
    yield "verdict", "within tolerance" if passes else "beyond tolerance"
    yield "strictest preset that passes", each.passing_preset or "none"
    shapes = [" × ".join(map(str, shape)) or "one value" for shape in each.shapes]
    yield "shape", shapes[0] if shapes[0] == shapes[1] else f"{shapes[0]} and {shapes[1]}"
    yield "type", each.dtypes[0] if each.dtypes[0] == each.dtypes[1] else f"{each.dtypes[0]} and {each.dtypes[1]}"
    if numbers := each.numbers:
        if numbers.worst:
            worst = numbers.worst
            yield "worst element", f"{list(worst.index)}: {worst.reference:.7g} and {worst.candidate:.7g}"
        yield "largest, mean |difference|", f"{short_number(numbers.max_abs)}, {short_number(numbers.mean_abs)}"
        yield "root mean square of the reference", short_number(numbers.reference_rms)
        yield "signal to noise", "no noise" if numbers.snr_db == np.inf else f"{numbers.snr_db:.1f} dB"
        residual = f"leaves {short_number(numbers.factor_residual)}"
        yield "nearest multiple of the reference", f"{numbers.factor:.7g}, {residual}"
        if each.own is not None and each.before is not None:
            times = "" if each.growth is None else f", × {each.growth:.3g}"
            yield "added to the stage before", f"{short_number(each.own)} to {short_number(each.before)}{times}"
        yield "infinite or not a number", f"{numbers.reference_nonfinite} and {numbers.candidate_nonfinite}"
    if logits := each.logits:
        yield "largest KL divergence", f"{short_number(logits.kl_max)}, row {logits.kl_worst_row}"
        yield "rows with another favourite", f"{logits.flips} of {logits.rows}"
        yield f"overlap of the best {logits.top}", f"{100 * logits.top_overlap:.4g} %"
    if (sequence := each.sequence) and each.kind == "text":
        rates = [f"{name} {100 * rate:.1f} %" for name, rate in (("WER", sequence.wer), ("CER", sequence.cer)) if rate]
        yield "error rates", ", ".join(rates) or "0 %"


def _distances(stage: str, noise: NoiseReport | None) -> Iterator[tuple[str, str]]:
    for each in noise.stages if noise else ():
        if each.stage == stage:
            candidate, reference, bound, place = each.deciding
            at_most = "at most " if each.beside.endswith(AT_MOST_SUFFIX) else ""
            yield f"distance of {side_of(each.beside)} from float64{place}", f"{at_most}{short_number(reference)}"
            conclusion = "a bug, because it is above" if each.is_bug else "noise, because it is at most"
            yield (
                f"distance of the candidate from float64{place}",
                f"{short_number(candidate)}: {conclusion} {short_number(bound)}",
            )


# Texts and tokens.


def sequence_html(
    each: StageComparison, reference: Trace, candidate: Trace, first_token: FirstToken | None
) -> Iterator[str]:
    """Yields a stage of tokens or text: what each side wrote, and where they differ."""
    sides = [_text_of(each, trace) for trace in (reference, candidate)]
    if not each.differs or each.sequence is None:
        yield f"<p>The same on both sides:</p><pre>{escape(sides[0])}</pre>"
        return
    for side, text in zip(("Reference", "Candidate"), sides):
        yield f'<p class="faint">{side}</p><pre>{escape(text)}</pre>'
    yield _edits(each.sequence.edits)
    if each.stage == "tokens" and first_token:
        yield _first_token(first_token)


def streams_html(each: StageComparison, reference: Trace, candidate: Trace) -> Iterator[str]:
    """Yields the rows around the first id that differs, as a table with a column for each stream."""
    measures = each.streams
    assert measures
    first_row = 0 if measures.row is None else max(measures.row - _ROWS_BEFORE, 0)
    sides = [np.asarray(trace[each.stage]) for trace in (reference, candidate)]
    lines, marks = [], []
    for row in range(first_row, min(first_row + _MAX_ROWS, max(map(len, sides)))):
        ids = [side[row].tolist() if row < len(side) else ["the end"] * measures.streams for side in sides]
        cells = [
            str(reference_id) if reference_id == candidate_id else f"{reference_id} → {candidate_id}"
            for reference_id, candidate_id in zip(*ids)
        ]
        lines.append((str(row), *cells))
        marks.append(ids[0] != ids[1])
    head = ("row", *(f"stream {number}" for number in range(measures.streams)))
    caption = (
        "The same on both sides"
        if not measures.errors
        else "Where two ids stand, they are the reference's → candidate's"
    )
    yield f'<p class="faint">{caption}.</p><div class="scroll">{table(head, lines, marks)}</div>'


def _text_of(each: StageComparison, trace: Trace) -> str:
    array = np.asarray(trace[each.stage])
    if each.kind == "text":
        return as_text(each.stage, array)
    ids = as_tokens(each.stage, array)
    return " ".join(map(str, ids[:_MAX_TOKENS].tolist())) + (" …" if len(ids) > _MAX_TOKENS else "")


def _edits(edits: Sequence[Edit]) -> str:
    lines = [(each.kind, each.reference, each.candidate) for each in edits if each.kind != "equal"]
    return f'<div class="scroll">{table(("edit", "reference", "candidate"), lines, wide_columns=(1, 2))}</div>'


def _first_token(first: FirstToken) -> str:
    ids = ["the end" if each is None else str(each) for each in (first.reference, first.candidate)]
    sentence = f"The first token that differs is at place {first.place}: {ids[0]} and {ids[1]}"
    if first.choice is None:
        return f"<p>{sentence}; the traces hold neither the logits nor the likeliest tokens that decided it.</p>"
    choice = first.choice
    tie = "a near tie" if first.near_tie else "no near tie"
    where = (
        "The likeliest tokens of that step show" if choice.row is None else f"Row {choice.row} of the logits decided"
    )
    return (
        f"<p>{sentence}, {tie}. {where}: reference and candidate prefer their own tokens by {margins_of(choice, 3)}; "
        f"the logits have a deviation of {choice.spread:.3g}.</p>"
    )
