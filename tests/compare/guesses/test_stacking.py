"""Explanations of LFR frames that are stacked in another way, from the fbank features."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.audio.lfr import stack_frames
from workbench.compare import compare, judge
from workbench.compare.guesses.guess import Hint
from workbench.trace.trace import Trace

BANK = (np.random.default_rng(1).standard_normal((50, 8)) + 9).astype(np.float32)
RIGHT = stack_frames(BANK, 7, 6)


def hint_of(stacks: np.ndarray, bank: np.ndarray = BANK) -> Hint | None:
    reference, candidate = ({"frontend.fbank": x, "frontend.lfr": y} for x, y in ((BANK, RIGHT), (bank, stacks)))
    return judge(compare(Trace(reference, {}), Trace(candidate, {}))).explanation


def stack_with_copies(copies: int) -> np.ndarray:
    places = np.arange(9)[:, None] * 6 + np.arange(7) - copies
    return np.asarray(BANK[places.clip(0, 49)].reshape(9, -1))


def zeros(front: bool, end: bool) -> np.ndarray:
    places = np.arange(9)[:, None] * 6 + np.arange(7) - 3
    hidden = ((places < 0) & front) | ((places > 49) & end)
    return np.where(hidden[..., None], 0, BANK[places.clip(0, 49)]).reshape(9, -1).astype(np.float32)


@pytest.mark.parametrize(
    "stacks, sentence",
    [
        (stack_with_copies(4), "4 copies of the first frame stand before the first, where the reference has 3"),
        (stack_with_copies(0), "0 copies of the first frame stand before the first, where the reference has 3"),
        (stack_with_copies(1), "1 copy of the first frame stands before the first, where the reference has 3"),
        (zeros(True, False), "its padding at the front is zeros, where the reference repeats a frame"),
        (zeros(True, True), "its padding at the front and end is zeros"),
        (stack_frames(BANK, 7, 5)[:9], "a stack begins every 5 frames, where the reference's begins every 6"),
    ],
)
def test_different_frame_stacking_is_named(stacks: np.ndarray, sentence: str) -> None:
    hint = hint_of(stacks)
    assert hint is not None and hint.kind == "stacking" and hint.sentence.startswith(sentence)


@pytest.mark.parametrize(
    ("stacks", "sentence"),
    [
        (
            stack_with_copies(0)[:8],
            "the shapes are 9×56 and 8×56: 0 copies of the first frame stand before the first, where the reference has "
            "3; nothing else differs",
        ),
        (
            stack_frames(BANK, 7, 7),
            "the shapes are 9×56 and 8×56: a stack begins every 7 frames, where the reference's",
        ),
        (stack_frames(BANK, 7, 5), "the shapes are 9×56 and 10×56: a stack begins every 5 frames, where the reference"),
    ],
)
def test_another_number_of_stacks_is_explained(stacks: np.ndarray, sentence: str) -> None:
    traces = (Trace({"frontend.fbank": BANK, "frontend.lfr": each}, {}) for each in (RIGHT, stacks))
    verdict = judge(compare(*traces))
    assert sentence in verdict.sentence and verdict.explanation is not None and verdict.explanation.kind == "stacking"


def test_a_missing_stack_keeps_its_own_sentence() -> None:
    traces = (Trace({"frontend.fbank": BANK, "frontend.lfr": each}, {}) for each in (RIGHT, RIGHT[:-1]))
    assert "9×56 and 8×56: the reference has 1 row more at the end" in judge(compare(*traces)).sentence


def test_fbank_error_gets_no_stacking_hint() -> None:
    other = BANK + np.float32(5e-5) * np.random.default_rng(3).standard_normal(BANK.shape).astype(np.float32)
    assert hint_of(stack_frames(other, 7, 6), other) is None


def test_stacks_of_another_width_than_the_frames_get_no_hint() -> None:
    stacks = np.random.default_rng(4).standard_normal((50, 9))
    traces = (Trace({"frontend.fbank": BANK, "frontend.lfr": each}, {}) for each in (stacks, stacks + stacks**2))
    assert judge(compare(*traces)).explanation is None
