"""Error rates over a grid of language-model weights, and their uncertainty."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.decoding.weight_sweep import Candidate, NBestList, sweep_weights

numbers = st.integers(-40, 40).map(lambda each: each / 4)
candidates = st.builds(Candidate, numbers, numbers, numbers, st.integers(0, 9))
lists = st.lists(
    st.builds(NBestList, st.lists(candidates, min_size=1, max_size=6).map(tuple), st.integers(0, 9)),
    min_size=1,
    max_size=6,
)
grids = st.lists(numbers, min_size=1, max_size=4, unique=True)


def slow_errors(n_best: list[NBestList], x: float, y: float) -> int:
    total = 0
    for each in n_best:
        best = max(each.candidates, key=lambda one: one.fixed + one.first * x + one.second * y)
        total += best.errors
    return total


@given(lists, grids, grids)
def test_weight_pair_errors_equal_those_of_the_selected_candidates(
    n_best: list[NBestList], first: list[float], second: list[float]
) -> None:
    sweep = sweep_weights(n_best, first, second, draws=20)
    for (row, column), errors in np.ndenumerate(sweep.errors):
        assert errors == slow_errors(n_best, first[row], second[column])
    assert sweep.errors[sweep.best] == sweep.errors.min()
    assert sweep.indistinguishable[sweep.best]
    assert sweep.low <= sweep.high and sweep.units == sum(each.units for each in n_best)


def right_above(weight: float, units: int = 10) -> NBestList:
    """Returns an n-best list whose best candidate is right only if the first weight is above a value."""
    return NBestList((Candidate(weight, 0.0, 0.0, units // 2), Candidate(0.0, 1.0, 0.0, 0)), units)


def test_sweep_over_a_large_consistent_set_has_no_warning() -> None:
    sweep = sweep_weights([right_above(1.0)] * 30, [0.0, 0.5, 2.0, 3.0, 0.9], [0.0])
    assert sweep.rate == 0 and sweep.rates[0, 0] == 0.5 and not sweep.doubt
    assert sweep.indistinguishable[:, 0].tolist() == [False, False, True, True, False]
    assert (sweep.low, sweep.high) == (0.0, 0.0)


def test_sweep_over_a_small_or_inconclusive_set_has_a_warning() -> None:
    few = sweep_weights([right_above(1.0)] * 4, [0.0, 2.0], [0.0])
    assert few.doubt == "the set is too small: 4 recordings, and the interval needs at least 5"
    # One recording of six decides: most draws of a bootstrap leave it out or the difference at zero.
    same = NBestList((Candidate(0.0, 0.0, 0.0, 1),), 10)
    unsure = sweep_weights([right_above(1.0), *[same] * 5], [0.0, 0.5, 2.0], [0.0, 1.0])
    assert unsure.indistinguishable.all() and "100% of all pairs" in unsure.doubt
    flat = sweep_weights([same] * 9, [0.0, 1.0], [0.0, 1.0])
    assert "says nothing" in flat.doubt and not flat.on_edge


def test_error_rate_interval_matches_the_bootstrap() -> None:
    rng = np.random.default_rng(3)
    errors = rng.integers(0, 5, 40)
    n_best = [NBestList((Candidate(0.0, 0.0, 0.0, int(each)),), 10) for each in errors]
    sweep = sweep_weights(n_best, [1.0], [1.0])
    resampled = [errors[rng.integers(0, 40, 40)].sum() / 400 for _ in range(4000)]
    assert np.allclose((sweep.low, sweep.high), np.quantile(resampled, (0.025, 0.975)), atol=0.01)


def test_best_weight_pair_at_the_grid_edge_is_flagged() -> None:
    assert sweep_weights([right_above(1.0)], [0.0, 0.5, 2.0], [0.0, 1.0, 2.0]).on_edge
    assert not sweep_weights([right_above(1.0)], [0.0, 2.0, 3.0], [0.0, 1.0, 2.0]).on_edge


def test_sweep_chooses_the_middle_of_equally_good_weights() -> None:
    """It is the safest: its neighbours are as good."""
    assert sweep_weights([right_above(1.0)], [0.0, 0.5, 2.0, 3.0, 4.0], [0.0, 1.0, 2.0]).best == (3, 1)
    assert sweep_weights([right_above(1.0)], [2.0, 3.0, 4.0, 0.5, 0.0], [0.0]).best == (1, 0)


def test_empty_weight_sweep_is_refused() -> None:
    for n_best, first in (([], [1.0]), ([right_above(1.0)], []), ([NBestList((), 1)], [1.0])):
        with pytest.raises(ValueError, match="a sweep needs"):
            sweep_weights(n_best, first, [1.0])
