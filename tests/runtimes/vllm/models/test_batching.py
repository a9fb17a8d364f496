"""Batches of audio segments: each segment in one batch, with limits on batch size and padding."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from workbench.runtimes.vllm.models import batching
from workbench.runtimes.vllm.models.batching import batches


@example(lengths=[0, 0], heads=1, max_scores=1)
@given(lengths=st.lists(st.integers(0, 1000), max_size=30), heads=st.integers(1, 20), max_scores=st.integers(1, 10**7))
def test_each_segment_is_in_one_batch_within_the_size_and_padding_limits(
    lengths: list[int], heads: int, max_scores: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batching, "MAX_SCORES", max_scores)
        result = list(batches(lengths, heads))
    assert sorted(number for batch in result for number in batch) == list(range(len(lengths)))
    for batch in result:
        batch_lengths = [lengths[number] for number in batch]
        assert batch_lengths == sorted(batch_lengths, reverse=True)
        assert batch_lengths[0] <= batching.LONGER * batch_lengths[-1]
        assert len(batch) == 1 or heads * len(batch) * batch_lengths[0] ** 2 <= max_scores
    for left, right in pairwise(result):  # batches are split only at a limit
        left_longest, right_longest = lengths[left[0]], lengths[right[0]]
        assert left_longest > batching.LONGER * right_longest or heads * (len(left) + 1) * left_longest**2 > max_scores
