"""Comparison of tensors in types of 1 to 3 bits: causes are named where only the noise of the type is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

pytest.importorskip("llama_cpp")

from tests.compare.weights.test_tensor import one_row
from tests.support.ggml_quantizer import quantised
from workbench.compare.weights import token_table
from workbench.compare.weights.tensor import WeightDifference, weight_difference
from workbench.compare.weights.token_table import Table, table_difference

ROWS, COLUMNS = 64, 256
CODEBOOKS = (  # types of any weights; ggml prepares tables of two of them for many seconds
    *("IQ3_S", "IQ3_XXS", "Q2_K", "IQ2_XXS"),
    *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("IQ2_S", "IQ2_XS")),
)
TERNARY = ("TQ2_0", "TQ1_0")  # types of models whose weights are -d, 0 or d
KINDS = (*CODEBOOKS, *TERNARY)
Change = Callable[[np.ndarray], np.ndarray]


def drawn(seed: int, kind: str) -> np.ndarray:
    draw = np.random.default_rng(seed)
    values = draw.integers(-1, 2, (ROWS, COLUMNS)) if kind in TERNARY else draw.standard_t(4, (ROWS, COLUMNS))
    return (0.05 * values).astype(np.float32)


def stored(values: np.ndarray, kind: str, spread: float) -> np.ndarray:
    """The values in a type, with an importance of the columns that varies by this much."""
    return quantised(values, kind, np.exp(np.random.default_rng(9).normal(0, spread, COLUMNS)))


def others(kind: str) -> Iterator[tuple[str, np.ndarray]]:
    yield "first", drawn(6, kind)
    yield "other", drawn(7, kind)


def found(own: np.ndarray, theirs: np.ndarray, kind: str) -> WeightDifference | None:
    return weight_difference("it", own, theirs, kind, lambda: others(kind))


CAUSES: dict[str, tuple[Change, str, str]] = {
    "zero": (np.zeros_like, "zero", "is zero"),
    "negative": (np.negative, "factor", "is the negative of the checkpoint's"),
    "a row negative": (lambda own: one_row(own, -1), "factor", "is the negative of the checkpoint's in row 5"),
    "a row zero": (lambda own: one_row(own, 0), "zero", "is zero in row 5"),
    "transposed bytes": (
        lambda own: np.ascontiguousarray(own.T).reshape(own.shape),
        "transposed",
        "holds the transposed matrix, written in the old shape",
    ),
    "two rows exchanged": (lambda own: own[[1, 0, *range(2, ROWS)]], "rows", "rows 0, 1 are the checkpoint's 1, 0"),
    "Llama's rows": (
        lambda own: own.reshape(4, 2, ROWS // 8, COLUMNS).swapaxes(1, 2).reshape(own.shape),
        "rows",
        "has the halves of each head of 16 rows interleaved",
    ),
    "rotated columns": (lambda own: np.roll(own, 32, axis=1), "columns", "has its columns in another order"),
}


@pytest.mark.parametrize("spread", [0.0, 1.5])
@pytest.mark.parametrize("kind", KINDS)
def test_rounding_in_few_bits_is_no_difference(kind: str, spread: float) -> None:
    for seed in range(2):
        own = drawn(seed, "Q2_K")
        assert found(own, stored(own, kind, spread), kind) is None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cause", CAUSES)
def test_known_cause_is_named_in_few_bits(cause: str, kind: str) -> None:
    change, expected, words = CAUSES[cause]
    own = drawn(1, kind)
    difference = found(own, stored(change(own), kind, 1.5), kind)
    assert difference and difference.kind == expected and words in difference.sentence, difference


@pytest.mark.parametrize("kind", KINDS)
def test_another_tensor_is_named_in_few_bits(kind: str) -> None:
    own = drawn(1, kind)
    difference = found(own, stored(drawn(7, kind), kind, 1.0), kind)
    assert difference and difference.sentence == "holds other"


UNKNOWN: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "a stranger": lambda own, other: np.roll(other[::-1], 7, axis=1) * np.where(np.arange(COLUMNS) % 3, 1, -1),
    "noise": lambda own, other: own + 1.1 * other,
    "each row its own factor": lambda own, other: own * np.linspace(2, 5, ROWS)[:, None],
    "each column its own factor": lambda own, other: own * np.linspace(2, 5, COLUMNS),
    "squares": lambda own, other: 20 * own * np.abs(own),
    "rows and signs": lambda own, other: np.roll(own, 1, axis=0) * np.where(np.arange(ROWS) % 2, 1, -1)[:, None],
    "mostly another": lambda own, other: 0.3 * own + 0.7 * other,
    "a fifth is left": lambda own, other: 0.2 * own + 0.8 * other,
    "a row over all": lambda own, other: np.repeat(own[:1], ROWS, axis=0),
}


@pytest.mark.parametrize("kind", CODEBOOKS)
@pytest.mark.parametrize("fault", UNKNOWN)
def test_unknown_faults_get_no_cause_in_few_bits(fault: str, kind: str) -> None:
    for seed in range(10, 12):
        own = drawn(seed, kind)
        difference = found(own, stored(UNKNOWN[fault](own, drawn(7, kind)), kind, seed % 2), kind)
        assert difference is None or difference.kind == "values", difference


@pytest.mark.parametrize("kind", KINDS)
def test_known_cause_of_a_table_is_named_in_few_bits(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_table, "STEP", 7 * COLUMNS)
    own, other = drawn(1, kind), drawn(7, kind)
    for theirs, words in (
        (own, None),
        (0 * own, "is zero"),
        (-own, "is the negative of the checkpoint's"),
        (other, "holds other"),
        (own[[1, 0, *range(2, ROWS)]], "has its rows in another order: rows 0, 1 are the checkpoint's 1, 0"),
        (np.concatenate([own[:20], own[21:], other[:1]]), "are the checkpoint's 21, 22, 23, 24, 25, 26, 27, 28, ..."),
    ):
        file = stored(theirs, kind, 0.0)
        table = Table("it", own.shape, lambda a, b: own[a:b], lambda a, b, file=file: file[a:b], kind)
        difference = table_difference(table, [("other", lambda a, b: other[a:b])])
        assert difference is None if words is None else difference and words in difference.sentence, difference
