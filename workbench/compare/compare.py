"""Compares two traces stage by stage in the order of the computation.

This file reads one stage of each trace at a time. If the traces are read from files on access (see
`workbench.trace.read`), a comparison needs the memory of one stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from workbench.compare.answers import (
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
from workbench.compare.answers import LOGPROBS as CHOICES
from workbench.compare.beams import with_beams
from workbench.compare.choices import (
    explain_choices,
    explain_temperatures,
    measure_choices,
    setting_changes,
    tells_choices,
)
from workbench.compare.comparison import AS_ASKED, Comparison
from workbench.compare.explain import with_hints
from workbench.compare.first_token import first_token, near_tie_noise
from workbench.compare.inputs import whose_inputs
from workbench.compare.logprobs import IDS, reported_tokens
from workbench.compare.logprobs import STAGE as LOGPROBS
from workbench.compare.presets import Tolerances, check_rules, preset_of
from workbench.compare.stage import StageComparison, compare_logprobs, compare_stage, logprobs_compared
from workbench.compare.steps import alike_steps
from workbench.core.errors import BadInput
from workbench.trace.cuts import cut_like, cuts_of
from workbench.trace.order import computation_order, is_aside, layer_counts
from workbench.trace.trace import StageFilter, Trace

_WRITTEN = ("tokens", "tokens.logprobs", "text", ROWS)  # results of the whole model, not of one stage
_FLOOR = 0.1  # share of a stage's limit, but at least one rounding; smaller errors do not count


def compare(
    reference: Trace,
    candidate: Trace,
    tolerances: Tolerances | None = None,
    stages: str = "*",
    force: bool = False,
    on_stage: Callable[[int, int, str], None] | None = None,
    reason: str = AS_ASKED,
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
    wanted = StageFilter(stages, held=True)
    warnings = _same_input(reference, candidate, force)
    inputs = whose_inputs(reference, candidate)
    reference, candidate, apart = alike_steps(reference, candidate)
    warnings += [apart] if apart else []
    reference, cuts = cut_like(reference, candidate), cuts_of(candidate)
    if reference.meta.get("isolated") and inputs is None:
        warnings.append("the reference was computed from the stages of another trace, which is not the candidate")
    warnings += _same_layers(list(filter(wanted, reference)), list(filter(wanted, candidate)), force)
    held = set(candidate)
    compared = [stage for stage in reference if wanted(stage) and not is_aside(stage)]
    both = [stage for stage in compared if stage in held]
    silent = [
        whose for whose, trace in (("reference", reference), ("candidate", candidate)) if reported_tokens(trace) is None
    ]
    if LOGPROBS in both and silent:
        warnings.append(f"not compared, since the {silent[0]} does not name the tokens ({IDS}): {LOGPROBS}")
        held.discard(LOGPROBS)
        compared.remove(LOGPROBS)
        both.remove(LOGPROBS)
    if CHOICES in both and not all(map(tells_choices, (reference, candidate))):
        warnings.append(f"not compared, since a trace does not name the ids (answer.alternatives): {CHOICES}")
        held.discard(CHOICES)
        compared.remove(CHOICES)
        both.remove(CHOICES)
    if not both:
        raise BadInput(_nothing_common(reference, candidate, stages))
    for pattern in wanted.patterns:
        if not any(map(StageFilter(pattern, held=True), both)):
            raise BadInput(f"no stage that both traces have matches {pattern}; they share {_names(both)}")
    if tolerances is None:
        preset, reason = preset_of(reference.meta, candidate.meta)
        tolerances = Tolerances(preset)
    check_rules(tolerances.rules, compared)
    shared = set(both)
    lacking = [stage for stage in compared if stage not in shared]
    surplus = [
        stage for stage in candidate if stage in held and wanted(stage) and stage not in shared and not is_aside(stage)
    ]
    written = [stage for stage in lacking if stage in _WRITTEN or stage.startswith("answer.")] if inputs else []
    if written:
        warnings.append(f"not compared, since the whole model writes them, not one stage: {_names(written)}")
    others = [stage for stage in lacking if stage not in written]
    for missing, whose in ((others, "candidate"), (surplus, "reference")):
        if missing:
            warnings.append(f"not compared, since the {whose} does not have them: {_names(missing)}")
    if changes := setting_changes(reference.meta, candidate.meta):
        warnings.append(f"the answers were made with different settings: {changes}")
    if parts := [f"{stage} ({cuts[stage]})" for stage in both if stage in cuts]:
        warnings.append(f"compared with a part of the reference, as the candidate has no more: {', '.join(parts)}")
    answers = None if inputs else answers_of(reference, candidate)
    order = computation_order(both, recorded=bool(reference.meta))
    found = list[StageComparison]()
    guess = True
    for number, stage in enumerate(order):
        if on_stage:
            on_stage(number, len(order), stage)
        if stage == LOGPROBS:
            found.append(compare_logprobs(reference, candidate, tolerances.of(stage)))
            continue
        if stage == CHOICES or (answers and answers.comparable(stage) is not None):
            found.append(_compared_choice(reference, candidate, stage, answers, tolerances, found, guess))
            continue
        layout = layout_of(reference.meta) if stage == ROWS else None
        limits = tolerances.of(stage)
        compared_stage = compare_stage(stage, reference[stage], candidate[stage], limits, guess, layout)
        found.append(with_beams(compared_stage, reference, candidate, near_tie_noise(tolerances)))
        guess = guess and (found[-1].passes or found[-1].sequence is not None)  # later errors have the same cause
    part = first_id(reference, candidate, answers, tolerances) if answers else None
    if part:
        found = _tokens_first(found, part)
    whole = Comparison(
        stages=tuple(_alone(found) if inputs else _with_growth(found, tolerances)),
        tolerances=tolerances,
        reason=reason,
        reference=dict(reference.meta),
        candidate=dict(candidate.meta),
        only_reference=tuple(lacking),
        only_candidate=tuple(surplus),
        first_token=first_token(reference, candidate, found, tolerances, part),
        warnings=tuple(warnings),
        inputs=inputs,
        first_id=part,
    )
    return with_hints(whole, None, reference, candidate)


def _compared_choice(
    reference: Trace,
    candidate: Trace,
    stage: str,
    answers: Answers | None,
    tolerances: Tolerances,
    before: list[StageComparison],
    guess: bool,
) -> StageComparison:
    """Compares a stage `answer.*` at the positions that follow the same ids; without answers, at all positions."""
    limits = tolerances.of(stage)
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
    passing = [each.stage for each in before if each.passes]
    hint = None
    if answers and guess:
        hint = explain_choices(reference, candidate, measured, answers, "answer.norm" in passing)
    return logprobs_compared(stage, reference, candidate, limits, measured, hint)


def _tokens_first(found: list[StageComparison], part: FirstId) -> list[StageComparison]:
    """Returns the stages with the tokens before the rows of audio, if the answers part before the audio."""
    rows = next((n for n, each in enumerate(found) if each.stage == ROWS), None)
    tokens = next((n for n, each in enumerate(found) if each.stage == "tokens"), None)
    if part.row is not None or rows is None or tokens is None or tokens < rows:
        return found
    return [*found[:rows], found[tokens], *found[rows:tokens], *found[tokens + 1 :]]


def _alone(found: list[StageComparison]) -> Iterable[StageComparison]:
    """Yields each stage of numbers with its whole error as its own and no growth, for isolated traces."""
    for each in found:
        measured = each.numbers if each.numbers and not each.numbers.nonfinite_differences else None
        yield replace(each, own=measured.relative_l2) if measured and not each.sequence else each


def _with_growth(found: list[StageComparison], tolerances: Tolerances) -> Iterable[StageComparison]:
    """Yields each stage of numbers with what it added to the error of the previous stage of numbers.

    The first stage's error is all its own. A stage that follows one without measures has no growth, because there is
    nothing to compare it with. The search for the largest growth raises errors to the floor first, so that the step
    from zero to rounding is none.
    """
    before: float | None = 0.0
    first = True
    other_ids = False  # values that are computed from other ids are not an arithmetic error
    floor = max(_FLOOR * tolerances.preset.limits.relative_l2, tolerances.preset.roundoff)
    for each in found:
        if each.sequence or each.streams or each.logprobs or each.stage in SETTINGS:
            other_ids = other_ids or (each.streams is not None and each.differs)
            yield each
            continue
        if other_ids and each.stage in FOLLOWING:
            yield each
            continue
        if each.numbers is None or each.numbers.nonfinite_differences:
            before, first = None, False
            yield each
            continue
        error = each.numbers.relative_l2
        if before is not None:
            own = max(error**2 - before**2, 0.0) ** 0.5
            jump = max(error, floor) / max(before, floor)
            each = replace(each, own=own, before=None if first else before, jump=jump)
        first = False
        before = error
        yield each


def _same_input(reference: Trace, candidate: Trace, force: bool) -> list[str]:
    digests = [trace.meta.get("input_digest") for trace in (reference, candidate)]
    if None in digests:
        says = "neither trace says" if digests == [None, None] else "one of the traces does not say"
        return [f"{says} what input it was computed on (input_digest)"]
    if digests[0] == digests[1]:
        return []
    shown = [f"{each!s:.32}" if str(each).isprintable() else f"{each!r:.32}" for each in digests]
    said = f"the traces are of different inputs (digests {shown[0]} and {shown[1]})"
    if not force:
        raise BadInput(f"{said}; expected two traces of one input, or --force to compare them anyway")
    return [said]


def _same_layers(reference: list[str], candidate: list[str], force: bool) -> list[str]:
    counts = layer_counts(reference), layer_counts(candidate)
    for stack in counts[0].keys() & counts[1].keys():
        if counts[0][stack] != counts[1][stack]:
            said = f"the reference has {counts[0][stack]} {stack} and the candidate {counts[1][stack]}"
            if not force:
                raise BadInput(
                    f"{said}; expected traces of one model, or --force or --stages to compare only the layers "
                    "that both have"
                )
            return [said]
    return []


def _nothing_common(reference: Trace, candidate: Trace, stages: str) -> str:
    if shared := set(reference) & set(candidate):
        return f"no stage that both traces have matches {stages}; they share {_names(list(shared))}"
    return (
        f"the traces have no stage in common: the reference has {_names(list(reference))}, the candidate "
        f"{_names(list(candidate))}; a mapping file says which array is which stage"
    )


def _names(stages: list[str], most: int = 5) -> str:
    """Returns some stages by name, and the number of the others."""
    ordered = computation_order(stages)
    if not ordered:
        return "none"
    more = f" and {len(ordered) - most} more" if len(ordered) > most else ""
    return ", ".join(f"{stage:.80}" for stage in ordered[:most]) + more
