"""Batches of audio segments: each segment in one batch, with limits on batch size and padding."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from workbench.runtimes.vllm.models import batching
from workbench.runtimes.vllm.models.batching import batches


@example(lengths=[0, 0], heads=1, most=1)
@given(lengths=st.lists(st.integers(0, 1000), max_size=30), heads=st.integers(1, 20), most=st.integers(1, 10**7))
def test_each_segment_is_in_one_batch_within_the_size_and_padding_limits(
    lengths: list[int], heads: int, most: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batching, "MOST_SCORES", most)
        found = list(batches(lengths, heads))
    assert sorted(number for batch in found for number in batch) == list(range(len(lengths)))
    for batch in found:
        ours = [lengths[number] for number in batch]
        assert ours == sorted(ours, reverse=True)
        assert ours[0] <= batching.LONGER * ours[-1]
        assert len(batch) == 1 or heads * len(batch) * ours[0] ** 2 <= most
    for one, other in pairwise(found):  # nothing is split without a reason
        first, following = lengths[one[0]], lengths[other[0]]
        assert first > batching.LONGER * following or heads * (len(one) + 1) * first**2 > most
