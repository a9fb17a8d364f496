"""Which chunks of speech share a pass that joins them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from workbench.pipelines.recognition.batches import JOINED_FRAMES, joined_groups


@given(st.lists(st.integers(0, 900), max_size=40), st.integers(2, 8))
def test_each_chunk_is_in_one_pass_with_chunks_of_its_arithmetic(frames: list[int], lanes: int) -> None:
    groups = joined_groups(frames, lanes, lambda count: count >= 100)
    assert sorted(index for group in groups for index in group) == [*range(len(frames))]
    assert all(len({frames[index] >= 100 for index in group}) == 1 for group in groups)
    loads = [sum(frames[index] for index in group) for group in groups]
    assert loads == sorted(loads, reverse=True)
    longest = max(frames, default=0)
    assert all(load <= JOINED_FRAMES + longest for load in loads)


@given(st.integers(1, 40), st.integers(2, 8))
def test_all_lanes_have_work_if_there_are_enough_chunks(count: int, lanes: int) -> None:
    groups = joined_groups([10] * count, lanes, lambda _: 0)
    assert len(groups) == min(count, lanes)
    assert max(map(len, groups)) - min(map(len, groups)) <= 1
