"""Guesses at a convolution over time with a kernel for each channel: an FSMN's memory, a Conformer's convolution.

Such a kernel has few numbers, so it can be read off input and output on both sides. The hint says how the two differ.
Of few rows, as those of a decoder of tokens, it cannot be read off; then the reference's is taken from the checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from workbench.compare.guesses.guess import Guess, Rows, Scene, is_close, table
from workbench.core.phrases import counted
from workbench.trace.step_names import step_and_stage

_INPUTS = ("attention.value", "fsmn_norm", "conv.gate")
_REACHES = (7, 9, 18)  # frames before and after that are tried: those of kernels of 11, 15 and 33, and two more
_MORE_ROWS = 8  # than taps
_READ_ROWS = 256  # from which a kernel is read off
_MAX_VALUES = 1 << 23  # of a stage
_TRIED_ROWS = 16  # on which a known change is tried before it is a guess
_SAME_KERNEL = 1e-3  # relative L2 of kernels that count as the same, at least
_ROUNDINGS = 4  # times the allowed error by which the same kernels, read off, may differ
_MAX_TAPS = 64
_ADDED_TWICE = "its input is added twice to its convolution"
_REVERSED = "the kernel of its convolution is reversed in time"
_NOT_ADDED = "its input is not added to its convolution"
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
    inputs = scene.input_named(*_INPUTS) or _own_input(scene)
    if inputs is None or any(side.size != scene.reference.size or len(side) < 2 for side in inputs):
        return
    reference_input, candidate_input = (table(side) for side in inputs)
    if scene.part == "fsmn":
        yield from _late_memory(scene, reference_input, candidate_input)
    for reach in _REACHES:
        reference_kernel = _read_off(reference_input, scene.reference, reach, scene.allowed)
        if reference_kernel is None:
            continue
        yield from _chunked(scene, candidate_input, reference_kernel)
        candidate_kernel = _read_off(candidate_input, scene.candidate, reach, scene.allowed)
        if candidate_kernel is None:
            yield from _known_changes(scene, candidate_input, reference_kernel)
            return
        same = max(_SAME_KERNEL, _ROUNDINGS * scene.allowed)
        if is_close(reference_kernel, candidate_kernel, same):
            return  # the error came in with the input

        def expected(rows: Rows, kernel: Kernel = candidate_kernel) -> np.ndarray:
            return _convolved(candidate_input, kernel, rows)

        memory = scene.part == "fsmn"
        yield Guess(
            "kernel", _kernel_difference(reference_kernel, candidate_kernel, memory, same, _row(scene)), expected
        )
        return
    kernel = _of_checkpoint(scene, reference_input)
    if kernel is None:
        return
    rows = scene.sample
    if not is_close(_convolved(candidate_input, kernel, rows), table(scene.candidate[rows]), 2 * scene.allowed):
        yield from _known_changes(scene, candidate_input, kernel)


def _own_input(scene: Scene) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns the reference's input for both sides, if the candidate lacks it; None if the reference does, too."""
    layer = scene.stage.removesuffix(".fsmn").removesuffix(".conv.depthwise")
    for name in (f"{layer}.{each}" for each in _INPUTS):
        if name in scene.reference_stages and name not in scene.candidate_stages:
            return scene.reference_stages[name], scene.reference_stages[name]
    return None


def _late_memory(scene: Scene, reference_input: np.ndarray, candidate_input: np.ndarray) -> Iterator[Guess]:
    """Yields the input plus the reference's convolution of a row before or after."""
    memory = table(scene.reference) - reference_input
    for shift, words in ((1, "late"), (-1, "early")):
        edge = 0 if shift > 0 else len(memory) - 1
        rolled = np.roll(memory, shift, axis=0)
        begins, other_end = ("begins", "last") if shift > 0 else ("ends", "first")
        for first, value in (("zeros", 0.0), (f"the {other_end} one", rolled[edge].copy())):
            moved = rolled.copy()
            moved[edge] = value
            sentence = f"its convolution comes one {_row(scene)} {words} and {begins} with {first}; its input does not"
            yield Guess("memory", sentence, lambda rows, moved=moved: candidate_input[rows] + moved[rows])  # type: ignore[misc]


def _row(scene: Scene) -> str:
    """Returns what a row of the stage is."""
    return "token" if "decoder." in scene.stage else "frame"


def _of_checkpoint(scene: Scene, x: np.ndarray) -> Kernel | None:
    """Returns the kernel of the reference's checkpoint that makes the stage of x; None if none is known to."""
    stage = step_and_stage(scene.stage)[1]
    layer = scene.layers([stage]).get(stage) if scene.layers else None
    if layer is None or layer.bias is not None or len(layer.weight) != x.shape[1] or layer.weight.shape[1] > _MAX_TAPS:
        return None
    taps = layer.weight.shape[1]
    for ahead in sorted(range(taps), key=lambda each: abs(2 * each - taps + 1)):  # the middle first
        reach = max(ahead, taps - 1 - ahead)
        kernel = np.zeros((x.shape[1], 2 * reach + 1))
        first = reach - (taps - 1 - ahead)
        kernel[:, first : first + taps] = layer.weight
        kernel[:, reach] += scene.part == "fsmn"
        if is_close(_convolved(x, kernel, scene.sample), table(scene.reference[scene.sample]), scene.allowed):
            return kernel
    return None


def _known_changes(scene: Scene, x: np.ndarray, kernel: Kernel) -> Iterator[Guess]:
    """Yields changes of the reference's kernel, and other edges, for a candidate whose kernel cannot be read off."""
    reach, memory = kernel.shape[1] // 2, scene.part == "fsmn"
    identity = np.zeros(kernel.shape[1])
    identity[reach] = 1.0
    taps = kernel - memory * identity
    few_rows = scene.sample[np.unique(np.linspace(0, len(scene.sample) - 1, _TRIED_ROWS).round().astype(int))]

    def guess(kind: str, words: str, taps: Kernel, edges: str = "constant", added: float = memory) -> Iterator[Guess]:
        def expected(rows: Rows) -> np.ndarray:
            return np.asarray(_convolved(x, taps, rows, edges) + added * x[rows])

        if is_close(expected(few_rows), table(scene.candidate[few_rows]), 4 * scene.allowed):
            yield Guess(kind, words, expected)

    shifts = sorted(range(-2 * reach, 2 * reach + 1), key=abs)
    for added, is_reversed, shift in product((1.0, 0.0) if memory else (0.0,), (False, True), shifts):
        wide = np.pad(taps[:, ::-1] if is_reversed else taps, ((0, 0), (abs(shift), abs(shift))))
        clauses = [_REVERSED] * is_reversed
        if shift:
            clauses.append(f"{'it' if clauses else 'its convolution'} {_farther(shift, _row(scene))}")
        if added != memory:
            clauses.append("its input is not added to it" if clauses else _NOT_ADDED)
        if clauses:
            yield from guess("kernel", ", and ".join(clauses), np.roll(wide, shift, axis=1), added=added)
    if memory:
        yield from guess("kernel", _ADDED_TWICE, taps, added=2.0)
    for tap in np.flatnonzero(taps.any(axis=0)):
        yield from guess("kernel", _lacks(tap - reach, _row(scene)), taps * (np.arange(taps.shape[1]) != tap))
    for words, rolled in _rolled(taps, (taps != 0).any(axis=0)):
        yield from guess("kernel", words, rolled)
    for edges, words in _EDGES.items():
        if len(x) > reach or edges == "edge":
            beyond = words.replace("frame", _row(scene))
            sentence = f"its convolution has {beyond} beyond the ends, where the reference has zeros"
            yield from guess("edges", sentence, taps, edges)


def _chunked(scene: Scene, x: np.ndarray, kernel: Kernel) -> Iterator[Guess]:
    """Yields convolutions that end at the borders of chunks, as in a program that computes one chunk after another."""
    reach = kernel.shape[1] // 2
    errors = np.linalg.norm(table(scene.candidate) - table(scene.reference), axis=1)
    allowed_error = 4 * scene.allowed * np.linalg.norm(scene.reference) / len(errors) ** 0.5
    first = int((errors > allowed_error).argmax())
    few_rows = np.arange(first, min(first + _TRIED_ROWS, len(x)))
    lengths = range(first + 1, min(first + reach + 2, len(x)))  # the first rows that differ stand before a border
    for length, begins in product(lengths, (True, False)):

        def expected(rows: Rows, length: int = length, begins: bool = begins) -> np.ndarray:
            chunks = (rows[:, None] + np.arange(-reach, reach + 1)) // length - rows[:, None] // length
            is_hidden = (chunks != 0) if begins else (chunks > 0)
            return np.asarray(np.einsum("crt,ct->rc", _frames(x, rows, reach) * ~is_hidden, kernel))

        if is_close(expected(few_rows), table(scene.candidate[few_rows]), 4 * scene.allowed):
            place = "beyond its" if begins else "behind the end of its"
            chunk = f"chunk of {counted(length, _row(scene))}"
            yield Guess("chunks", f"its convolution sees zeros {place} {chunk}, where the reference sees all", expected)


def _farther(shift: int, row: str) -> str:
    """Returns the predicate for a convolution whose rows lie further back or ahead."""
    return f"looks {counted(abs(shift), row)} further {'ahead' if shift > 0 else 'back'}"


def _lacks(place: int, row: str) -> str:
    return f"its convolution lacks the tap at {row} {place:+d}"


def _rolled(taps: Kernel, is_tap: np.ndarray) -> Iterator[tuple[str, Kernel]]:
    """Yields the taps rolled within the places where there are any, with the sentence."""
    places = np.flatnonzero(is_tap)
    span = slice(places[0], places[-1] + 1) if len(places) else slice(0)
    for turn in (1, -1):
        rolled = taps.copy()
        rolled[:, span] = np.roll(taps[:, span], turn, axis=1)
        order = "last is first" if turn > 0 else "first is last"
        yield f"the taps of its kernel are rolled by {turn:+d}: the {order}", rolled


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


def _kernel_difference(reference_kernel: Kernel, candidate_kernel: Kernel, memory: bool, same: float, row: str) -> str:
    """Returns how a kernel differs from the right one.

    Args:
        memory: the input is added to the convolution, so that the middle tap is greater by one.
        same: the relative L2 of kernels that count as the same.
        row: what a row is, a frame or a token.
    """
    reach = reference_kernel.shape[1] // 2
    identity = np.zeros(reference_kernel.shape[1])
    identity[reach] = 1.0
    direct_path = identity if memory else 0 * identity
    reference_taps, candidate_taps = reference_kernel - direct_path, candidate_kernel - direct_path
    if is_close(reference_taps[:, ::-1], candidate_taps, same):
        return _REVERSED
    if memory and is_close(reference_taps, candidate_kernel, same):
        return _NOT_ADDED
    if memory and is_close(reference_taps[:, ::-1], candidate_kernel, same):
        return f"{_REVERSED}, and its input is not added to it"
    if memory and is_close(reference_taps, candidate_taps - identity, same):
        return _ADDED_TWICE
    for shift in (each for each in range(-reach, reach + 1) if each):
        shifted_taps = np.zeros_like(reference_taps)
        shifted_taps[:, max(shift, 0) : len(identity) + min(shift, 0)] = reference_taps[
            :, max(-shift, 0) : len(identity) - max(shift, 0)
        ]
        if is_close(shifted_taps, candidate_taps, same):
            return f"its convolution {_farther(shift, row)}"
    size = float(np.linalg.norm(reference_taps))
    taps = np.flatnonzero(np.linalg.norm(candidate_taps - reference_taps, axis=0) > same * size)
    if len(taps) == 1 and np.linalg.norm(candidate_taps[:, taps]) <= same * size:
        return _lacks(taps[0] - reach, row)
    for words, rolled in _rolled(reference_taps, np.linalg.norm(reference_taps, axis=0) > same * size):
        if is_close(rolled, candidate_taps, same):
            return words
    return (
        _multiplied(reference_taps, candidate_taps, direct_path, same) or "its convolution over time has another kernel"
    )


def _multiplied(reference_taps: Kernel, candidate_taps: Kernel, direct_path: np.ndarray, same: float) -> str:
    """Returns that a kernel, or with it the input that is added, is left out or multiplied; empty if neither is so."""
    size = float(np.square(reference_taps).sum())
    if np.linalg.norm(candidate_taps) <= same * math.sqrt(size):
        return "its convolution is left out" + ", and it equals the input that is added" * bool(direct_path.any())
    for words, addend in (("it is {} times the reference", direct_path), ("its convolution is multiplied by {}", 0.0)):
        reference, candidate = reference_taps + addend, candidate_taps + addend
        times = float((reference * candidate).sum() / np.square(reference).sum())
        if is_close(times * reference, candidate, same):
            return words.format(f"{times:.5g}")
    return ""
