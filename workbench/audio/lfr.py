"""Low frame rate (LFR): stacks neighbouring filter-bank frames into one and takes every n-th. Knows only arrays."""

import numpy as np


def num_stacked(frames: int, n: int) -> int:
    """Returns the number of stacked frames that `frames` frames give: ceil(frames / n)."""
    return -(-frames // n)


def stack_frames(features: np.ndarray, m: int, n: int) -> np.ndarray:
    """Stacks m frames at every n-th: [frames, width] to float32 [ceil(frames / n), m * width].

    The input is padded in front with (m-1)//2 copies of its first frame, and behind with as many copies of its last
    frame as the last stack needs. Stacked frame t holds the padded frames t*n ... t*n+m-1. This is FunASR's padding in
    closed form. An input without frames gives an output without frames.
    """
    frames, width = features.shape
    stacked = num_stacked(frames, n)
    if frames == 0:
        return np.empty((0, m * width), dtype=np.float32)
    left = (m - 1) // 2
    right = max(0, (stacked - 1) * n + m - left - frames)
    padded = np.pad(features.astype(np.float32, copy=False), ((left, right), (0, 0)), mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded.reshape(-1), m * width)
    return np.array(windows[:: n * width][:stacked])  # a copy, because the windows share memory


def unstack_gradient(gradient: np.ndarray, frames: int, m: int, n: int) -> np.ndarray:
    """Returns the gradient with respect to the frames [frames, width], from that of the stacked frames, in its type.

    It is the transpose of `stack_frames`, which is linear: every frame gets the sum over all its copies.
    """
    width = gradient.shape[1] // m
    places = np.arange(len(gradient))[:, None] * n + np.arange(m) - (m - 1) // 2
    found = np.zeros((frames, width), dtype=gradient.dtype)
    np.add.at(found, places.clip(0, frames - 1), gradient.reshape(len(gradient), m, width))
    return found
