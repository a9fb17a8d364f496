"""Explanations of heads, halves of channels or transposed stacks in another order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from workbench.compare.explain import explain
from workbench.compare.guesses.guess import Scene

X = np.random.default_rng(6).standard_normal((12, 4, 8)).astype(np.float32)


@pytest.mark.parametrize(
    "reference, candidate, words",
    [
        (X, X[:, [2, 3, 0, 1]], "heads 0, 1, 2, 3 hold what the reference has in heads 2, 3, 0, 1"),
        (X, X[:, [0, 2, 1, 3]], "heads 1, 2 hold what the reference has in heads 2, 1"),
        (X, X[:, :, [4, 5, 6, 7, 0, 1, 2, 3]], "the halves of each 8 channels have changed places"),
        (
            X[:, :3].reshape(12, 24),
            X[:, :3].swapaxes(1, 2).reshape(12, 24),
            "it holds the first channel of each of the reference's 3 blocks of 8, then the second of each",
        ),
    ],
)
def test_changed_order_of_heads_or_stacked_channels_is_named(
    reference: np.ndarray, candidate: np.ndarray, words: str
) -> None:
    hint = explain(Scene("llm.layers.1.attention.query", reference, candidate, 1e-6), 1.0)
    assert hint is not None and words in hint.sentence


@pytest.mark.parametrize("shift, words", [(160, "160 positions late"), (-7, "7 positions early"), (900, None)])
def test_shift_of_a_sound_is_found(shift: int, words: str | None) -> None:
    sound, other = np.random.default_rng(8).standard_normal((2, 1600))
    shifted = np.concatenate([other[:shift], sound[:-shift]] if shift > 0 else [sound[-shift:], other[:-shift]])
    hint = explain(Scene("codec.audio", sound, shifted, 1e-6), 1.0)
    assert hint is None if words is None else hint is not None and f"its samples come {words};" in hint.sentence


def test_silence_elsewhere_is_no_shift() -> None:
    frames = np.full((60, 12), -15.9424)
    frames[30:] += np.random.default_rng(9).random((30, 12))  # silence, then sound
    muted = np.concatenate([frames[30:] ** 2, frames[:30]])  # another sound, then silence
    assert explain(Scene("frontend.fbank", frames, muted, 1e-6), 1.0) is None


def test_shift_of_rows_by_many_is_found() -> None:
    rows, other = np.random.default_rng(9).standard_normal((2, 60, 12))
    late = np.concatenate([other[:5], rows[:-5]])
    hint = explain(Scene("encoder.output", rows, late, 1e-6), 1.0)
    assert hint is not None and hint.sentence.startswith("its rows come 5 positions late")


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda weights: np.roll(weights, 1, axis=0), "its heads come one position late"),
        (lambda weights: weights[::-1], "its heads are in reverse order"),
        (lambda weights: weights.swapaxes(1, 2), "its queries and keys have changed places"),
        (lambda weights: weights * (1 - (np.arange(11) == 2) / 2)[:, None, None], "of 11 heads, only head 2 differs"),
    ],
)
def test_changed_attention_weights_are_described_by_heads_and_keys(
    change: Callable[[np.ndarray], np.ndarray], words: str
) -> None:
    weights = np.random.default_rng(7).random((11, 9, 9))
    hint = explain(Scene("llm.layers.1.attention.weights", weights, change(weights), 1e-6), 1.0)
    assert hint is not None and words in hint.sentence


@pytest.mark.parametrize(
    ("sources", "words"),
    [
        ({5: 4}, "row 5 holds what the reference has in row 4;"),
        ({4: 0, 5: 1, 6: 2, 7: 3}, "rows 4 to 7 hold what the reference has in rows 0 to 3;"),
        ({9: 30, 30: 30}, "row 9 holds what the reference has in row 30;"),
        ({2: 20, 3: 11}, "rows 2, 3 hold what the reference has in rows 20, 11;"),
    ],
)
def test_rows_of_a_stale_cache_are_named(sources: dict[int, int], words: str) -> None:
    cache = np.random.default_rng(3).standard_normal((40, 2, 6)).astype(np.float32)
    stale = cache.copy()
    for row, source in sources.items():
        stale[row] = cache[source]
    hint = explain(Scene("steps.3.llm.layers.1.cache.value", cache, stale, 1e-6), 0.3)
    assert hint is not None and hint.sentence.startswith(words)


@pytest.mark.parametrize("columns", [30, 5000])
def test_exchanged_entries_of_a_vocabulary_of_any_size_are_named(columns: int) -> None:
    logits = np.random.default_rng(3).standard_normal((4, columns)).astype(np.float32)
    wrong = logits.copy()
    wrong[:, [3, 7, 20]] = logits[:, [7, 20, 3]]
    hint = explain(Scene("logits", logits, wrong, 1e-6), 0.3)
    assert hint is not None
    assert hint.sentence.startswith("channels 3, 7, 20 hold what the reference has in channels 7, 20, 3;")
    wrong[:, 4] = 2 * wrong[:, 5]
    assert explain(Scene("logits", logits, wrong, 1e-6), 0.3) is None


@pytest.mark.parametrize(
    ("zeros", "copied", "words"),
    [
        ([5], {}, "of 40 rows, row 5 is zeros, and the others agree;"),
        ([5, 6], {}, "of 40 rows, rows 5, 6 are zeros, and the others agree;"),
        ([5], {8: 3}, "row 5 is zeros, and row 8 holds what the reference has in row 3;"),
    ],
)
@pytest.mark.parametrize("first", [0.0, 1.0])
def test_zeros_are_no_copies_of_a_row_of_zeros(
    zeros: list[int], copied: dict[int, int], words: str, first: float
) -> None:
    cache = np.random.default_rng(3).standard_normal((40, 2, 6)).astype(np.float32)
    cache[0] *= first
    wrong = cache.copy()
    wrong[zeros] = 0
    for row, source in copied.items():
        wrong[row] = cache[source]
    hint = explain(Scene("steps.3.llm.layers.1.cache.value", cache, wrong, 1e-6), 0.3)
    assert hint is not None and hint.sentence.startswith(words)


def test_rows_of_another_sequence_are_not_taken_for_copies() -> None:
    cache, other = np.random.default_rng(3).standard_normal((2, 40, 12)).astype(np.float32)
    stale = np.concatenate([cache[:20], other[20:24], cache[24:]])
    assert explain(Scene("steps.3.llm.layers.1.cache.value", cache, stale, 1e-6), 0.3) is None
