"""Guesses which codebook of a residual quantiser is wrong: the one whose codes alone decide the difference.

A row of latents is a sum with one vector for each stream. If one codebook is another one, scaled or left out, then rows
with the same code of that stream differ by the same vector.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from workbench.compare.guesses.guess import Guess, Scene, table

STAGE, CODES = "codec.latents", "codec.codes"
MAX_ROWS = 1 << 16
_MIN_REPEATS = 4  # rows whose code has come before, so that their difference is predicted


def codebooks(scene: Scene) -> Iterator[Guess]:
    """Yields the one stream whose codes explain every difference; none if two streams do."""
    if scene.stage != STAGE or CODES not in scene.reference_stages or CODES not in scene.candidate_stages:
        return
    codes = scene.reference_stages[CODES]
    if codes.ndim != 2 or not len(codes) == len(scene.reference) <= MAX_ROWS:
        return
    if not np.array_equal(codes, scene.candidate_stages[CODES]):
        return
    reference_rows, candidate_rows = table(scene.reference), table(scene.candidate)
    allowed = scene.allowed * float(np.linalg.norm(reference_rows))
    wrong_streams = [
        stream
        for stream, stream_codes in enumerate(codes.T)
        if _explains_differences(stream_codes, candidate_rows - reference_rows, allowed)
    ]
    if len(wrong_streams) == 1:
        [stream] = wrong_streams
        yield Guess(
            "codebook",
            f"it differs by a vector for each code of stream {stream}, so the codebook of stream {stream} is another "
            "one, scaled or left out",
            expected=lambda rows: table(scene.reference[rows]),
            is_verified=True,
        )


def _explains_differences(codes: np.ndarray, difference: np.ndarray, allowed: float) -> bool:
    """Returns whether rows with the same code have the same difference, for enough rows."""
    _, first, group = np.unique(codes, return_index=True, return_inverse=True)
    repeats = np.setdiff1d(np.arange(len(codes)), first)
    remainder = difference[repeats] - difference[first[group.reshape(-1)[repeats]]]
    return len(repeats) >= _MIN_REPEATS and float(np.linalg.norm(remainder)) <= allowed < float(
        np.linalg.norm(difference[repeats])
    )
