"""Compares two traces stage by stage in the order of the computation.

This file reads one stage of each trace at a time. If the traces are read from files on access (see
`workbench.trace.read`), a comparison needs the memory of one stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from workbench.compare.comparison import REQUESTED, Comparison
from workbench.compare.explain import with_hints
from workbench.compare.presets import Tolerances, check_rules, preset_of
from workbench.compare.selection import Selection, select
from workbench.compare.stage import StageComparison, compare_logprobs, compare_stage, logprobs_compared
from workbench.compare.tokens.answers import (
    FOLLOWING,
    ROWS,
    SETTINGS,
    TEMPERATURES,
    Answers,
    FirstId,
    answers_of,
    first_id,
    guidance_of,
    layout_of,
)
from workbench.compare.tokens.answers import LOGPROBS as CHOICES
from workbench.compare.tokens.beams import with_beams
from workbench.compare.tokens.choices import (
    explain_choices,
    explain_temperatures,
    measure_choices,
)
from workbench.compare.tokens.first_token import first_token, near_tie_noise
from workbench.compare.tokens.logprobs import STAGE as LOGPROBS
from workbench.trace.order import computation_order
from workbench.trace.trace import Trace

_FLOOR = 0.1  # share of a stage's limit, but at least one rounding; smaller errors do not count


def compare(
    reference: Trace,
    candidate: Trace,
    tolerances: Tolerances | None = None,
    stages: str = "*",
    force: bool = False,
    on_stage: Callable[[int, int, str], None] | None = None,
    reason: str = REQUESTED,
) -> Comparison:
    """Compares the stages that both traces have and that the glob matches.

    Args:
        tolerances: the limits; by default the preset of the coarsest arithmetic that the traces' metadata name.
        stages: a glob such as `encoder.*`, several separated by commas.
        force: also compare traces of different inputs, or of models with different numbers of layers; the result then
            holds a warning.
        on_stage: called before each stage with the number of finished stages, the number of all, and the name.
        reason: why these tolerances were chosen.

    Raises `BadInput` if no stage is left to compare, if a part of the glob matches no common stage, if a rule of the
    tolerances fits no stage of the reference, or, without `force`, if the inputs or the numbers of layers differ.
    """
    selection = select(reference, candidate, stages, force)
    reference, candidate = selection.reference, selection.candidate
    if tolerances is None:
        preset, reason = preset_of(reference.meta, candidate.meta)
        tolerances = Tolerances(preset)
    check_rules(tolerances.rules, [*selection.stages, *selection.only_reference])
    answers = None if selection.inputs else answers_of(reference, candidate)
    results = _measured(selection, tolerances, answers, on_stage)
    difference = first_id(reference, candidate, answers, tolerances) if answers else None
    if difference:
        results = _tokens_first(results, difference)
    comparison = Comparison(
        stages=tuple(_with_own_errors(results) if selection.inputs else _with_growth(results, tolerances)),
        tolerances=tolerances,
        reason=reason,
        reference=dict(reference.meta),
        candidate=dict(candidate.meta),
        only_reference=tuple(selection.only_reference),
        only_candidate=tuple(selection.only_candidate),
        first_token=first_token(reference, candidate, results, tolerances, difference),
        warnings=tuple(selection.warnings),
        inputs=selection.inputs,
        first_id=difference,
    )
    return with_hints(comparison, None, reference, candidate)


def _measured(
    selection: Selection,
    tolerances: Tolerances,
    answers: Answers | None,
    on_stage: Callable[[int, int, str], None] | None,
) -> list[StageComparison]:
    """Returns the measures of each stage, in the order of the computation."""
    reference, candidate = selection.reference, selection.candidate
    order = computation_order(selection.stages, recorded=reference.is_ordered)
    results = list[StageComparison]()
    is_guessing = True
    for number, stage in enumerate(order):
        if on_stage:
            on_stage(number, len(order), stage)
        if stage == LOGPROBS:
            results.append(compare_logprobs(reference, candidate, tolerances.for_stage(stage)))
            continue
        if stage == CHOICES or (answers and answers.comparable(stage) is not None):
            results.append(_compared_choice(reference, candidate, stage, answers, tolerances, results, is_guessing))
            continue
        layout = layout_of(reference.meta) if stage == ROWS else None
        limits = tolerances.for_stage(stage)
        compared_stage = compare_stage(stage, reference[stage], candidate[stage], limits, is_guessing, layout)
        results.append(with_beams(compared_stage, reference, candidate, near_tie_noise(tolerances)))
        # Later errors have the same cause.
        is_guessing = is_guessing and (results[-1].passes or results[-1].sequence is not None)
    return results


def _compared_choice(
    reference: Trace,
    candidate: Trace,
    stage: str,
    answers: Answers | None,
    tolerances: Tolerances,
    earlier_stages: list[StageComparison],
    guess: bool,
) -> StageComparison:
    """Compares a stage `answer.*` at the positions that follow the same ids; without answers, at all positions."""
    limits = tolerances.for_stage(stage)
    arrays = reference[stage], candidate[stage]
    count = answers.comparable(stage) if answers else None
    positions = min(map(len, arrays)) if count is None else min(count, *map(len, arrays))
    if stage != CHOICES:
        each = compare_stage(
            stage, arrays[0][:positions], arrays[1][:positions], limits, guess and stage not in SETTINGS
        )
        if stage == TEMPERATURES and answers and not each.passes and not each.mismatch:
            each = replace(each, hint=explain_temperatures(reference, candidate, positions, answers))
        return each
    limits = replace(limits, logprob=limits.logprob * guidance_of(reference.meta))
    measured = measure_choices(reference, candidate, positions, limits.logprob)
    passing = [each.stage for each in earlier_stages if each.passes]
    hint = None
    if answers and guess:
        hint = explain_choices(reference, candidate, measured, answers, "answer.norm" in passing)
    return logprobs_compared(stage, reference, candidate, limits, measured, hint)


def _tokens_first(results: list[StageComparison], difference: FirstId) -> list[StageComparison]:
    """Returns the stages with the tokens before the rows of audio, if the answers part before the audio."""
    rows = next((n for n, each in enumerate(results) if each.stage == ROWS), None)
    tokens = next((n for n, each in enumerate(results) if each.stage == "tokens"), None)
    if difference.row is not None or rows is None or tokens is None or tokens < rows:
        return results
    return [
        *results[:rows],
        results[tokens],
        *results[rows:tokens],
        *results[tokens + 1 :],
    ]


def _with_own_errors(results: list[StageComparison]) -> Iterable[StageComparison]:
    """Yields each stage of numbers with its whole error as its own and no growth, for isolated traces."""
    for each in results:
        measured = each.numbers if each.numbers and not each.numbers.nonfinite_differences else None
        yield replace(each, own=measured.relative_l2) if measured and not each.sequence else each


def _with_growth(results: list[StageComparison], tolerances: Tolerances) -> Iterable[StageComparison]:
    """Yields each stage of numbers with what it added to the error of the previous stage of numbers.

    The first stage's error is all its own. A stage that follows one without measures has no growth, because there is
    nothing to compare it with. The search for the largest growth raises errors to the floor first, so that the step
    from zero to rounding is none.
    """
    previous_error: float | None = 0.0
    is_first = True
    other_ids = False  # values that are computed from other ids are not an arithmetic error
    floor = max(_FLOOR * tolerances.preset.limits.relative_l2, tolerances.preset.roundoff)
    for each in results:
        if each.sequence or each.streams or each.logprobs or each.stage in SETTINGS:
            other_ids = other_ids or (each.streams is not None and each.differs)
            yield each
            continue
        if other_ids and each.stage in FOLLOWING:
            yield each
            continue
        if each.numbers is None or each.numbers.nonfinite_differences:
            previous_error, is_first = None, False
            yield each
            continue
        error = each.numbers.relative_l2
        if previous_error is not None:
            own = max(error**2 - previous_error**2, 0.0) ** 0.5
            jump = max(error, floor) / max(previous_error, floor)
            each = replace(each, own=own, before=None if is_first else previous_error, jump=jump)
        is_first = False
        previous_error = error
        yield each
