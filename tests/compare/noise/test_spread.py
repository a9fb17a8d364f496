"""Rounding noise or bug, by the spread of clean runs in one precision: no false alarm, and small faults found."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.support.networks import META
from workbench.compare.noise.distances import steady
from workbench.compare.noise.report import NoiseReport
from workbench.compare.noise.spread import ORDERS, Clean, noise_by_spread
from workbench.core.errors import BadInput
from workbench.trace.trace import Trace

NOISE = 2.0**-9  # of bfloat16
STAGES = ("llm.layers.0", "llm.layers.1", "llm.norm")
META_HALF = META | {"dtype": "bfloat16"}


class Half:
    """A computation of three stages in half precision; errors of a stage enter the next."""

    def __init__(self, seed: int, positions: int = 40, channels: int = 24):
        self.draw = np.random.default_rng(seed)
        sizes = self.draw.uniform(0.5, 2, positions)[:, None]
        self.truth = [self.draw.standard_normal((positions, channels)) * sizes for _ in STAGES]
        self.exact = self.trace(list(self.truth), "float64")
        self.reference = self.trace([x.astype(np.float32) for x in self.truth], "float32")
        self.clean = Clean([self.compute() for _ in range(ORDERS)], self.exact, "bfloat16")

    def trace(self, arrays: list[np.ndarray], dtype: str) -> Trace:
        return Trace(dict(zip(STAGES, arrays)), META | {"dtype": dtype})

    def compute(self, fault: Callable[[np.ndarray], np.ndarray] | None = None, at: int = 1) -> Trace:
        """Returns a trace with a fault in the output of a stage; later stages inherit it."""
        arrays, error = [], np.zeros_like(self.truth[0])
        for number, x in enumerate(self.truth):
            size = np.sqrt(np.mean(x**2, axis=1, keepdims=True))
            error = error + NOISE * self.draw.standard_normal(x.shape)
            if fault is not None and number == at:
                error = error + fault(x) / size
            arrays.append((x + size * error).astype(np.float32))
        return self.trace(arrays, "bfloat16")

    def judge_candidate(self, candidate: Trace) -> NoiseReport:
        return noise_by_spread(self.reference, candidate, self.clean)


def test_clean_candidates_raise_no_false_alarm() -> None:
    for seed in range(60):
        half = Half(seed, positions=12 + seed % 50)
        report = half.judge_candidate(half.compute())
        assert report.first_bug is None, (seed, report.sentence)
        assert "; that of this model in bfloat16 in 5 orders of summation is at most 0.0" in report.sentence


def test_clean_candidates_raise_no_false_alarm_after_relu() -> None:
    """At the median position, most channels are zero on all sides, and a few are zero on some sides."""
    stage = "encoder.layers.0.mlp.activation"
    for seed in range(40):
        draw = np.random.default_rng(seed)
        entering = draw.standard_normal((20 + seed, 96)) - draw.uniform(-0.5, 1.5, 96)
        sides = [entering * (1 + 0.02 * draw.standard_normal(entering.shape)) for _ in range(ORDERS + 1)]
        exact, reference, *sides = (np.maximum(each, 0) for each in (entering, entering, *sides))
        traces = [Trace({stage: each.astype(np.float32)}, META_HALF) for each in sides]
        clean = Clean(traces[1:], Trace({stage: exact}, META | {"dtype": "float64"}), "bfloat16")
        judged = noise_by_spread(Trace({stage: reference}, META | {"dtype": "float32"}), traces[0], clean)
        assert judged.first_bug is None, (seed, judged.sentence)


def test_clean_attention_weights_raise_no_false_alarm() -> None:
    """Their first axis counts heads: a pair of query and key has too few of them to be judged by itself."""
    stage = "encoder.layers.0.attention.weights"
    for seed in range(40):
        draw = np.random.default_rng(seed)
        scores = 25 * draw.standard_normal((4, 15 + seed, 20))
        sides = [scores, *(scores * (1 + 0.004 * draw.standard_normal(scores.shape)) for _ in range(ORDERS + 1))]
        weights = [np.exp(each) / np.exp(each).sum(axis=-1, keepdims=True) for each in sides]
        exact, candidate, *others = (Trace({stage: each.astype(np.float32)}, META_HALF) for each in weights)
        exact = Trace({stage: weights[0]}, META | {"dtype": "float64"})
        reference = Trace({stage: weights[0].astype(np.float32)}, META | {"dtype": "float32"})
        judged = noise_by_spread(reference, candidate, Clean(others, exact, "bfloat16"))
        assert judged.first_bug is None, (seed, judged.sentence)


def test_another_front_end_in_float32_raises_no_false_alarm() -> None:
    """Its rounding may be alike in all positions; no float64 judges it, and it enters the stages behind it."""
    truth = 10 + np.random.default_rng(0).standard_normal((60, 30))

    def trace(factor: float, dtype: str) -> Trace:
        values = truth * factor
        last = values if dtype == "float64" else values.astype(np.float32)
        arrays = {"frontend.fbank": values.astype(np.float32), "encoder.input": last}
        return Trace(arrays, META | {"dtype": dtype})

    clean = Clean([trace(1.0, "float32") for _ in range(ORDERS)], trace(1.0, "float64"), "q8_0", same_weights=True)
    for factor, is_right in ((1 + 7e-7, True), (1 + 1e-5, False)):
        report = noise_by_spread(trace(1.0, "float32"), trace(factor, "float32"), clean)
        assert (report.first_bug is None) == is_right, report.sentence


def wrong_epsilon(x: np.ndarray) -> np.ndarray:
    return -3 * NOISE * x


def small_shift(x: np.ndarray) -> np.ndarray:
    return np.broadcast_to(1.4 * NOISE * np.sin(np.arange(x.shape[1])), x.shape)


def one_channel(x: np.ndarray) -> np.ndarray:
    return 25 * NOISE * (np.arange(x.shape[1]) == 7) * np.abs(x)


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("fault", [wrong_epsilon, small_shift, one_channel])
def test_faults_within_bfloat16_tolerance_are_named_at_their_stage(
    fault: Callable[[np.ndarray], np.ndarray], at: int
) -> None:
    for seed in range(5):
        half = Half(seed)
        report = half.judge_candidate(half.compute(fault, at))
        assert report.first_bug and report.first_bug.stage == STAGES[at], report.sentence
        assert report.first_bug.candidate < 0.05, "the limit of bfloat16"


def test_constant_shift_is_found_by_the_mean_over_positions() -> None:
    half = Half(0)
    [bug, *_] = half.judge_candidate(half.compute(small_shift, 0)).bugs
    assert bug.candidate_typical <= bug.typical_bound and bug.candidate_steady > bug.steady_bound
    assert bug.deciding[3] == " on the mean of all positions"


def test_mean_error_over_positions_matches_its_definition() -> None:
    """Also if one position is far larger than the others."""
    draw = np.random.default_rng(1)
    x = draw.standard_normal((30, 5))
    error = 0.01 * np.sign(draw.standard_normal((30, 5)))
    size = np.sqrt((x**2).mean(axis=1, keepdims=True))
    expected = np.sqrt((error.mean(axis=0) ** 2).mean())
    assert steady(x, x + size * error) == pytest.approx(expected, rel=1e-6)
    error[3] = 5.0
    without = np.sqrt((np.delete(error, 3, axis=0).mean(axis=0) ** 2).mean())
    assert steady(x, x + size * error) == pytest.approx(without, rel=1e-6)
    assert steady(x, x) == 0 and steady(x[:0], x[:0]) == 0 and steady(x, x[:3]) == float("inf")


def test_quantised_candidates_are_measured_from_float64_with_their_own_weights() -> None:
    half = Half(0)
    moved = Trace({stage: x * 1.03 for stage, x in half.exact.items()}, half.exact.meta)  # other weights
    candidate = Trace({stage: x * 1.03 for stage, x in half.compute().items()}, META | {"quantization": "q8_0"})
    clean = [Trace({s: x * 1.03 for s, x in each.items()}, META | {"dtype": "float32"}) for each in half.clean.traces]
    report = noise_by_spread(half.reference, candidate, Clean(clean, moved, "the weights of x.gguf", same_weights=True))
    assert report.first_bug is None
    sentence = "that of this model with the weights of x.gguf in 5 orders of summation is at most"
    assert sentence in report.sentence


def test_clean_runs_of_different_shape_give_no_verdict() -> None:
    half = Half(0)
    shorter = {stage: x[:-1] if stage == "llm.norm" else x for stage, x in half.clean.traces[0].items()}
    traces = [Trace(shorter, META_HALF), *half.clean.traces[1:]]
    report = noise_by_spread(half.reference, half.compute(), Clean(traces, half.exact, "bfloat16"))
    assert report.first_bug is None and report.noise == {"llm.layers.0", "llm.layers.1"}
    sentence = (
        "llm.norm of this model in bfloat16 in 5 orders of summation has another shape, or values that are not finite, "
    )
    assert report.sentence == sentence + "so noise cannot be told from a bug"


def test_missing_clean_runs_or_common_stages_are_refused() -> None:
    half = Half(0)
    with pytest.raises(BadInput, match="no computation in the candidate's precision"):
        noise_by_spread(half.reference, half.compute(), Clean([], half.exact, "bfloat16"))
    other = Trace({"encoder.output": half.truth[0]}, META_HALF)
    with pytest.raises(BadInput, match="no stage of numbers in common"):
        noise_by_spread(half.reference, other, half.clean)
