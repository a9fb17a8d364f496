"""Error measures of two arrays against slow definitions, and the changes that do not affect them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from workbench.compare import measures
from workbench.compare.measures import Measures, measure
from workbench.compare.presets import PRESETS
from workbench.compare.stage import compare_stage

FLOATS = st.floats(-1e6, 1e6, width=32)
SHAPES = npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=7)


@st.composite
def pairs(draw: st.DrawFn, elements: st.SearchStrategy[float] = FLOATS) -> tuple[np.ndarray, np.ndarray]:
    shape = draw(SHAPES)
    return tuple(draw(npst.arrays(np.float32, shape, elements=elements)) for _ in range(2))


@given(pairs(), st.sampled_from([1, 5, 1 << 16]))
def test_measures_match_their_definitions(both: tuple[np.ndarray, np.ndarray], block: int) -> None:
    reference, candidate = (each.astype(np.float64) for each in both)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measures, "BLOCK_VALUES", block)
        result = measure(*both)
    d = [c - r for r, c in zip(reference.ravel().tolist(), candidate.ravel().tolist())]
    assert result.values == len(d)
    assert result.max_abs == max(map(abs, d), default=0.0)
    assert result.mean_abs == pytest.approx(sum(map(abs, d)) / max(len(d), 1))
    assert result.identical == all(x == 0 for x in d)
    assert result.reference_nonfinite == result.candidate_nonfinite == result.nonfinite_differences == 0
    squared_error, squared_reference = math.fsum(x * x for x in d), math.fsum(x * x for x in reference.ravel().tolist())
    if squared_reference > 1e-60:
        assert result.relative_l2 == pytest.approx(math.sqrt(squared_error / squared_reference))
        assert result.snr_db == (
            pytest.approx(10 * math.log10(squared_reference / squared_error)) if squared_error else math.inf
        )
        assert result.peak == pytest.approx(result.max_abs / math.sqrt(squared_reference / len(d)))
    squared_candidate = math.fsum(x * x for x in candidate.ravel().tolist())
    if min(squared_reference, squared_candidate) > 1e-60:
        product = math.fsum(r * c for r, c in zip(reference.ravel().tolist(), candidate.ravel().tolist()))
        assert result.cosine == pytest.approx(product / math.sqrt(squared_reference * squared_candidate), abs=1e-9)
        assert result.factor == pytest.approx(
            product / squared_reference, rel=1e-6, abs=1e-9 * math.sqrt(squared_candidate / squared_reference)
        )
    if result.worst:
        assert abs(candidate[result.worst.index] - reference[result.worst.index]) == result.max_abs
        assert result.worst.reference == reference[result.worst.index]
        assert result.worst.candidate == candidate[result.worst.index]
    if reference.ndim and reference.size:
        square = (candidate - reference) ** 2
        rows = square.reshape(len(square), -1).mean(axis=1)
        np.testing.assert_allclose(result.by_position, np.sqrt(rows), atol=1e-30)
        if reference.ndim > 1:
            np.testing.assert_allclose(
                result.by_channel, np.sqrt(square.mean(axis=tuple(range(square.ndim - 1)))), atol=1e-30
            )


@given(pairs(), st.randoms(use_true_random=False), st.sampled_from([2.0**-20, 8.0, -2.0]))
def test_relative_measures_are_unchanged_by_common_order_and_scale(
    both: tuple[np.ndarray, np.ndarray], random: np.random.Generator, scale: float
) -> None:
    flat = [each.ravel().astype(np.float64) for each in both]
    order = list(range(flat[0].size))
    random.shuffle(order)
    plain, mixed = measure(*flat), measure(*(scale * each[order] for each in flat))
    for name in ("relative_l2", "cosine_distance", "peak", "factor"):
        assert getattr(mixed, name) == pytest.approx(getattr(plain, name), rel=1e-6, abs=1e-12), name
    assert mixed.max_abs == pytest.approx(abs(scale) * plain.max_abs)
    assert mixed.mean_abs == pytest.approx(abs(scale) * plain.mean_abs)


@given(pairs(st.integers(-8, 8).map(float)), st.sampled_from([-1060, -700, -540, 540, 700, 1010]))
def test_values_at_the_ends_of_float64_neither_overflow_nor_vanish(
    both: tuple[np.ndarray, np.ndarray], exponent: int
) -> None:
    flat = [each.astype(np.float64) for each in both]
    plain, scaled = measure(*flat), measure(*(np.ldexp(each, exponent) for each in flat))
    for name in (
        "values",
        "relative_l2",
        "snr_db",
        "cosine_distance",
        "peak",
        "factor",
        "factor_residual",
        "identical",
    ):
        assert getattr(scaled, name) == pytest.approx(getattr(plain, name), rel=1e-12, abs=1e-12), name
    for name in ("max_abs", "mean_abs", "reference_rms", "by_position", "by_channel"):
        expected = np.ldexp(getattr(plain, name), exponent)
        np.testing.assert_allclose(getattr(scaled, name), expected, rtol=1e-9, atol=5e-324, err_msg=name)


def test_equal_arrays_with_float64_min_have_zero_distance() -> None:
    masked = np.where(np.eye(4) > 0, 1.0, np.finfo(np.float64).min)
    assert measure(masked, masked).cosine_distance == 0
    assert compare_stage("encoder.output", masked, masked.copy(), PRESETS["exact"].limits).passes


@given(pairs())
def test_absolute_and_cosine_distances_are_symmetric(both: tuple[np.ndarray, np.ndarray]) -> None:
    forward, backward = measure(*both), measure(*reversed(both))
    assert forward.max_abs == backward.max_abs and forward.mean_abs == pytest.approx(backward.mean_abs)
    assert forward.cosine_distance == pytest.approx(backward.cosine_distance, abs=1e-12)


@given(npst.arrays(np.float32, (5, 3), elements=st.sampled_from([1.0, 2.0, math.nan, math.inf, -math.inf])), st.data())
def test_non_finite_values_are_counted_and_excluded(reference: np.ndarray, data: st.DataObject) -> None:
    candidate = data.draw(npst.arrays(np.float32, (5, 3), elements=st.sampled_from([1.0, math.nan, math.inf])))
    result = measure(reference, candidate)
    fine = np.isfinite(reference) & np.isfinite(candidate)
    d = candidate[fine] - reference[fine]
    assert result.reference_nonfinite == (~np.isfinite(reference)).sum()
    assert result.candidate_nonfinite == (~np.isfinite(candidate)).sum()
    alike = [str(r) == str(c) for r, c in zip(reference.ravel(), candidate.ravel())]
    assert result.nonfinite_differences == sum(not a for a, f in zip(alike, fine.ravel()) if not f)
    assert result.values == fine.sum() and result.max_abs == max(np.abs(d), default=0)
    assert result.mean_abs == pytest.approx(np.abs(d).mean() if d.size else 0)
    assert result.identical == all(alike)


@pytest.mark.parametrize("factor", [1e-7, 1.0, 1e7])
def test_cosine_distance_stays_accurate_for_arrays_of_very_different_norm(factor: float) -> None:
    result = measure(np.array([2.0, 1e-3]), np.array([2.0 * factor, 0.0]))
    assert result.cosine_distance == pytest.approx(1 - 1 / math.sqrt(1 + 2.5e-7), rel=1e-8)
    assert result.factor_residual == pytest.approx(5e-4, rel=1e-6)


def test_a_tiny_cosine_distance_is_not_lost_to_rounding() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 100))
    error = rng.standard_normal(x.shape)
    result = measure(x, x + 1e-9 * error)
    assert result.cosine_distance == pytest.approx(0.5e-18, rel=0.05)
    assert result.cosine == 1.0


def test_distances_to_zero_arrays_are_defined() -> None:
    nothing, something = np.zeros((2, 2)), np.ones((2, 2))
    assert measure(nothing, nothing).identical and measure(nothing, nothing).cosine == 1
    result = measure(nothing, something)
    assert result.relative_l2 == result.peak == math.inf and result.snr_db == -math.inf and result.cosine == 0
    assert measure(something, nothing).relative_l2 == 1


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int64, np.uint8, np.bool_, ">f4", np.complex64])
def test_every_numeric_dtype_is_measured(dtype: type) -> None:
    reference = np.array([[0, 1], [1, 1], [0, 0]], dtype)
    candidate = np.array([[0, 1], [0, 1], [0, 0]], dtype)
    result = measure(reference, candidate)
    assert result.max_abs == 1 and result.worst and result.worst.index == (1, 0)
    assert (result.worst.reference, result.worst.candidate) == (1, 0)


def test_measuring_uses_less_memory_than_half_an_array() -> None:
    import tracemalloc

    x = np.ones((2000, 1000), np.float32)
    y = x + np.float32(0.5)
    tracemalloc.start()
    result: Measures = measure(x, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert result.mean_abs == 0.5
    assert peak < x.nbytes / 2


def test_arrays_of_different_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="differ"):
        measure(np.zeros((2, 3)), np.zeros((3, 2)))
