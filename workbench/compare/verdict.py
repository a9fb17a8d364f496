"""What a comparison comes to: the first divergent stage, where the error grew most, and whether tokens still agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from workbench.compare.compare import AS_ASKED, Comparison, FirstToken
from workbench.compare.logits import Choice
from workbench.compare.noise import REFERENCE, NoiseReport
from workbench.compare.stage import StageComparison

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
    """The answer, and the sentences that give it.

    The *faulty stage* is the one to look at: the first that is in error, be it by tolerance or, where the reference was
    computed in float64 too, because the candidate is farther from that than noise. What float64 finds may be far within
    tolerance, and often grows beyond it some layers later only; and what is beyond tolerance is no fault where float64
    says that a candidate of the reference's own arithmetic has only rounded otherwise. End to end, stages behind it
    inherit its error; of a candidate that was computed from the reference's own inputs, all that are in error are so by
    themselves, and are the *faulty stages*, a text only where its tokens are not.

    The *first divergent stage* is the first in the order of the computation that is beyond tolerance; the front end and
    the prompt come before any layer, and tokens and text, which are made of the others, last.

    The *largest own contribution* is the stage where the relative L2 error is the largest multiple of that of the stage
    before it, errors below a tenth of the tolerance counting as a tenth (so that the step from nothing to rounding is
    none); the sentence gives both errors as they are. A fault in one place shows as one such jump, whatever the layers
    after it make of it. None where no stage's error is larger than that of the stage before and than this floor.

    Of a candidate that was computed from the reference's own inputs it is the stage with the largest error, if that is
    beyond a tenth of the tolerance.
    """

    # Every stage within tolerance, and no bug against float64 where that was asked. Where the same model was computed
    # in the candidate's precision too, a candidate that rounds like that is within, whatever the type usually does.
    within: bool
    first_divergent: str | None
    largest_own: str | None
    tokens_agree: bool | None
    sentence: str  # all of it in one
    details: tuple[str, ...]  # further sentences, without their full stops
    first_bug: str | None = None  # the first stage that is farther from float64 than noise, where that was asked
    faulty_stage: str | None = None  # the earlier of `first_divergent` and `first_bug`, but for noise
    found_by: Evidence | None = None  # what says so of the faulty stage
    faulty_stages: tuple[str, ...] = ()  # see above; end to end, the faulty stage alone


def judge(comparison: Comparison, noise: NoiseReport | None = None) -> Verdict:
    """The verdict on a comparison, and on the same traces held against one in float64 where there is one."""
    first = next((each for each in comparison.stages if not comparison.passes(each)), None)
    largest = _largest(comparison)
    bugs = {each.stage for each in noise.bugs} if noise else set()
    excused = noise.noise if noise else frozenset[str]()
    over = [each.stage for each in comparison.stages if each.stage not in excused and not comparison.passes(each)]
    faulty = [each for each in comparison.stages if each.stage in bugs or each.stage in over]
    if comparison.isolated:
        faulty = _by_themselves(faulty)
    rounded = first is not None and not faulty and _as_its_peer(comparison, noise)
    hidden = bool(faulty) and comparison.passes(faulty[0])  # the first is found by float64 alone
    parts = [_hidden(comparison, first, faulty[0].stage, noise)] if hidden and noise else [_opening(comparison, first)]
    if rounded and first and noise:
        parts = [_rounded(comparison, first, noise)]
    elif comparison.isolated:
        if first and largest and largest is not first:
            parts.append(f"the largest error of its own is at {largest.stage}, relative L2 {largest.own:.2g}")
    elif first and largest:
        where = "there too" if largest is first else f"at {largest.stage}"
        parts.append(f"the error grows most {where}, {_step(largest)}")
    parts += _about_tokens(comparison)
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
        faulty_stages=tuple(each.stage for each in (faulty if comparison.isolated else faulty[:1])),
    )


def _as_its_peer(comparison: Comparison, noise: NoiseReport | None) -> bool:
    """Whether all that is beyond a tolerance, which nobody asked for, is as far off in the same model there."""
    if noise is None or noise.beside == REFERENCE or comparison.tolerances.rules or comparison.reason == AS_ASKED:
        return False
    return all(each.stage in noise.noise for each in comparison.stages if not comparison.passes(each))


def _rounded(comparison: Comparison, first: StageComparison, noise: NoiseReport) -> str:
    """The opening where a candidate only rounds as its peer does."""
    count = _stages(len(comparison.stages))
    how = f", each {_inputs(comparison)}" if comparison.isolated else ""
    said = f"as near as {noise.beside}: {count}{how}, though {first.stage} is beyond tolerance {_tolerance(comparison)}"
    return f"{said[:1].upper()}{said[1:]}, {_why(first)}"


def _by_themselves(faulty: list[StageComparison]) -> list[StageComparison]:
    """The stages without the texts of tokens that are among them: no text is computed from the reference's tokens."""
    held = {each.stage for each in faulty}
    return [each for each in faulty if each.kind != "text" or f"{each.stage.removesuffix('text')}tokens" not in held]


def _named(stages: list[str], most: int = 4) -> str:
    """Some stages by name, and how many more there are, as the subject of a sentence."""
    if len(stages) == 1:
        return f"is {stages[0]}"
    shown = stages if len(stages) <= most else [*stages[: most - 1], f"{len(stages) - most + 1} more"]
    return f"are {', '.join(shown[:-1])} and {shown[-1]}"


def _step(stage: StageComparison) -> str:
    """From what to what the error grows, and how many times that is."""
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


def _hidden(comparison: Comparison, first: StageComparison | None, stage: str, noise: NoiseReport) -> str:
    """The opening where float64 finds a fault before any tolerance does."""
    count, name = _stages(len(comparison.stages)), _tolerance(comparison)
    how = f"C{_inputs(comparison)[1:]}, " if comparison.isolated else ""
    said = f"{how}{stage} is the first of {count} in error, though within tolerance {name}: {noise.sentence}"
    if first is None:
        return f"{said}; no stage is beyond tolerance"
    return f"{said}; {first.stage} is the first beyond tolerance: {_why(first)}"


def _inputs(comparison: Comparison) -> str:
    return f"computed from the {comparison.inputs}'s own inputs"


def _tolerance(comparison: Comparison) -> str:
    return comparison.tolerances.preset.name + (" with changes" if comparison.tolerances.rules else "")


def _opening(comparison: Comparison, first: StageComparison | None) -> str:
    name, count = _tolerance(comparison), len(comparison.stages)
    if first and not comparison.tolerances.rules and first.limits != comparison.tolerances.preset.limits:
        name += ", which lets the front end be as far off as f32"
    if first is None:
        how = f", each {_inputs(comparison)}" if comparison.isolated else ""
        if not any(each.differs for each in comparison.stages):
            return f"Identical: {_stages(count)}{how}"
        said = f"Within tolerance {name}: {_stages(count)}{how}"
        errors = [each for each in comparison.stages if each.numbers]
        if errors:
            worst = max(errors, key=lambda each: each.numbers.relative_l2 if each.numbers else 0.0)
            assert worst.numbers
            said += f", relative L2 at most {worst.numbers.relative_l2:.2g} ({worst.stage})"
        return said
    if comparison.isolated:
        over = len(_by_themselves([each for each in comparison.stages if not comparison.passes(each)]))
        some = f"the only of {_stages(count)}" if over == 1 else f"the first of {over} among {_stages(count)}"
        return f"C{_inputs(comparison)[1:]}, {first.stage} is {some} beyond tolerance {name}: {_why(first)}"
    return f"{first.stage} is the first of {_stages(count)} beyond tolerance {name}: {_why(first)}"


def _stages(count: int) -> str:
    return f"{count} stage" + ("s" if count != 1 else "")


def _why(stage: StageComparison) -> str:
    if stage.mismatch:
        return stage.mismatch
    if stage.numbers and stage.numbers.nonfinite_differences:
        found = stage.numbers
        return (
            f"{found.candidate_nonfinite} values of the candidate and {found.reference_nonfinite} of the reference are "
            f"infinite or not a number"
        )
    far = stage.beyond[0]  # in the order in which they say most
    said = f"{WORDS[far.measure]} {far.value:.2g}, limit {far.limit:.2g}"
    return f"{said} ({stage.hint})" if stage.hint else said


def _about_tokens(comparison: Comparison) -> list[str]:
    agree = comparison.tokens_agree
    if agree is None:
        return []
    if agree:
        return ["the tokens agree"]
    first = comparison.first_token
    if first is None:
        return ["the tokens differ"]
    return [f"the tokens differ from place {first.place} on, {_choice(first, _unknown(comparison))}"]


def _unknown(comparison: Comparison) -> str:
    """Why nothing is known of the choice of the first token that differs."""
    held = next((each for each in comparison.stages if each.stage == "logits"), None)
    if held is None:
        return "of whose choice the traces hold neither logits nor alternatives"
    if (logits := held.logits) is None:
        return "of whose choice logits of different shapes do not tell"
    # A language model's logits are those of its prompt, and say nothing of later tokens.
    if logits.flips or any(each.stage.startswith(("llm.", "prompt.")) for each in comparison.stages):
        return "of whose choice the traces hold no row of logits"
    return "though every row of the logits has the same favourite on both sides: what makes tokens of them differs"


def _choice(first: FirstToken, unknown: str) -> str:
    ids = " and ".join("the end" if each is None else str(each) for each in (first.reference, first.candidate))
    if first.choice is None:
        return f"{ids}, {unknown}"
    return f"{ids}, {'a near tie' if first.near_tie else 'no near tie'} (margins {margins_of(first.choice)})"


def margins_of(choice: Choice, digits: int = 2) -> str:
    """By how much the reference prefers its token, and the candidate its own; logits, or natural logarithms of
    probabilities."""
    sides = (
        (choice.reference_margin, choice.reference_at_least),
        (choice.candidate_margin, choice.candidate_at_least),
    )
    return " and ".join(f"{'at least ' if bound else ''}{margin:.{digits}g}" for margin, bound in sides)
