"""The recurrence of an LSTM in numpy; ggml computes the matrix products over all steps before.

ggml has no operation for the recurrence: each step would be a separate graph.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

# The size up to which numpy's OpenBLAS multiplies a matrix without threads. On a busy machine, threads wait for each
# other at each of a thousand small steps, which took five times as long.
UNTHREADED = 9215


def recur(inputs: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Returns hidden states [L, T, H] of L independent LSTMs that run in parallel, all from zero.

    Args:
        inputs: [L, T, 4H], each step's input times the input weights with both biases added; the gates are in PyTorch's
            order: input, forget, cell, output.
        weights: of the previous state [L, 4H, H].
    """
    blocks = _in_blocks(weights)
    return _recur(inputs, weights.shape[2], lambda h: (blocks @ h[:, None, :, None]).reshape(len(inputs), -1))


def recur_rows(inputs: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Returns hidden states [W, T, H] of one LSTM over W rows of steps, all from zero.

    Args:
        inputs: [W, T, 4H], as in `recur`.
        weights: of the previous state [4H, H].
    """
    return _recur(inputs, weights.shape[1], lambda hidden: hidden @ weights.T)


def _recur(inputs: np.ndarray, width: int, product: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Returns the states [L, T, H] of inputs [L, T, 4H]; `product` maps the last states [L, H] to their part of the
    gates [L, 4H].
    """
    rows, steps = inputs.shape[:2]
    states = np.zeros((rows, steps, width), dtype=np.float32)
    hidden = np.zeros((rows, width), dtype=np.float32)
    cell = np.zeros((rows, width), dtype=np.float32)
    for step in range(steps):
        enter, forget, candidate, out = np.split(inputs[:, step] + product(hidden), 4, axis=1)
        cell = sigmoid(forget) * cell + sigmoid(enter) * np.tanh(candidate)
        hidden = sigmoid(out) * np.tanh(cell)
        states[:, step] = hidden
    return states


def _in_blocks(weights: np.ndarray) -> np.ndarray:
    """Returns matrices [L, rows, H] as [L, blocks, rows of a block, H], each block small enough for `UNTHREADED`."""
    layers, rows, width = weights.shape
    size = next(size for size in range(max(UNTHREADED // width, 1), 0, -1) if rows % size == 0)
    return weights.reshape(layers, rows // size, size, width)


def sigmoid(x: np.ndarray) -> np.ndarray:
    """Returns 1 / (1 + exp(-x)), in a form that does not overflow."""
    result: np.ndarray = 0.5 * np.tanh(0.5 * x) + 0.5
    return result
