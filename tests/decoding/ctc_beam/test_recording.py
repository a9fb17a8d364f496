"""The recorded trace of a search: the same decisions as the search itself, with consistent scores."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.ctc_problems import Problem, random_problem
from workbench.core.errors import BadInput
from workbench.decoding.ctc_beam import CtcDecoder, SearchOptions
from workbench.decoding.ctc_beam.record import MAX_FRAMES, SearchRecord


def narrow_problem(seed: int) -> Problem:
    problem = random_problem(seed)
    return replace(problem, options=replace(problem.options, beam_size=3, nbest=2))


@pytest.mark.parametrize("seed", range(60))
def test_recorded_search_gives_the_same_hypotheses_as_the_search(seed: int) -> None:
    """The candidates that the search leaves out early could not have reached the beam."""
    problem = narrow_problem(seed)
    decoder = problem.decoder()
    for logits in problem.batch:
        record = decoder.explain(logits)
        state = decoder.begin()
        decoder.advance(state, logits)
        assert list(record.hypotheses) == decoder.finish(state)
        check(record, logits.shape[0], problem)


def check(record: SearchRecord, frames: int, problem: Problem) -> None:
    assert len(record.frames) == frames
    names = set()
    for number in range(len(record.parents)):
        names.add((record.tokens_of(number), record.words[number] if record.words else None))
        assert record.parents[number] < number
    assert len(names) == len(record.parents)  # a hypothesis has one number
    before = {0}
    for frame in record.frames:
        active = set(frame.active.ids.tolist())
        pruned = frame.pruned
        assert len(active) == frame.active_count == len(frame.active.ids)
        assert len(pruned.ids) <= frame.pruned_count and not active & set(pruned.ids.tolist())
        assert (np.diff(frame.active.total) <= 0).all() and (np.diff(pruned.total) <= 0).all()
        assert (pruned.total <= frame.cut + 1e-9).all()
        # Each new hypothesis extends a surviving one by one token.
        assert all(number in before or record.parents[number] in before for number in active | set(pruned.ids.tolist()))
        for child, parent in frame.merges.tolist():
            assert child in active and record.tokens_of(child)[:-1] == record.tokens_of(parent)
        before = active
    last = record.frames[-1].active
    for hypothesis in record.hypotheses:
        at = [i for i, number in enumerate(last.ids) if record.tokens_of(number) == hypothesis.tokens]
        assert any(last.acoustic[i] == hypothesis.acoustic and last.bonus[i] == hypothesis.bonus for i in at)


def test_cut_of_a_frame_is_the_lowest_surviving_score() -> None:
    """With a beam of one, the second best is pruned, and the cut is the score of the best."""
    record = CtcDecoder(3, 0, SearchOptions(beam_size=1)).explain(np.log([[0.2, 0.5, 0.3]]))
    (frame,) = record.frames
    assert record.tokens_of(int(frame.active.ids[0])) == (1,)
    assert frame.cut == pytest.approx(np.log(0.5))
    assert [record.tokens_of(number) for number in frame.pruned.ids] == [(2,), ()]
    np.testing.assert_allclose(np.exp(frame.pruned.total), [0.3, 0.2])


def test_recording_a_search_over_too_many_frames_is_refused() -> None:
    with pytest.raises(BadInput, match="at most"):
        CtcDecoder(2, 0).explain(np.zeros((MAX_FRAMES + 1, 2)))
