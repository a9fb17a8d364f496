"""LFR frame stacking against its definition, one frame at a time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.audio.lfr import num_stacked, stack_frames, unstack_gradient


def literal(features: list[list[float]], m: int, n: int) -> list[list[float]]:
    padded = [features[0]] * ((m - 1) // 2) + features
    stacked = []
    for start in range(0, len(features), n):
        row: list[float] = []
        for index in range(start, start + m):
            row += padded[min(index, len(padded) - 1)]
        stacked.append(row)
    return stacked


@pytest.mark.parametrize(("m", "n"), [(7, 6), (5, 1)])
@given(frames=st.integers(1, 199), width=st.integers(1, 4), seed=st.integers(0, 2**32 - 1))
def test_lfr_stacking_matches_its_definition(m: int, n: int, frames: int, width: int, seed: int) -> None:
    features = np.random.default_rng(seed).standard_normal((frames, width)).astype(np.float32)
    stacked = stack_frames(features, m, n)
    assert stacked.shape == (num_stacked(frames, n), m * width) and stacked.flags.c_contiguous
    np.testing.assert_array_equal(stacked, np.array(literal(features.tolist(), m, n), dtype=np.float32))


@given(frames=st.integers(1, 40), m=st.integers(1, 9), n=st.integers(1, 9))
def test_lfr_stacking_matches_its_definition_for_any_m_and_n(frames: int, m: int, n: int) -> None:
    features = np.arange(frames, dtype=np.float32)[:, np.newaxis]
    np.testing.assert_array_equal(stack_frames(features, m, n), literal(features.tolist(), m, n))


def test_lfr_of_thirty_seconds_has_500_frames() -> None:
    assert stack_frames(np.zeros((2998, 80), dtype=np.float32), 7, 6).shape == (500, 560)


def test_lfr_output_does_not_share_memory_with_the_input() -> None:
    features = np.zeros((3, 2), dtype=np.float32)
    stack_frames(features, 1, 1)[:] = 1
    assert not features.any()


def test_lfr_of_zero_frames_is_empty() -> None:
    assert stack_frames(np.zeros((0, 80), dtype=np.float32), 7, 6).shape == (0, 560)


@pytest.mark.parametrize(("m", "n"), [(7, 6), (5, 1), (1, 3)])
@given(frames=st.integers(1, 60), width=st.integers(1, 3), seed=st.integers(0, 2**32 - 1))
def test_lfr_gradient_is_the_transpose_of_stacking(m: int, n: int, frames: int, width: int, seed: int) -> None:
    """<stack(x), g> = <x, transpose(g)> for all x and g; whole numbers, so that no rounding is in the way."""
    random = np.random.default_rng(seed)
    x = random.integers(-9, 10, (frames, width)).astype(np.float32)
    stacked = stack_frames(x, m, n)
    g = random.integers(-9, 10, stacked.shape).astype(np.float64)
    assert (stacked * g).sum() == (x * unstack_gradient(g, frames, m, n)).sum()
