"""Low frame rate: neighbouring filter-bank frames stacked into one, every n-th kept. Knows only arrays."""

import numpy as np


def num_stacked(frames: int, n: int) -> int:
    """How many stacked frames `frames` give: one for every n begun."""
    return -(-frames // n)


def stack_frames(features: np.ndarray, m: int, n: int) -> np.ndarray:
    """Stack m frames every n: [frames, width] to float32 [ceil(frames / n), m * width].

    Stacked frame t holds frames t*n ... t*n+m-1 of the input led by (m-1)//2 copies of its first frame and followed by
    as many copies of its last as the last stack needs: FunASR's padding, in closed form. No frames stay no frames.
    """
    frames, width = features.shape
    stacked = num_stacked(frames, n)
    if frames == 0:
        return np.empty((0, m * width), dtype=np.float32)
    left = (m - 1) // 2
    right = max(0, (stacked - 1) * n + m - left - frames)
    padded = np.pad(features.astype(np.float32, copy=False), ((left, right), (0, 0)), mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded.reshape(-1), m * width)
    return np.array(windows[:: n * width][:stacked])  # a copy: the windows share memory
