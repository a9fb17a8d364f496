"""Beam searches in a comparison: choices that differ by a near tie, and what explains other differences.

A choice is a near tie if both sides give the two continuations nearly equal scores. Equal scores on both sides are a
tie. Every search breaks ties by its own rule, so another choice then comes from another rule, not from rounding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from workbench.compare.stage import StageComparison
from workbench.trace.ancestry import CANDIDATES, FINISHED, PARENTS, SCORES, TOKENS
from workbench.trace.step_names import beam_of, is_choice, step_and_stage, step_stage
from workbench.trace.trace import Trace

_CACHES = (".cache.key", ".cache.value")
_SAME_ROWS = 1e-4  # relative L2 of rows that come from the same hypothesis, in any arithmetic but half precision

Continued = tuple[int, int]  # parent and token


def with_beams(each: StageComparison, reference: Trace, candidate: Trace, noise: float) -> StageComparison:
    """Returns the comparison of a stage of a beam search with what explains its difference, if anything known does.

    Args:
        noise: the relative error that the arithmetic explains.
    """
    step, stage = step_and_stage(each.stage)
    if step is None or each.passes:
        return each
    if is_choice(each.stage):
        return _explained_choice(each, reference, candidate, step, noise)
    beam = beam_of(each.stage)
    if beam is not None and stage.endswith(_CACHES) and not each.mismatch:
        return replace(each, hint=_reordering(reference, candidate, each.stage, step, beam) or each.hint)
    return each


def _explained_choice(
    each: StageComparison, reference: Trace, candidate: Trace, step: int, noise: float
) -> StageComparison:
    stage = step_and_stage(each.stage)[1]
    sides = [_Choice.from_trace(trace, step) for trace in (reference, candidate)]
    if stage in (PARENTS, TOKENS):
        pairs = _differing(*(side.active for side in sides))
    elif stage == FINISHED:
        if _sums(reference, candidate, step):
            return replace(each, hint="these are the sums of log-probabilities: the length penalty is left out")
        pairs = _differing(*(side.ranked for side in sides))
    else:
        return each
    margins = [
        _margins(reference_continuation, candidate_continuation, *sides)
        for reference_continuation, candidate_continuation in pairs
    ]
    if not margins or None in margins:
        return replace(each, hint=_difference_in_words(pairs, sides[0])) if stage != FINISHED and pairs else each
    widest_margin = max(max(known_margins) for known_margins in margins if known_margins)
    if any(max(known_margins) == 0 for known_margins in margins if known_margins):
        return replace(each, hint="the scores are equal on both sides: the tie is broken in another way")
    if widest_margin > noise * max(1.0, *(side.size for side in sides)):
        return replace(each, hint=_difference_in_words(pairs, sides[0])) if stage != FINISHED else each
    return replace(each, near_tie=True, hint=f"a near tie: the scores are at most {widest_margin:.2g} apart")


@dataclass(frozen=True)
class _Choice:
    """One side's choice before a step."""

    active: list[Continued]
    ranked: list[Continued]  # before any is dropped, best first
    scores: Mapping[Continued, float]

    @classmethod
    def from_trace(cls, trace: Trace, step: int) -> _Choice:
        parents, tokens, ranked, scores = (
            trace[name].tolist() if (name := step_stage(step, stage)) in trace else []
            for stage in (PARENTS, TOKENS, CANDIDATES, SCORES)
        )
        pairs = [(int(parent), int(token)) for parent, token in ranked]
        return cls(list(zip(map(int, parents), map(int, tokens))), pairs, dict(zip(pairs, scores)))

    @property
    def size(self) -> float:
        """The largest score of a continuation that could be chosen."""
        return max((abs(score) for score in self.scores.values() if abs(score) < 1e8), default=0.0)


def _difference_in_words(pairs: Sequence[tuple[Continued, Continued]], reference: _Choice) -> str:
    """Returns which hypotheses differ, in words."""
    if sorted(reference_continuation for reference_continuation, _ in pairs) == sorted(
        candidate_continuation for _, candidate_continuation in pairs
    ):
        return "the same hypotheses in another order"
    return "the reference has {}, the candidate {}".format(*(_described(each, reference) for each in pairs[0]))


def _described(each: Continued, reference: _Choice) -> str:
    score = reference.scores.get(each)
    score_text = "no candidate of the reference" if score is None else f"score {score:.4g}"
    return f"token {each[1]} after beam {each[0]}" + (f" ({score_text})" if reference.scores else "")


def _differing(reference: list[Continued], candidate: list[Continued]) -> list[tuple[Continued, Continued]]:
    return (
        [] if len(reference) != len(candidate) else [pair for pair in zip(reference, candidate) if pair[0] != pair[1]]
    )


def _margins(
    reference_continuation: Continued, candidate_continuation: Continued, *sides: _Choice
) -> tuple[float, ...] | None:
    """Returns the difference between each side's scores of two continuations; None if no side reports them."""
    scores_of_sides = [side.scores for side in sides if side.scores]
    if not scores_of_sides or not all(
        {reference_continuation, candidate_continuation} <= scores.keys() for scores in scores_of_sides
    ):
        return None
    return tuple(abs(scores[reference_continuation] - scores[candidate_continuation]) for scores in scores_of_sides)


def _sums(reference: Trace, candidate: Trace, step: int) -> bool:
    """Returns whether the candidate's finished scores are sums before the penalty, and the reference's are not."""
    names = [step_stage(step, stage) for stage in (FINISHED, SCORES)]
    if not all(name in reference for name in names) or names[0] not in candidate:
        return False
    sums, finished_scores = reference[names[1]], [trace[names[0]] for trace in (reference, candidate)]
    reference_matches, candidate_matches = (
        np.isclose(each[:, None], sums, rtol=1e-5).any(axis=1) for each in finished_scores
    )
    return bool(candidate_matches.any() and not reference_matches.any())


def _reordering(reference: Trace, candidate: Trace, name: str, step: int, beam: int) -> str | None:
    """Returns how a cache was reordered before the step; None if the rows of its positions are not recognised."""
    parents = [parent for parent, _ in _Choice.from_trace(reference, step).active]
    if beam >= len(parents):
        return None
    stage = step_and_stage(name)[1]
    # The reference's cache of a hypothesis holds the rows of its parent, then one of its own.
    locations = {parent: (step_stage(step, stage, child), slice(-1)) for child, parent in enumerate(parents)}
    locations |= {
        hypothesis: (step_stage(step - 1, stage, hypothesis), slice(None)) for hypothesis in range(len(parents))
    }
    caches = {
        hypothesis: reference[cache_name][part]
        for hypothesis, (cache_name, part) in locations.items()
        if cache_name in reference
    }
    sources = [
        _source_of_rows(candidate[cache][:-1], caches, parent)
        if (cache := step_stage(step, stage, each)) in candidate
        else None
        for each, parent in enumerate(parents)
    ]
    if sources[beam] is None or sources[beam] == parents[beam]:
        return None
    clause = (
        f"the rows before this step are those of beam {sources[beam]} of step {step - 1}, not of beam {parents[beam]}"
    )
    if all(hypothesis in (each, None) for each, hypothesis in enumerate(sources)):
        return f"{clause}: the cache was not reordered"
    listing = ", ".join("?" if each is None else str(each) for each in sources)
    return f"{clause}: the cache was reordered by {listing}, not by {', '.join(map(str, parents))}"


def _source_of_rows(rows: np.ndarray, caches: Mapping[int, np.ndarray], parent: int) -> int | None:
    """Returns the hypothesis that rows of a cache belong to, the parent first; None if none of those that are held."""
    size = float(np.linalg.norm(rows.astype(np.float64)))
    for old in sorted(caches, key=lambda each: each != parent):
        if size and caches[old].shape == rows.shape and np.linalg.norm(caches[old] - rows) <= _SAME_ROWS * size:
            return old
    return None
