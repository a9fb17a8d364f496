"""The verdict on a comparison: the first divergent stage, where the error grew most, and whether the tokens agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from workbench.compare.comparison import AS_ASKED, Comparison, FirstToken
from workbench.compare.guesses.guess import Hint
from workbench.compare.logits import Choice
from workbench.compare.noise import REFERENCE, NoiseReport
from workbench.compare.stage import StageComparison
from workbench.compare.steps import steps_clauses
from workbench.core.phrases import counted, enumerated

Evidence = Literal["tolerance", "float64", "tolerance and float64"]

WORDS = {
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
    be far within tolerance and often grows beyond it only some layers later. A stage beyond tolerance is no fault if
    float64 shows that a candidate of the reference's own arithmetic has only rounded in another way. End to end, later
    stages inherit the error. If the candidate was computed from the reference's own inputs, each stage in error is
    faulty by itself, and all are the *faulty stages*; a text counts only if its tokens are not among them.

    The *first divergent stage* is the first one beyond tolerance in the order of the computation. The front end and the
    prompt come before any layer; tokens and text, which are computed from the other stages, come last.

    The *largest own contribution* is the stage whose relative L2 error is the largest multiple of that of the previous
    stage. Errors below a tenth of the tolerance count as a tenth, so that the step from zero to rounding is none; the
    sentence states the real errors. A fault in one place shows as one such jump, whatever later layers do with it. It
    is None if no stage's error exceeds that of the previous stage and this floor.

    If the candidate was computed from the reference's own inputs, it is the stage with the largest error, if that is
    beyond a tenth of the tolerance.
    """

    # Every stage is within tolerance, and a float64 trace, if used, shows no bug. If the same model was also computed
    # in the candidate's precision, a candidate that rounds like it is within, whatever the tolerance of that type.
    within: bool
    first_divergent: str | None
    largest_own: str | None
    tokens_agree: bool | None
    sentence: str  # the whole verdict in one sentence
    details: tuple[str, ...]  # further sentences, without their full stops
    first_bug: str | None = None  # the first stage farther from float64 than noise, if a float64 trace was used
    faulty_stage: str | None = None  # the earlier of `first_divergent` and `first_bug`, without noise
    found_by: Evidence | None = None  # the evidence against the faulty stage
    faulty_stages: tuple[str, ...] = ()  # see above; end to end, only the faulty stage
    explanation: Hint | None = None  # an explanation of the numbers of the faulty stage, if one is known

    @property
    def further_details(self) -> list[str]:
        """The details that the sentence does not contain."""
        return [each for each in self.details if each.partition(": ")[2] not in self.sentence]

    def _repr_html_(self) -> str:
        from workbench.compare.display import verdict_html

        return verdict_html(self)


def judge(comparison: Comparison, noise: NoiseReport | None = None) -> Verdict:
    """Returns the verdict on a comparison, with the report on noise if a float64 trace was used."""
    first = next((each for each in comparison.stages if not comparison.passes(each)), None)
    largest = _largest(comparison)
    bugs = {each.stage for each in noise.bugs} if noise else set()
    excused = noise.noise if noise else frozenset[str]()
    over = [each.stage for each in comparison.stages if each.stage not in excused and not comparison.passes(each)]
    faulty = [each for each in comparison.stages if (each.stage in bugs and not each.near_tie) or each.stage in over]
    if comparison.isolated:
        faulty = _by_themselves(faulty)
    rounded = first is not None and not faulty and _as_its_peer(comparison, noise)
    hidden = bool(faulty) and comparison.passes(faulty[0])  # only float64 finds the first fault
    parts = [_hidden(comparison, first, faulty[0], noise)] if hidden and noise else [_opening(comparison, first)]
    if rounded and first and noise:
        parts = [_rounded(comparison, first, noise)]
    elif comparison.isolated:
        if first and largest and largest is not first:
            parts.append(f"the largest own error is at {largest.stage}, relative L2 {largest.own:.2g}")
    elif first and largest:
        where = "there too" if largest is first else f"at {largest.stage}"
        parts.append(f"the error grows most {where}, {_step(largest)}")
    parts += steps_clauses([each.stage for each in comparison.stages], [each.stage for each in faulty])
    parts += _about_ids(comparison) if comparison.first_id else _about_tokens(comparison)
    if noise and not hidden:
        parts.append(noise.sentence + (", so no stage is at fault" if first and not (faulty or rounded) else ""))
    within = [each.stage for each in faulty[1:] if comparison.passes(each)]
    if comparison.isolated and within:
        parts.append(f"within tolerance, but no noise either, {_named(within)}")
    details = [
        f"{each.stage}: {each.hint or each.mismatch}" for each in comparison.stages if each.hint or each.mismatch
    ]
    found_by: Evidence | None = None
    if faulty:
        found_by = "float64" if hidden else "tolerance and float64" if faulty[0].stage in bugs else "tolerance"
    return Verdict(
        within=rounded or (first is None and not faulty),
        first_divergent=first.stage if first else None,
        largest_own=largest.stage if largest else None,
        tokens_agree=comparison.tokens_agree,
        sentence="; ".join(parts) + ".",
        details=tuple(details),
        first_bug=noise.first_bug.stage if noise and noise.first_bug else None,
        faulty_stage=faulty[0].stage if faulty else None,
        found_by=found_by,
        explanation=faulty[0].explanation if faulty else None,
        faulty_stages=tuple(each.stage for each in (faulty if comparison.isolated else faulty[:1])),
    )


def _as_its_peer(comparison: Comparison, noise: NoiseReport | None) -> bool:
    """Returns whether the same model in the same precision is as far off at every stage beyond a default tolerance."""
    if noise is None or noise.beside == REFERENCE or comparison.tolerances.rules or comparison.reason == AS_ASKED:
        return False
    return all(each.stage in noise.noise for each in comparison.stages if not comparison.passes(each))


def _rounded(comparison: Comparison, first: StageComparison, noise: NoiseReport) -> str:
    """Returns the opening of the sentence for a candidate that only rounds as its peer does."""
    count = counted(len(comparison.stages), "stage")
    how = f", each {_inputs(comparison)}" if comparison.isolated else ""
    beyond = f"{first.stage} is beyond tolerance {_tolerance(comparison)}"
    said = f"as near to float64 as {noise.beside}: {count}{how}, though {beyond}"
    return f"{said[:1].upper()}{said[1:]}, {_why(first)}"


def _by_themselves(faulty: list[StageComparison]) -> list[StageComparison]:
    """Returns the stages without texts whose tokens are among them: no text is computed from the reference's tokens."""
    held = {each.stage for each in faulty}
    return [each for each in faulty if each.kind != "text" or f"{each.stage.removesuffix('text')}tokens" not in held]


def _named(stages: list[str], most: int = 4) -> str:
    """Returns some stages by name and the number of the others, as predicate of a sentence."""
    if len(stages) == 1:
        return f"is {stages[0]}"
    shown = stages if len(stages) <= most else [*stages[: most - 1], f"{len(stages) - most + 1} more"]
    return f"are {enumerated(shown)}"


def _step(stage: StageComparison) -> str:
    """Returns the error before and after a stage, and the factor between them, as a phrase."""
    assert stage.numbers
    if stage.before is None:
        return f"to {stage.numbers.relative_l2:.2g} at once"
    said = f"from {stage.before:.2g} at the stage before to {stage.numbers.relative_l2:.2g}"
    return said if stage.growth is None else f"{said}, {stage.growth:.3g} times as much"


def _largest(comparison: Comparison) -> StageComparison | None:
    if comparison.isolated:
        least = 0.1 * comparison.tolerances.preset.limits.relative_l2
        far = [each for each in comparison.stages if each.own is not None and each.own > least]
        return max(far, key=lambda each: each.own or 0.0, default=None)
    grown = [each for each in comparison.stages if each.jump is not None and each.jump > 1]
    return max(grown, key=lambda each: each.jump or 0.0, default=None)


def _hidden(comparison: Comparison, first: StageComparison | None, fault: StageComparison, noise: NoiseReport) -> str:
    """Returns the opening of the sentence if float64 finds a fault before any tolerance does."""
    count, name = counted(len(comparison.stages), "stage"), _tolerance(comparison)
    how = f"C{_inputs(comparison)[1:]}, " if comparison.isolated else ""
    said = f"{how}{fault.stage} is the first of {count} in error, though within tolerance {name}: {noise.sentence}"
    if fault.explanation:
        said += f" ({fault.explanation.sentence})"
    if first is None:
        return f"{said}; no stage is beyond tolerance"
    return f"{said}; {first.stage} is the first beyond tolerance: {_why(first)}"


def _inputs(comparison: Comparison) -> str:
    return f"computed from the {comparison.inputs}'s own inputs"


def _tolerance(comparison: Comparison) -> str:
    return comparison.tolerances.preset.name + (" with changes" if comparison.tolerances.rules else "")


def _opening(comparison: Comparison, first: StageComparison | None) -> str:
    name, count = _tolerance(comparison), counted(len(comparison.stages), "stage")
    if (
        first
        and not comparison.tolerances.rules
        and first.stage.startswith("frontend.")
        and (first.limits != comparison.tolerances.preset.limits)
    ):
        name += ", with the limits of f32 for the front end"
    if first is None:
        how = f", each {_inputs(comparison)}" if comparison.isolated else ""
        if not any(each.differs for each in comparison.stages):
            return f"Identical: {count}{how}"
        said = f"Within tolerance {name}: {count}{how}"
        errors = [each for each in comparison.stages if each.numbers and each.passes]
        if errors:
            worst = max(errors, key=lambda each: each.numbers.relative_l2 if each.numbers else 0.0)
            assert worst.numbers
            said += f", relative L2 at most {worst.numbers.relative_l2:.2g} ({worst.stage})"
        return said
    if comparison.isolated:
        over = len(_by_themselves([each for each in comparison.stages if not comparison.passes(each)]))
        some = f"the only of {count}" if over == 1 else f"the first of {over} among {count}"
        return f"C{_inputs(comparison)[1:]}, {first.stage} is {some} beyond tolerance {name}: {_why(first)}"
    return f"{first.stage} is the first of {count} beyond tolerance {name}: {_why(first)}"


def _why(stage: StageComparison) -> str:
    if stage.mismatch:
        return stage.mismatch
    if stage.numbers and stage.numbers.nonfinite_differences:
        found = stage.numbers
        return (
            f"{counted(found.candidate_nonfinite, 'value')} of the candidate and {found.reference_nonfinite} of the "
            "reference are infinite or not a number"
        )
    far = stage.beyond[0]  # the most informative measure comes first
    said = f"{WORDS[far.measure]} {far.value:.2g}, limit {far.limit:.2g}"
    return f"{said} ({stage.hint})" if stage.hint else said


def _about_tokens(comparison: Comparison) -> list[str]:
    agree = comparison.tokens_agree
    if agree is None:
        return []
    if agree:
        rows = next((each.streams for each in comparison.stages if each.stage == "codec.rows" and each.streams), None)
        return [f"the tokens and all {rows.streams} streams agree" if rows else "the tokens agree"]
    first = comparison.first_token
    if first is None:
        return ["the tokens differ"]
    return [f"the tokens differ from place {first.place} on, {_choice(first, _unknown(comparison))}"]


def _about_ids(comparison: Comparison) -> list[str]:
    """Returns where two answers of parallel streams part, and why."""
    first = comparison.first_id
    assert first
    ids = f"{_said(first.reference, first.reference_name)} and {_said(first.candidate, first.candidate_name)}"
    said = f"the answers differ from {first.place} on, {ids}"
    if first.change:
        return [f"{said}: {first.change}"]
    if first.choice is None:
        return [f"{said}, and the traces do not hold that choice"]
    return [f"{said}, {'a near tie' if first.near_tie else 'no near tie'} (margins {margins_of(first.choice)})"]


def _said(number: int | None, name: str) -> str:
    return name if number is None or name == str(number) else f"{number} ({name})"


def _unknown(comparison: Comparison) -> str:
    """Returns why the choice of the first token that differs is unknown."""
    held = next((each for each in comparison.stages if each.stage == "logits"), None)
    if held is None:
        return "and the traces hold neither logits nor alternatives for that choice"
    if (logits := held.logits) is None:
        return "and logits of different shapes do not show that choice"
    # A language model's logits belong to its prompt and do not cover later tokens.
    if logits.flips or any(each.stage.startswith(("llm.", "prompt.")) for each in comparison.stages):
        return "and the traces hold no row of logits for that choice"
    return "though every row of the logits has the same best token on both sides: the decoding differs"


def _choice(first: FirstToken, unknown: str) -> str:
    ids = " and ".join("the end" if each is None else str(each) for each in (first.reference, first.candidate))
    if first.choice is None:
        return f"{ids}, {unknown}"
    return f"{ids}, {'a near tie' if first.near_tie else 'no near tie'} (margins {margins_of(first.choice)})"


def margins_of(choice: Choice, digits: int = 2) -> str:
    """Returns by how much the reference prefers its token, and the candidate its own, as text.

    The unit is logits, or natural logarithms of probabilities.
    """
    sides = (
        (choice.reference_margin, choice.reference_at_least),
        (choice.candidate_margin, choice.candidate_at_least),
    )
    return " and ".join(f"{'at least ' if bound else ''}{margin:.{digits}g}" for margin, bound in sides)
