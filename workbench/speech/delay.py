"""The delay pattern of parallel codec streams, and its inverse.

Stream n runs n rows behind stream 0, so a row holds code n of the frame n rows ago. Frame t is complete with row
t + streams - 1. The delay leaves positions empty at the beginning and at the end. These hold the pad of their stream.
"""

from __future__ import annotations

import numpy as np

from workbench.core.errors import BadInput
from workbench.speech.layout import SpeechLayout


def delayed(codes: np.ndarray, layout: SpeechLayout) -> np.ndarray:
    """Returns rows of global ids [frames + streams - 1, streams] of codes [frames, streams]; no frames give no rows.

    Raises `BadInput` for another number of streams, and for codes that the codebooks do not have.
    """
    if codes.ndim != 2 or codes.shape[1] != layout.streams:
        raise BadInput(f"the codes have the shape {codes.shape}; expected frames of {layout.streams} streams")
    if codes.size and not 0 <= codes.min() <= codes.max() < layout.codes:
        raise BadInput(f"the codes go from {codes.min()} to {codes.max()}; expected 0 to {layout.codes - 1}")
    frames = len(codes)
    rows = np.tile(layout.pads, (frames + layout.streams - 1 if frames else 0, 1))
    for stream in range(layout.streams):
        rows[stream : stream + frames, stream] += 1 + codes[:, stream]
    return rows


def aligned(rows: np.ndarray, layout: SpeechLayout) -> np.ndarray:
    """Returns the codes [rows - streams + 1, streams] of the frames that are complete in rows of global ids.

    The rows may end anywhere. The function does not read the corners at the beginning and at the end, which the delay
    leaves empty. A pad anywhere else becomes code 0.
    """
    frames = max(len(rows) - layout.streams + 1, 0)
    streams = np.arange(layout.streams)
    codes: np.ndarray = rows[np.arange(frames)[:, None] + streams, streams] - layout.pads - 1
    return np.maximum(codes, 0)


def check_rows(rows: np.ndarray, layout: SpeechLayout, name: str) -> None:
    """Raises `BadInput` unless rows of global ids [rows, streams] have each stream within its own interval.

    Args:
        name: of the rows in the message.
    """
    if rows.ndim != 2 or rows.shape[1] != layout.streams:
        raise BadInput(f"{name} have the shape {rows.shape}; expected rows of {layout.streams} streams")
    relative = rows - layout.pads
    wrong = np.argwhere((relative < 0) | (relative >= layout.layer_size))
    if len(wrong):
        row, stream = map(int, wrong[0])
        first, end = layout.interval(stream)
        raise BadInput(
            f"{name} have the id {rows[row, stream]} in row {row + 1}, stream {stream}; expected {first} to {end - 1}"
        )
