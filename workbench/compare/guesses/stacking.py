"""Guesses at stacked frames (LFR): other padding in front, zeros for copies, or another step from stack to stack."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from workbench.compare.guesses.guess import FILTER_BANK, Guess, Rows, Scene, is_close, table

STACKS = "frontend.lfr"


def stacking(scene: Scene) -> Iterator[Guess]:
    """Yields other ways of stacking the frames of the filter bank."""
    if scene.stage != STACKS or FILTER_BANK not in scene.before or scene.reference.ndim != 2:
        return
    reference_frames, candidate_frames = scene.entered(FILTER_BANK)
    if (
        reference_frames.ndim != 2
        or reference_frames.shape[1:] != candidate_frames.shape[1:]
        or not min(len(reference_frames), len(candidate_frames))
        or not reference_frames.shape[1]
        or scene.reference.shape[1:] != scene.candidate.shape[1:]
        or scene.reference.shape[1] % reference_frames.shape[1]
    ):
        return
    m = scene.reference.shape[1] // reference_frames.shape[1]
    layouts = [
        (n, left_padding)
        for n in range(1, m + 1)
        for left_padding in range(m)
        if -(-len(reference_frames) // n) == len(scene.reference)
    ]
    rows = scene.sample[scene.sample < len(scene.reference)]
    reference_layout = next(
        (
            layout
            for layout in layouts
            if is_close(_stacked(reference_frames, rows, m, *layout), table(scene.reference[rows]), scene.allowed)
        ),
        None,
    )
    if (
        m < 2
        or reference_layout is None
        or is_close(
            _stacked(candidate_frames, rows, m, *reference_layout), table(scene.candidate[rows]), 2 * scene.allowed
        )
    ):
        return
    n, left_padding = reference_layout

    def guess(words: str, n: int, left_padding: int, zeros: str = "") -> Guess:
        return Guess("stacking", words, lambda rows: _stacked(candidate_frames, rows, m, n, left_padding, zeros))

    for padding in range(2 * m):
        if padding != left_padding:
            verb = "stands" if padding == 1 else "stand"
            words = f"{_frames(padding)} {verb} before the first, where the reference has {left_padding}"
            yield guess(words, n, padding)
    for zeros in ("front", "end", "front and end"):
        yield guess(f"its padding at the {zeros} is zeros, where the reference repeats a frame", n, left_padding, zeros)
    for step in range(1, m + 1):
        if step != n:
            yield guess(
                f"a stack begins every {step} frames, where the reference's begins every {n}", step, left_padding
            )


def _frames(count: int) -> str:
    return f"{count} {'copy' if count == 1 else 'copies'} of the first frame"


def _stacked(x: np.ndarray, rows: Rows, m: int, n: int, left_padding: int, zeros: str = "") -> np.ndarray:
    """Returns rows of the stacks of m frames, one every n; `zeros` says where padding is zeros."""
    source_rows = rows[:, None] * n + np.arange(m) - left_padding
    stacked = table(x)[source_rows.clip(0, len(x) - 1)]
    if "front" in zeros:
        stacked[source_rows < 0] = 0.0
    if "end" in zeros:
        stacked[source_rows >= len(x)] = 0.0
    return stacked.reshape(len(rows), -1)
