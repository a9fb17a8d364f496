"""The verdict on a comparison: the first divergent stage, where the error grew most, and whether the tokens agree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from workbench.compare.advice import coarser_arithmetic, names_of, other_layouts, stages_between
from workbench.compare.comparison import REQUESTED, Comparison
from workbench.compare.guesses.guess import Hint
from workbench.compare.noise.report import REFERENCE, NoiseReport, side_of
from workbench.compare.stage import StageComparison
from workbench.compare.tokens.logits import Choice
from workbench.compare.tokens.steps import about_steps
from workbench.core.phrases import as_sentence, counted
from workbench.trace.step_names import pass_of

Evidence = Literal["tolerance", "float64", "tolerance and float64"]

MEASURE_NAMES = {
    "relative_l2": "relative L2",
    "peak": "largest difference over root mean square",
    "cosine_distance": "cosine distance",
    "kl": "KL divergence",
    "logprob": "log-probabilities' root mean square difference in nats at the worst step",
    "top1": "top-1 agreement",
    "token_errors": "token error rate",
    "text_errors": "text error rate",
}
"""The measures that have limits, in words."""


@dataclass(frozen=True)
class Verdict:
    """The verdict, and the sentences that state it.

    The *faulty stage* is the one to examine: the first stage in error. A stage is in error if it is beyond tolerance,
    or if a float64 trace shows that the candidate is farther from float64 than noise. An error that float64 finds may
    be far within tolerance and often grows beyond it only some layers later. A stage beyond tolerance is not a fault if
    float64 shows that a candidate of the reference's own arithmetic has only rounded in another way. End to end, later
    stages inherit the error. If the candidate was computed from the reference's own inputs, each stage in error is
    faulty by itself, and all are the *faulty stages*; a text counts only if its tokens are not among them.

    The *first divergent stage* is the first one beyond tolerance in the order of the computation. The front end and the
    prompt come before any layer; tokens and text, which are computed from the other stages, come last.

    The *largest own contribution* is the stage whose relative L2 error is the largest multiple of that of the previous
    stage. Errors below a tenth of the tolerance count as a tenth, so that the step from zero to rounding is not one;
    the sentence states the real errors. A fault in one place shows as one such jump, whatever later layers do with it.
    It is None if no stage's error exceeds that of the previous stage and this floor. With decoding steps, it is in the
    pass of the first divergent stage, because every later pass begins again with right embeddings.

    If the candidate was computed from the reference's own inputs, it is the stage with the largest error, if that is
    beyond a tenth of the tolerance.
    """

    # Every stage is within tolerance, and a float64 trace, if used, shows no bug. If the same model was also computed
    # in the candidate's precision, a candidate that rounds like that counts as within, whatever the tolerance.
    within: bool
    first_divergent: str | None
    largest_own: str | None
    tokens_agree: bool | None
    sentences: tuple[str, ...]  # the outcome first, then what else is known; each ends with a full stop
    details: tuple[str, ...]  # further sentences, without their full stops
    first_bug: str | None = None  # the first stage farther from float64 than noise, if a float64 trace was used
    faulty_stage: str | None = None  # the earlier of `first_divergent` and `first_bug`, without noise
    found_by: Evidence | None = None  # the evidence against the faulty stage
    faulty_stages: tuple[str, ...] = ()  # see above; end to end, only the faulty stage
    explanation: Hint | None = None  # an explanation of the numbers of the faulty stage, if one is known

    @property
    def sentence(self) -> str:
        """The whole verdict as one text: its sentences, one after another."""
        return " ".join(self.sentences)

    @property
    def further_details(self) -> list[str]:
        """The details that the sentences do not contain."""
        stated = self.sentence.casefold()
        return [each for each in self.details if each.partition(": ")[2].casefold() not in stated]

    def _repr_html_(self) -> str:
        from workbench.compare.display import verdict_html

        return verdict_html(self)


def judge(comparison: Comparison, noise: NoiseReport | None = None) -> Verdict:
    """Returns the verdict on a comparison, with the report on noise if a float64 trace was used."""
    first_beyond = next((each for each in comparison.stages if not comparison.passes(each)), None)
    largest = _largest(comparison, first_beyond)
    bugs = {each.stage for each in noise.bugs} if noise else set()
    noise_stages = noise.noise if noise else frozenset[str]()
    stages_beyond = [
        each.stage for each in comparison.stages if each.stage not in noise_stages and not comparison.passes(each)
    ]
    faulty = [
        each for each in comparison.stages if (each.stage in bugs and not each.near_tie) or each.stage in stages_beyond
    ]
    if comparison.isolated:
        faulty = _independent_faults(faulty)
    rounds_as_peer = first_beyond is not None and not faulty and _rounds_as_peer(comparison, noise)
    needs_float64 = bool(faulty) and comparison.passes(faulty[0])  # only float64 finds the first fault
    sentences = [*_opening(comparison, noise, _Findings(first_beyond, largest, faulty, rounds_as_peer, needs_float64))]
    sentences += about_steps([each.stage for each in comparison.stages], [each.stage for each in faulty])
    sentences += _about_ids(comparison) if comparison.first_id else _about_tokens(comparison)
    faulty_within = [each.stage for each in faulty[1:] if comparison.passes(each)]
    if comparison.isolated and faulty_within:
        sentences.append(f"{_names_with_verb(faulty_within)} within tolerance, but no noise either.")
    details = [
        f"{each.stage}: {each.hint or each.mismatch}" for each in comparison.stages if each.hint or each.mismatch
    ]
    found_by: Evidence | None = None
    if faulty:
        found_by = "float64" if needs_float64 else "tolerance and float64" if faulty[0].stage in bugs else "tolerance"
    return Verdict(
        within=rounds_as_peer or (first_beyond is None and not faulty),
        first_divergent=first_beyond.stage if first_beyond else None,
        largest_own=largest.stage if largest else None,
        tokens_agree=comparison.tokens_agree,
        sentences=tuple(sentences),
        details=tuple(details),
        first_bug=noise.first_bug.stage if noise and noise.first_bug else None,
        faulty_stage=faulty[0].stage if faulty else None,
        found_by=found_by,
        explanation=faulty[0].explanation if faulty else None,
        faulty_stages=tuple(each.stage for each in (faulty if comparison.isolated else faulty[:1])),
    )


class _Findings(NamedTuple):
    """What the sentences of a verdict are made from."""

    first: StageComparison | None  # beyond tolerance
    largest: StageComparison | None  # own contribution
    faulty: list[StageComparison]
    rounded: bool  # the candidate only rounds as its peer does
    hidden: bool  # only float64 finds the first fault


def _opening(comparison: Comparison, noise: NoiseReport | None, findings: _Findings) -> Iterator[str]:
    """Yields the sentences about the first stage in error, whether that is a bug, and where the error grows."""
    first = findings.first
    if noise and findings.hidden:
        yield from _float64_opening(comparison, first, findings.faulty[0], noise)
    elif noise and first and findings.rounded:
        yield _peer_opening(comparison, first, noise)
        yield as_sentence(noise.sentence)
        return
    else:
        yield _headline(comparison, first)
        yield from _hint(first)
        yield from other_layouts(comparison, first)
        if noise and not (first and first.mismatch):  # no number tells whether another shape is a bug
            yield as_sentence(noise.sentence + (", so no stage is at fault" if first and not findings.faulty else ""))
        yield from coarser_arithmetic(comparison, first)
        yield from stages_between(comparison, first)
        yield from _beyond_count(comparison)
    yield from _growth(comparison, first, findings.largest)


def _rounds_as_peer(comparison: Comparison, noise: NoiseReport | None) -> bool:
    """Returns whether the same model in the same precision is as far off at every stage beyond a default tolerance."""
    if noise is None or noise.beside == REFERENCE or comparison.tolerances.rules or comparison.reason == REQUESTED:
        return False
    return all(each.stage in noise.noise for each in comparison.stages if not comparison.passes(each))


def _peer_opening(comparison: Comparison, first: StageComparison, noise: NoiseReport) -> str:
    """Returns the opening for a candidate that only rounds as its peer does."""
    count = counted(len(comparison.stages), "stage")
    inputs_phrase = f", each {_inputs(comparison)}" if comparison.isolated else ""
    divergence = f"{first.stage} is beyond tolerance {_tolerance(comparison)}"
    return as_sentence(
        f"as near to float64 as {side_of(noise.beside)}: {count}{inputs_phrase}, though {divergence}, "
        f"{_excess_clause(first)}"
    )


def _independent_faults(faulty: list[StageComparison]) -> list[StageComparison]:
    """Returns the stages, but no text if its tokens are among them: a text is computed from the candidate's tokens."""
    names = {each.stage for each in faulty}
    return [each for each in faulty if each.kind != "text" or f"{each.stage.removesuffix('text')}tokens" not in names]


def _names_with_verb(stages: list[str]) -> str:
    """Returns the names of up to four stages, the number of the others, and "is" or "are"."""
    return f"{names_of(stages, 4)} {'is' if len(stages) == 1 else 'are'}"


def _step(stage: StageComparison) -> str:
    """Returns the error before and after a stage, and the factor between them, as a phrase."""
    assert stage.numbers
    if stage.before is None:
        return f"to {stage.numbers.relative_l2:.2g} at once"
    phrase = f"from {stage.before:.2g} at the stage before to {stage.numbers.relative_l2:.2g}"
    return phrase if stage.growth is None else f"{phrase}, {stage.growth:.3g} times as much"


def _largest(comparison: Comparison, first: StageComparison | None) -> StageComparison | None:
    """Returns the stage with the largest own contribution, in the pass of the first stage beyond tolerance."""
    if comparison.isolated:
        minimum = 0.1 * comparison.tolerances.preset.limits.relative_l2
        large = [each for each in comparison.stages if each.own is not None and each.own > minimum]
        return max(large, key=lambda each: each.own or 0.0, default=None)
    grown = [each for each in comparison.stages if each.jump is not None and each.jump > 1]
    if first:
        grown = [each for each in grown if pass_of(each.stage) == pass_of(first.stage)]
    return max(grown, key=lambda each: each.jump or 0.0, default=None)


def _growth(comparison: Comparison, first: StageComparison | None, largest: StageComparison | None) -> list[str]:
    """Returns where the largest error arises, if a stage is beyond tolerance.

    The errors around a stage of another shape, or before ids that alone differ, are not its cause.
    """
    if first is None or largest is None or first.mismatch or first.sequence:
        return []
    if comparison.isolated:
        sentence = f"The largest error of one stage by itself is at {largest.stage}, relative L2 {largest.own:.2g}."
        return [] if largest is first else [sentence]
    return [f"The error grows most at {largest.stage}, {_step(largest)}."]


def _float64_opening(
    comparison: Comparison, first: StageComparison | None, fault: StageComparison, noise: NoiseReport
) -> list[str]:
    """Returns the first sentences if float64 finds a fault before any tolerance does."""
    inputs_phrase = f"C{_inputs(comparison)[1:]}, " if comparison.isolated else ""
    sentences = [
        f"{inputs_phrase}{fault.stage} is the first stage in error, though within tolerance {_tolerance(comparison)}.",
        *([as_sentence(fault.explanation.sentence)] if fault.explanation else []),
        as_sentence(noise.sentence),
    ]
    if first is None:
        return [*sentences, f"None of {counted(len(comparison.stages), 'stage')} is beyond tolerance."]
    return [*sentences, f"{first.stage} is the first stage beyond tolerance: {_excess_clause(first)}.", *_hint(first)]


def _inputs(comparison: Comparison) -> str:
    return f"computed from the {comparison.inputs}'s own inputs"


def _tolerance(comparison: Comparison) -> str:
    return comparison.tolerances.preset.name + (" with changes" if comparison.tolerances.rules else "")


def _headline(comparison: Comparison, first: StageComparison | None) -> str:
    """Returns the first stage beyond tolerance, or that there is none."""
    name, count = _tolerance(comparison), counted(len(comparison.stages), "stage")
    if (
        first
        and not comparison.tolerances.rules
        and first.stage.startswith("frontend.")
        and (first.limits != comparison.tolerances.preset.limits)
    ):
        name += ", with the limits of f32 for the front end"
    if first is None:
        inputs_phrase = f", each {_inputs(comparison)}" if comparison.isolated else ""
        if not any(each.differs for each in comparison.stages):
            return f"Identical: {count}{inputs_phrase}."
        sentence = f"Within tolerance {name}: {count}{inputs_phrase}"
        errors = [each for each in comparison.stages if each.numbers and each.passes]
        if errors:
            worst = max(errors, key=lambda each: each.numbers.relative_l2 if each.numbers else 0.0)
            assert worst.numbers
            sentence += f", relative L2 at most {worst.numbers.relative_l2:.2g} ({worst.stage})"
        return f"{sentence}."
    inputs_phrase = f"C{_inputs(comparison)[1:]}, " if comparison.isolated else ""
    return f"{inputs_phrase}{first.stage} is the first stage beyond tolerance {name}: {_excess_clause(first)}."


def _beyond_count(comparison: Comparison) -> list[str]:
    """Returns how many stages are beyond tolerance, if any is."""
    count = len(comparison.stages)
    stages_beyond = [each for each in comparison.stages if not comparison.passes(each)]
    if len(stages_beyond) == 1 < count:
        remainder = "stage is" if count == 2 else f"{count - 1} stages are"
        return [f"The other {remainder} within tolerance."]
    failing = _independent_faults(stages_beyond) if comparison.isolated else stages_beyond
    if len(failing) < 2:
        return []
    sentence = f"{len(failing)} of {count} stages are beyond tolerance"
    if not comparison.isolated:
        return [f"{sentence}."]
    hints = [f"{each.stage}: {each.explanation.sentence}." for each in failing[1:] if each.explanation]
    return [f"{sentence}: {names_of([each.stage for each in failing])}.", *hints]


def _excess_clause(stage: StageComparison) -> str:
    if stage.mismatch:
        return stage.mismatch
    if stage.numbers and stage.numbers.nonfinite_differences:
        numbers = stage.numbers
        return (
            f"{counted(numbers.candidate_nonfinite, 'value')} of the candidate and {numbers.reference_nonfinite} of "
            "the reference are infinite or not a number"
        )
    violation = stage.beyond[0]  # the most informative measure comes first
    return f"{MEASURE_NAMES[violation.measure]} {violation.value:.2g}, limit {violation.limit:.2g}"


def _hint(stage: StageComparison | None) -> list[str]:
    """Returns what would explain the numbers of a stage, if known; none for a mismatch, which has its own sentence."""
    return [as_sentence(line) for line in (stage.hint or "").splitlines()] if stage and not stage.mismatch else []


def _about_tokens(comparison: Comparison) -> list[str]:
    agree = comparison.tokens_agree
    if agree is None:
        return []
    if agree:
        rows = next((each.streams for each in comparison.stages if each.stage == "codec.rows" and each.streams), None)
        return [f"The tokens and all {rows.streams} streams agree." if rows else "The tokens agree."]
    first = comparison.first_token
    if first is None:
        return ["The tokens differ."]
    ids = ["the end" if each is None else str(each) for each in (first.reference, first.candidate)]
    sentence = f"The tokens differ from place {first.place} on: {_on_both_sides(*ids)}."
    return [
        sentence,
        _near_tie_sentence(first.choice, first.near_tie) if first.choice else _unknown_choice_reason(comparison),
    ]


def _about_ids(comparison: Comparison) -> list[str]:
    """Returns where two answers of parallel streams first differ, and why."""
    first = comparison.first_id
    assert first
    ids = _id_text(first.reference, first.reference_name), _id_text(first.candidate, first.candidate_name)
    sentence = f"The answers differ from {first.place} on: {_on_both_sides(*ids)}."
    if first.change:
        return [sentence, as_sentence(first.change)]
    if first.choice is None:
        return [sentence, "The traces do not hold that choice."]
    return [sentence, _near_tie_sentence(first.choice, first.near_tie)]


def _on_both_sides(reference: str, candidate: str) -> str:
    return f"{reference} in the reference, {candidate} in the candidate"


def _near_tie_sentence(choice: Choice, near_tie: bool) -> str:
    return f"This choice is {'a' if near_tie else 'not a'} near tie (margins {margins_of(choice)})."


def _id_text(number: int | None, name: str) -> str:
    return name if number is None or name == str(number) else f"{number} ({name})"


def _unknown_choice_reason(comparison: Comparison) -> str:
    """Returns why the choice of the first token that differs is unknown."""
    logits_stage = next((each for each in comparison.stages if each.stage == "logits"), None)
    if logits_stage is None:
        return "The traces hold neither logits nor alternatives for that choice."
    if (logits := logits_stage.logits) is None:
        return "Logits of different shapes do not show that choice."
    # A language model's logits belong to its prompt and do not cover later tokens.
    if logits.flips or any(each.stage.startswith(("llm.", "prompt.")) for each in comparison.stages):
        return "The traces hold no row of logits for that choice."
    return "Every row of the logits has the same best token on both sides, so the decoding differs."


def margins_of(choice: Choice, digits: int = 2) -> str:
    """Returns by how much the reference prefers its token, and the candidate its own, as text.

    The unit is logits, or natural logarithms of probabilities.
    """
    sides = (
        (choice.reference_margin, choice.reference_at_least),
        (choice.candidate_margin, choice.candidate_at_least),
    )
    return " and ".join(f"{'at least ' if bound else ''}{margin:.{digits}g}" for margin, bound in sides)
