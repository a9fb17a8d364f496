"""Recordings in one batch that advance at different speeds read the same frames as each recording alone."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.decoding.ctc_beam import progress as module
from workbench.decoding.ctc_beam.logits import Frames, log_probabilities
from workbench.decoding.ctc_beam.progress import Progress

VOCABULARY, BLANK = 5, 2


@pytest.mark.parametrize("at_once", [1, 3, 64])
def test_every_frame_is_read_once_and_in_order(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_AT_ONCE", at_once)
    rng = np.random.default_rng(at_once)
    batch = [rng.normal(size=(length, VOCABULARY)) for length in (11, 10, 4, 1)]
    expected = [log_probabilities(logits, VOCABULARY) for logits in batch]
    progress = Progress([Frames(logits, VOCABULARY) for logits in batch], VOCABULARY, BLANK)
    read: list[list[np.ndarray]] = [[] for _ in batch]
    while progress.unfinished:
        running = progress.running[: progress.unfinished]
        moved = running & (rng.random(progress.unfinished) < 0.5)
        tokens = np.tile(np.arange(VOCABULARY), (progress.unfinished, 1))
        values = progress.token_log_probs(tokens)
        for each in np.flatnonzero(moved).tolist():
            frame = values[each].copy()
            frame[BLANK] = progress.blank_log_probs[each]
            assert progress.best_log_probs[each] == np.delete(frame, BLANK).max()
            others = progress.frames(np.array([each]))[0]
            assert others[BLANK] == -np.inf
            np.testing.assert_array_equal(np.delete(others, BLANK), np.delete(frame, BLANK))
            read[each].append(frame)
        progress.step(moved)
    for frames, logits in zip(read, expected, strict=True):
        np.testing.assert_array_equal(frames, logits)


def test_empty_recordings_are_not_active() -> None:
    assert Progress([Frames(np.zeros((0, VOCABULARY)), VOCABULARY)], VOCABULARY, BLANK).unfinished == 0
    assert Progress([], VOCABULARY, BLANK).unfinished == 0
