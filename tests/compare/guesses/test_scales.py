"""Explanations by factors and constants per channel name a cause that suits the stage, and zeros are named."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.compare.explain import explain
from workbench.compare.guesses.guess import Scene

DRAW = np.random.default_rng(5)
X = DRAW.standard_normal((20, 32)).astype(np.float32) + 2
FACTORS, CONSTANTS = 0.5 + DRAW.random(32), DRAW.standard_normal(32)


def hint_sentence(stage: str, candidate: np.ndarray, reference: np.ndarray = X) -> str:
    hint = explain(Scene(stage, reference, candidate.astype(np.float32), 1e-6), 0.1)
    return hint.sentence if hint else ""


@pytest.mark.parametrize(
    "stage, candidate, words",
    [
        ("llm.layers.1.mlp.up", FACTORS * X, "as when the rows of its weight have other scales"),
        ("frontend.features", FACTORS * X, "as when CMVN has another scale"),
        ("llm.norm", FACTORS * X, "as when a norm's weight is left out or wrong"),
        ("llm.layers.1.mlp.up", FACTORS * X + CONSTANTS, "the rows of its weight have other scales and its bias has n"),
        ("frontend.features", FACTORS * X + CONSTANTS, "as when CMVN is left out, done twice or wrong"),
        ("llm.layers.1.mlp.up", 1.01 * X + CONSTANTS, "each channel is 1.01 times the reference's plus a constant of"),
        ("llm.layers.1.attention.query", X * (np.arange(32) < 16), "channels 16 to 31 are zeros, and the others agree"),
        ("llm.layers.1", X * (np.arange(32) % 9 > 0), "channels 0, 9, 18, 27 are zeros, and the others agree"),
        (
            "llm.layers.1",
            X * (np.arange(20)[:, None] < 12),
            "of 20 rows, rows 12 to 19 are zeros, and the others agree",
        ),
        (
            "llm.layers.1",
            X + (np.arange(32) // 10 == 2),
            "of 32 channels, only channels 20 to 29 differ: each is the r",
        ),
        ("llm.layers.1", X + 0.1 * (np.arange(20)[:, None] // 7 == 1), "of 20 rows, only rows 7 to 13 differ: each is"),
        ("llm.layers.1", X * (np.arange(20)[:, None] < 19), "of 20 rows, row 19 is zeros, and the others agree"),
        ("frontend.fbank", X + CONSTANTS, "its triangles have another height or the sound is filtered"),
        ("frontend.fbank", X + 2 * np.log(1.1), "plus 0.19062 (as if the samples were multiplied by 1.1)"),
        ("frontend.fbank", X + 2000, "it is the reference plus 2000; "),
        ("llm.norm", (31 / 32) ** 0.5 * X, "(√(31/32), as when a norm divides its sum by 31, not by 32)"),
        ("llm.norm", 0.984 * X, "it is 0.984 times the reference; "),
    ],
)
def test_factor_and_constant_hint_names_a_cause_for_the_stage(stage: str, candidate: np.ndarray, words: str) -> None:
    assert words in hint_sentence(stage, candidate)


def test_rounding_of_other_rows_and_channels_is_not_named() -> None:
    rounding = 1 + 3e-3 * np.random.default_rng(9).standard_normal((48, 32))
    reference = np.random.default_rng(8).standard_normal((48, 32))
    for axis, unit in ((0, "row"), (1, "channel")):
        for factor, words in ((0.0, f"{unit} 5 is zeros, and the others agree"), (2.0, f"only {unit} 5 differs: it")):
            changed = reference * rounding
            changed.swapaxes(0, axis)[5] *= factor
            hint = explain(Scene("llm.layers.1", reference, changed, 6e-3, roundoff=2.0**-8), 0.2)
            assert hint is not None and words in hint.sentence


def test_no_number_is_fitted_to_each_pair_of_query_and_key() -> None:
    weights = np.random.default_rng(6).random((4, 12, 12))
    changed = weights * (1 + 0.5 * (np.arange(144) % 20 == 3).reshape(12, 12))
    assert hint_sentence("llm.layers.1.attention.weights", changed, weights) == ""


def test_missing_bias_is_found_from_three_rows_not_two() -> None:
    assert hint_sentence("logits", X[:3] + CONSTANTS, X[:3]).startswith(
        "each channel is the reference's plus a constant"
    )
    assert hint_sentence("logits", X[:2] + CONSTANTS, X[:2]) == ""


def test_identical_rows_get_no_bias_hint() -> None:
    alike = np.repeat(X[:1], 9, axis=0)
    assert hint_sentence("logits", alike + CONSTANTS, alike) == ""
