"""Comparison of a weight file's tensors with the checkpoint's: rounding is ignored, and known causes are named."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

pytest.importorskip("gguf")

from gguf import GGMLQuantizationType, quants

from workbench.compare.weights.tensor import WeightDifference, weight_difference
from workbench.formats.gguf_types import dequantised

TYPES = ("F32", "F16", "BF16", "Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0")
ROWS, COLUMNS = 64, 64  # two blocks in a row


def random_weights(seed: int, shape: tuple[int, ...] = (ROWS, COLUMNS), tails: float = 4.0) -> np.ndarray:
    return (0.05 * np.random.default_rng(seed).standard_t(tails, size=shape)).astype(np.float32)


def round_trip(values: np.ndarray, kind: str) -> np.ndarray:
    """Returns the values after they were stored in a type."""
    rows = quants.quantize(np.ascontiguousarray(values, np.float32), GGMLQuantizationType[kind])
    return dequantised(np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), -1), kind, "it")


OTHER = random_weights(7)


def others() -> Iterator[tuple[str, np.ndarray]]:
    yield "first", random_weights(6)
    yield "other", OTHER


def difference_of(own: np.ndarray, candidate: np.ndarray, kind: str) -> WeightDifference | None:
    return weight_difference("it", own, candidate, kind, others)


def one_row(own: np.ndarray, factor: float) -> np.ndarray:
    changed = own.copy()
    changed[5] *= factor
    return changed


def one_block(own: np.ndarray) -> np.ndarray:
    changed = own.copy()
    changed[5, 32:] *= 2
    return changed


def interleaved(own: np.ndarray) -> np.ndarray:
    return own.reshape(4, 2, ROWS // 8, COLUMNS).swapaxes(1, 2).reshape(own.shape)


Change = Callable[[np.ndarray], np.ndarray]
CAUSES: dict[str, tuple[Change, str, str]] = {
    "zero": (np.zeros_like, "zero", "is zero"),
    "twice": (lambda own: 2 * own, "factor", "is 2 times the checkpoint's"),
    "negative": (np.negative, "factor", "is the negative of the checkpoint's"),
    "transposed": (lambda own: own.T, "transposed", "is transposed"),
    "another": (lambda own: OTHER, "other tensor", "holds other"),
    "a row twice": (lambda own: one_row(own, 2), "factor", "is 2 times the checkpoint's in row 5"),
    "a row zero": (lambda own: one_row(own, 0), "zero", "is zero in row 5"),
    "a block twice": (one_block, "factor", "is 2 times the checkpoint's in "),
    "reversed rows": (lambda own: own[::-1], "rows", "rows 0, 1, 2, 3, 4, 5, 6, 7, ... are the checkpoint's 63, 62"),
    "rotated rows": (lambda own: np.roll(own, 1, axis=0), "rows", "has its rows in another order"),
    "Llama's rows": (interleaved, "rows", "has the halves of each head of 16 rows interleaved"),
    "rotated columns": (lambda own: np.roll(own, 32, axis=1), "columns", "has its columns in another order"),
}


@pytest.mark.parametrize("kind", TYPES)
def test_quantisation_rounding_is_no_difference(kind: str) -> None:
    for seed in range(10):
        own = random_weights(seed, tails=1.5 + seed)
        own[seed] *= 1e-4  # a small row, whose scale is a small number in half precision
        own[seed + 1] = 0
        assert difference_of(own, round_trip(own, kind), kind) is None


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("cause", CAUSES)
def test_known_cause_of_a_tensor_difference_is_named(cause: str, kind: str) -> None:
    change, expected, words = CAUSES[cause]
    own = random_weights(1, tails=30)
    difference = difference_of(own, round_trip(change(own), kind), kind)
    assert difference and difference.kind == expected and words in difference.sentence, difference


UNKNOWN: dict[str, Change] = {
    "noise": lambda own: own + random_weights(3),
    "noise in rows": lambda own: np.where(np.arange(ROWS)[:, None] % 5, own, own + random_weights(3)),
    "a stranger": lambda own: random_weights(4),
    "each row its own factor": lambda own: own * np.linspace(2, 5, ROWS)[:, None],
    "each column its own factor": lambda own: own * np.linspace(2, 5, COLUMNS),
    "squares": lambda own: 20 * own * np.abs(own),
    "rows and signs": lambda own: np.roll(own, 1, axis=0) * np.where(np.arange(ROWS) % 2, 1, -1)[:, None],
    "a mean with another": lambda own: 0.5 * (own + OTHER),
    "a row over all": lambda own: np.repeat(own[:1], ROWS, axis=0),
}


@pytest.mark.parametrize(
    "kind, position",
    [("F32", "row 5, columns 32 to 63"), ("Q8_0", "1 block of 32 values (the first is row 5, columns 32 to 63)")],
)
def test_position_of_a_wrong_block_is_named(kind: str, position: str) -> None:
    own = random_weights(1, tails=30)
    difference = difference_of(own, round_trip(one_block(own), kind), kind)
    assert difference and difference.sentence == f"is 2 times the checkpoint's in {position}"


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("fault", UNKNOWN)
def test_unknown_faults_get_no_cause(fault: str, kind: str) -> None:
    for seed in range(10, 20):
        own = random_weights(seed)
        difference = difference_of(own, round_trip(UNKNOWN[fault](own), kind), kind)
        if kind in ("F32", "F16", "BF16", "Q8_0"):
            assert difference is not None
        assert difference is None or difference.kind == "values", difference


@pytest.mark.parametrize("kind", ["Q5_0", "Q4_0"])
def test_block_quantised_with_an_importance_matrix_is_no_difference(kind: str) -> None:
    own = random_weights(2)
    candidate = round_trip(own, kind)
    candidate[3, :32] *= 0.65  # such a block is scaled for its important values, and the largest one suffers
    assert difference_of(own, candidate, kind) is None


def test_indistinguishable_causes_are_named_together() -> None:
    ones = np.ones(16, np.float32)
    difference = weight_difference("norm", ones, 2 * ones, "F32", lambda: ())
    assert difference and difference.sentence == "is 2 times the checkpoint's or is the checkpoint's plus 1"


def test_vectors_are_compared_without_row_causes() -> None:
    bias = random_weights(1, (16,))
    assert difference_of(bias, bias.copy(), "F32") is None
    for changed, words in (
        (0 * bias, "is zero"),
        (bias + 1, "is the checkpoint's plus 1"),
        (bias[::-1], "differs from the checkpoint's by a relative L2 of"),
    ):
        difference = difference_of(bias, changed, "F32")
        assert difference and difference.sentence.startswith(words)


def test_non_finite_values_and_different_shapes_are_reported() -> None:
    own, broken = random_weights(1), random_weights(1)
    broken[2, 3] = np.nan
    differences = [difference_of(own, each, "F32") for each in (broken, own[:32], random_weights(1, (32, 64)).T)]
    assert [each.sentence for each in differences if each] == [
        "holds 1 infinite or NaN value",
        "has the shape 32×64, the checkpoint's 64×64",
        "has the shape 64×32, the checkpoint's 64×64",
    ]
    wide = random_weights(1, (32, 64))
    turned = difference_of(wide, wide.T, "F32")
    assert turned and turned.sentence == "is transposed: its shape is 64×32, the checkpoint's 32×64"
