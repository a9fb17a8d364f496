"""The recurrence of an LSTM in numpy; ggml computes the matrix products over all steps before.

ggml has no operation for the recurrence: each step would be a separate graph.
"""

from __future__ import annotations

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
    layers, steps, width = inputs.shape[0], inputs.shape[1], weights.shape[2]
    blocks = _in_blocks(weights)
    states = np.zeros((layers, steps, width), dtype=np.float32)
    hidden = np.zeros((layers, width), dtype=np.float32)
    cell = np.zeros((layers, width), dtype=np.float32)
    for step in range(steps):
        gates = inputs[:, step] + (blocks @ hidden[:, None, :, None]).reshape(layers, -1)
        enter, forget, candidate, out = np.split(gates, 4, axis=1)
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
