"""Explanations of a wrong convolution kernel over time (reversed, shifted, rolled, without a tap)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from workbench.compare.explain import explain
from workbench.compare.guesses.convolutions import convolutions
from workbench.compare.guesses.guess import Hint, Linear, Scene

DRAW = np.random.default_rng(4)
X = DRAW.standard_normal((60, 4, 3)).astype(np.float32)
KERNEL = DRAW.standard_normal((12, 11))


def memory(kernel: np.ndarray, shift: int = 0, times: float = 1.0, edges: Any = "constant") -> np.ndarray:
    """Returns a convolution over time, plus its input; beyond the ends are zeros, or what a mode of `np.pad` gives."""
    x, reach = X.reshape(60, 12).astype(np.float64), kernel.shape[1] // 2
    padded = np.pad(x, ((20, 20), (0, 0)), mode=edges)
    parts = (
        padded[20 + tap - reach + shift : 80 + tap - reach + shift] * kernel[:, tap] for tap in range(2 * reach + 1)
    )
    return np.asarray(sum(parts) + times * x)


def hint_of(candidate: np.ndarray, stage: str = "encoder.layers.1.fsmn", times: float = 1.0) -> Hint | None:
    entering = stage.replace("fsmn", "attention.value").replace("depthwise", "gate")
    parts = {entering: X if stage.endswith("fsmn") else X.reshape(60, 12)}
    reference, candidate = (each.astype(np.float32) for each in (memory(KERNEL, times=times), candidate))
    return explain(Scene(stage, reference, candidate, 1e-6, parts, parts, (entering,)), 1.0)


@pytest.mark.parametrize(
    "candidate, sentence",
    [
        (memory(KERNEL[:, ::-1]), "the kernel of its convolution is reversed in time"),
        (memory(KERNEL, shift=1), "its convolution looks 1 frame further ahead"),
        (memory(KERNEL, shift=-2), "its convolution looks 2 frames further back"),
        (memory(np.roll(KERNEL, 1, axis=1)), "the taps of its kernel are rolled by +1: the last is first"),
        (memory(KERNEL * (np.arange(11) != 3)), "its convolution lacks the tap at frame -2"),
        (memory(KERNEL, times=0.0), "its input is not added to its convolution"),
        (memory(KERNEL[:, ::-1], times=0.0), "the kernel of its convolution is reversed in time, and its input is not"),
        (memory(KERNEL, times=2.0), "its input is added twice to its convolution"),
        (memory(0 * KERNEL), "its convolution is left out, and it equals the input that is added;"),
        (memory(2 * KERNEL, times=2.0), "it is 2 times the reference;"),
        (memory(0.5 * KERNEL), "its convolution is multiplied by 0.5;"),
        (memory(KERNEL[::-1]), "its convolution over time has another kernel"),
    ],
)
def test_changed_memory_kernel_is_named(candidate: np.ndarray, sentence: str) -> None:
    hint = hint_of(candidate)
    assert hint is not None and hint.kind == "kernel" and hint.sentence.startswith(sentence)


@pytest.mark.parametrize(
    "candidate, sentence",
    [
        (memory(KERNEL, shift=-5), "its convolution looks 5 frames further back;"),
        (memory(KERNEL, shift=8), "its convolution looks 8 frames further ahead;"),
        (memory(KERNEL[:, ::-1], shift=-5), "the kernel of its convolution is reversed in time, and it looks 5 frames"),
        (memory(KERNEL, shift=-5, times=0.0), "its convolution looks 5 frames further back, and its input is not add"),
        (
            memory(KERNEL, edges="edge"),
            "its convolution has copies of the first and last frame beyond the ends, where the reference has zeros",
        ),
        (memory(KERNEL, edges="reflect"), "its convolution has the mirrored frames beyond the ends, where the"),
        (memory(KERNEL, edges="wrap"), "its convolution has the frames of the other end beyond the ends, where"),
    ],
)
def test_far_shift_and_other_edges_of_a_convolution_are_named(candidate: np.ndarray, sentence: str) -> None:
    hint = hint_of(candidate)
    assert hint is not None and hint.kind in ("kernel", "edges") and hint.sentence.startswith(sentence)


@pytest.mark.parametrize(
    ("turn", "first", "words"),
    [
        (1, 0.0, "its convolution comes one frame late and begins with zeros; its input does not;"),
        (1, 1.0, "its convolution comes one frame late and begins with the last one; its input does not;"),
        (-1, 0.0, "its convolution comes one frame early and ends with zeros; its input does not;"),
    ],
)
def test_memory_of_a_neighbouring_frame_is_named(turn: int, first: float, words: str) -> None:
    moved = np.roll(memory(KERNEL, times=0.0), turn, axis=0)
    moved[0 if turn > 0 else -1] *= first
    hint = hint_of(moved + X.reshape(60, 12))
    assert hint is not None and hint.kind == "memory" and hint.sentence.startswith(words)


TOKENS = X[:4].reshape(4, 12).astype(np.float64)


def token_memory(kernel: np.ndarray, left: int = 5, times: float = 1.0, mode: Any = "constant") -> np.ndarray:
    """Returns the memory of four tokens, with a kernel of 11 taps of which `left` look back."""
    padded = np.pad(TOKENS, ((left, 10 - left), (0, 0)), mode=mode)
    return np.asarray(sum(padded[tap : tap + 4] * kernel[:, tap] for tap in range(11)) + times * TOKENS)


@pytest.mark.parametrize(
    ("candidate", "left", "words"),
    [
        (token_memory(KERNEL, 6), 5, "its convolution looks 1 token further back;"),
        (token_memory(KERNEL, 4), 5, "its convolution looks 1 token further ahead;"),
        (token_memory(KERNEL, 10), 5, "its convolution looks 5 tokens further back;"),
        (token_memory(KERNEL, 5), 10, "its convolution looks 5 tokens further ahead;"),
        (token_memory(KERNEL[:, ::-1]), 5, "the kernel of its convolution is reversed in time;"),
        (token_memory(KERNEL, times=0.0), 5, "its input is not added to its convolution;"),
        (token_memory(KERNEL[:, ::-1], times=0.0), 5, "the kernel of its convolution is reversed in time, and its inp"),
        (token_memory(KERNEL, times=2.0), 5, "its input is added twice to its convolution;"),
        (token_memory(KERNEL * (np.arange(11) != 3)), 5, "its convolution lacks the tap at token -2;"),
        (token_memory(KERNEL, mode="edge"), 5, "its convolution has copies of the first and last token beyond"),
        (token_memory(KERNEL[::-1]), 5, None),
        (token_memory(KERNEL) + 1e-3 * DRAW.standard_normal((4, 12)), 5, None),
    ],
)
def test_changed_memory_of_few_tokens_is_named_by_the_weights_of_the_checkpoint(
    candidate: np.ndarray, left: int, words: str | None
) -> None:
    stage, entering = "decoder.layers.1.fsmn", "decoder.layers.1.fsmn_norm"
    reference, parts = token_memory(KERNEL, left), {entering: TOKENS}

    def layers(stages: Sequence[str]) -> dict[str, Linear]:
        return {each: Linear(KERNEL.astype(np.float32)) for each in stages if each == stage}

    hint = explain(Scene(stage, reference, candidate, 1e-6, parts, parts, (entering,), layers=layers), 1.0)
    found = hint and hint.sentence
    assert found is None if words is None else found is not None and found.startswith(words)


def test_memory_of_another_input_gets_no_hint_of_its_own() -> None:
    stage, entering = "decoder.layers.1.fsmn", "decoder.layers.1.fsmn_norm"
    reference = token_memory(KERNEL)
    scene = Scene(
        stage, reference, 1.001 * reference, 1e-6, {entering: TOKENS}, {entering: 1.001 * TOKENS}, (entering,),
        layers=lambda stages: dict.fromkeys(stages, Linear(KERNEL)),
    )  # fmt: skip
    assert [each.words for each in convolutions(scene) if each.kind != "memory"] == []


def test_memory_is_named_although_the_candidate_lacks_its_input() -> None:
    stage, parts = "encoder.layers.1.fsmn", {"encoder.layers.1.attention.value": X}
    hint = explain(Scene(stage, memory(KERNEL), memory(KERNEL[:, ::-1]), 1e-6, parts), 1.0)
    assert hint is not None and hint.sentence.startswith("the kernel of its convolution is reversed in time;")
    assert explain(Scene(stage, memory(KERNEL), memory(KERNEL[:, ::-1]), 1e-6), 1.0) is None


def test_kernel_is_compared_no_more_closely_than_the_arithmetic_rounds() -> None:
    rounding = 1 + 2e-3 * np.random.default_rng(5).standard_normal((60, 12))
    parts = {"encoder.layers.1.attention.value": X}
    reversed_kernel = memory(KERNEL[:, ::-1]) * rounding
    hint = explain(
        Scene("encoder.layers.1.fsmn", memory(KERNEL), reversed_kernel, 6e-3, parts, parts, tuple(parts)), 1.0
    )
    assert hint is not None and hint.sentence.startswith("the kernel of its convolution is reversed in time")


def test_convolution_without_residual_input_is_explained() -> None:
    hint = hint_of(memory(KERNEL[:, ::-1], times=0.0), "encoder.layers.1.conv.depthwise", times=0.0)
    assert hint is not None and hint.sentence.startswith("the kernel of its convolution is reversed in time")


def test_difference_that_is_no_convolution_gets_no_kernel_hint() -> None:
    assert hint_of(np.maximum(memory(KERNEL[:, ::-1]), 0.1)) is None
    assert hint_of(memory(KERNEL) + 1e-3 * DRAW.standard_normal((60, 12))) is None


def chunked(length: int, keeps_earlier: bool) -> np.ndarray:
    """Returns the memory of X, computed one chunk after another, with or without the frames before a chunk."""
    x, parts = X.reshape(60, 12).astype(np.float64), []
    for start in range(0, 60, length):
        seen = x[0 if keeps_earlier else start : start + length]
        padded = np.pad(seen, ((5, 5), (0, 0)))
        whole = sum(padded[tap : len(padded) - 10 + tap] * KERNEL[:, tap] for tap in range(11)) + seen
        parts.append(np.asarray(whole)[-len(x[start : start + length]) :])
    return np.concatenate(parts)


@pytest.mark.parametrize("length", [10, 7, 45])
def test_memory_of_chunks_is_named_with_their_length(length: int) -> None:
    for keeps_earlier, place in ((False, "beyond its"), (True, "behind the end of its")):
        hint = hint_of(chunked(length, keeps_earlier))
        assert hint is not None and hint.kind == "chunks"
        assert hint.sentence.startswith(f"its convolution sees zeros {place} chunk of {length} frames, where the ref")
