"""Guesses at a convolution over time with a kernel for each channel: an FSMN's memory, a Conformer's convolution.

Such a kernel has few numbers, so it can be read off input and output on both sides. The hint says how the two differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from workbench.compare.guesses.guess import Guess, Rows, Scene, is_close, table
from workbench.core.phrases import counted

_INPUTS = ("attention.value", "fsmn_norm", "conv.gate")
_REACHES = (7, 9, 18)  # frames before and after that are tried: those of kernels of 11, 15 and 33, and two more
_MORE_ROWS = 8  # than taps
_READ_ROWS = 256  # from which a kernel is read off
_MAX_VALUES = 1 << 23  # of a stage
_TRIED_ROWS = 16  # on which a known change is tried before it is a guess
_SAME_KERNEL = 1e-3  # relative L2 of kernels that count as the same, at least
_ROUNDINGS = 4  # times the allowed error by which the same kernels, read off, may differ
_REVERSED = "the kernel of its convolution is reversed in time"
_EDGES = {
    "edge": "copies of the first and last frame",
    "reflect": "the mirrored frames",
    "symmetric": "the mirrored frames, with the first and last twice,",
    "wrap": "the frames of the other end",
}
Kernel = np.ndarray
"""[channels, taps]; the middle tap belongs to the frame itself."""


def convolutions(scene: Scene) -> Iterator[Guess]:
    """Yields the convolution of the stage's input with another kernel."""
    if scene.part not in ("fsmn", "depthwise") or scene.reference.ndim != 2 or scene.reference.size > _MAX_VALUES:
        return
    inputs = scene.input_named(*_INPUTS)
    if inputs is None or any(side.size != scene.reference.size or len(side) < 2 for side in inputs):
        return
    reference_input, candidate_input = (table(side) for side in inputs)
    for reach in _REACHES:
        reference_kernel = _read_off(reference_input, scene.reference, reach, scene.allowed)
        if reference_kernel is None:
            continue
        candidate_kernel = _read_off(candidate_input, scene.candidate, reach, scene.allowed)
        if candidate_kernel is None:
            yield from _known_changes(scene, candidate_input, reference_kernel)
            return
        same = max(_SAME_KERNEL, _ROUNDINGS * scene.allowed)
        if is_close(reference_kernel, candidate_kernel, same):
            return  # the error came in with the input

        def expected(rows: Rows, kernel: Kernel = candidate_kernel) -> np.ndarray:
            return _convolved(candidate_input, kernel, rows)

        yield Guess(
            "kernel", _kernel_difference(reference_kernel, candidate_kernel, scene.part == "fsmn", same), expected
        )
        return


def _known_changes(scene: Scene, x: np.ndarray, kernel: Kernel) -> Iterator[Guess]:
    """Yields the reference's kernel at a place that is too far to be read off, or with other edges."""
    reach = kernel.shape[1] // 2
    direct_path = np.zeros(kernel.shape[1])
    direct_path[reach] = 1.0 if scene.part == "fsmn" else 0.0
    taps = kernel - direct_path
    few_rows = scene.sample[np.unique(np.linspace(0, len(scene.sample) - 1, _TRIED_ROWS).round().astype(int))]

    def guess(kind: str, words: str, taps: Kernel, edges: str = "constant") -> Iterator[Guess]:
        def expected(rows: Rows) -> np.ndarray:
            return np.asarray(_convolved(x, taps, rows, edges) + direct_path[reach] * x[rows])

        if is_close(expected(few_rows), table(scene.candidate[few_rows]), 4 * scene.allowed):
            yield Guess(kind, words, expected)

    for is_reversed in (False, True):
        for shift in (each for each in range(-2 * reach, 2 * reach + 1) if each):
            wide = np.pad(taps[:, ::-1] if is_reversed else taps, ((0, 0), (abs(shift), abs(shift))))
            words = f"{_REVERSED}, and it {_farther(shift)}" if is_reversed else f"its convolution {_farther(shift)}"
            yield from guess("kernel", words, np.roll(wide, shift, axis=1))
    for edges, words in _EDGES.items():
        if len(x) > reach:
            sentence = f"its convolution has {words} beyond the ends, where the reference has zeros"
            yield from guess("edges", sentence, taps, edges)


def _farther(shift: int) -> str:
    """Returns the predicate for a convolution whose frames lie further back or ahead."""
    return f"looks {counted(abs(shift), 'frame')} further {'ahead' if shift > 0 else 'back'}"


def _frames(x: np.ndarray, rows: Rows, reach: int, edges: str = "constant") -> np.ndarray:
    """Returns the frames around rows, [channels, rows, taps]; `edges` is a mode of `np.pad`, constant for zeros."""
    padding: dict[str, Any] = {"constant_values": -1} if edges == "constant" else {}
    source_rows = np.pad(np.arange(len(x)), reach, mode=edges, **padding)  # type: ignore[call-overload]
    places = source_rows[rows[:, None] + np.arange(2 * reach + 1)]
    frames: np.ndarray = x[places]
    frames[places < 0] = 0.0
    return frames.transpose(2, 0, 1)


def _convolved(x: np.ndarray, kernel: Kernel, rows: Rows, edges: str = "constant") -> np.ndarray:
    return np.asarray(np.einsum("crt,ct->rc", _frames(x, rows, kernel.shape[1] // 2, edges), kernel))


def _read_off(x: np.ndarray, y: np.ndarray, reach: int, allowed: float) -> Kernel | None:
    """Returns the kernel that makes y of x; None if none does."""
    rows = np.arange(min(len(x), _READ_ROWS))
    if len(rows) < 2 * reach + 1 + _MORE_ROWS or not (np.isfinite(x).all() and np.isfinite(y).all()):
        return None
    frames = _frames(x, rows, reach)
    kernel = (np.linalg.pinv(frames, rcond=1e-10) @ table(y[rows]).T[..., None])[..., 0]
    return kernel if is_close(_convolved(x, kernel, rows), table(y[rows]), allowed) else None


def _kernel_difference(reference_kernel: Kernel, candidate_kernel: Kernel, memory: bool, same: float) -> str:
    """Returns how a kernel differs from the right one.

    Args:
        memory: the input is added to the convolution, so that the middle tap is greater by one.
        same: the relative L2 of kernels that count as the same.
    """
    reach = reference_kernel.shape[1] // 2
    identity = np.zeros(reference_kernel.shape[1])
    identity[reach] = 1.0
    direct_path = identity if memory else 0 * identity
    reference_taps, candidate_taps = reference_kernel - direct_path, candidate_kernel - direct_path
    if is_close(reference_taps[:, ::-1], candidate_taps, same):
        return _REVERSED
    if memory and is_close(reference_taps, candidate_kernel, same):
        return "its input is not added to its convolution"
    for shift in (each for each in range(-reach, reach + 1) if each):
        shifted_taps = np.zeros_like(reference_taps)
        shifted_taps[:, max(shift, 0) : len(identity) + min(shift, 0)] = reference_taps[
            :, max(-shift, 0) : len(identity) - max(shift, 0)
        ]
        if is_close(shifted_taps, candidate_taps, same):
            return f"its convolution {_farther(shift)}"
    size = float(np.linalg.norm(reference_taps))
    taps = np.flatnonzero(np.linalg.norm(candidate_taps - reference_taps, axis=0) > same * size)
    if len(taps) == 1 and np.linalg.norm(candidate_taps[:, taps]) <= same * size:
        return f"its convolution lacks the tap at frame {taps[0] - reach:+d}"
    nonzero_taps = np.flatnonzero(np.linalg.norm(reference_taps, axis=0) > same * size)
    span = slice(nonzero_taps[0], nonzero_taps[-1] + 1) if len(nonzero_taps) else slice(0)
    for turn in (1, -1):
        rolled = reference_taps.copy()
        rolled[:, span] = np.roll(reference_taps[:, span], turn, axis=1)
        if is_close(rolled, candidate_taps, same):
            order = "last is first" if turn > 0 else "first is last"
            return f"the taps of its kernel are rolled by {turn:+d}: the {order}"
    return "its convolution over time has another kernel"
