"""Reads logits of other programs from `.npy`, `.npz` and `.safetensors` files, and checks logits of any origin.

The size that a file claims is checked before memory is reserved, and nothing is unpickled. This file knows no tokens.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from workbench.core.errors import BadInput
from workbench.trace.formats import open_stored

SUFFIXES = (".npy", ".npz", ".safetensors")
FLOATS = ("float16", "float32", "float64")
EXPECTED = "expected one array [frames, vocabulary] of float16, float32 or float64"

ADDS_UP = 1e-2  # rounding to bfloat16 changes the sum of probabilities by less

_CHECKED_AT_ONCE = 1 << 22  # values


def read_logits(path: str | Path, stage: str = "") -> np.ndarray:
    """Returns the logits or log-probabilities [frames, vocabulary] in a file, in the type that it has.

    Args:
        stage: the name of the array to take from a trace, which may hold others; without one, the file must hold one
            array.

    bfloat16, which only `.safetensors` has, becomes float32. Raises `BadInput` for any other content (see
    `check_logits`), for several arrays, and for a file that is missing or damaged.
    """
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise BadInput(f"{path.name or path} is not a file of logits; expected {', '.join(SUFFIXES)}")
    try:
        is_file, is_folder = path.is_file(), path.is_dir()
    except OSError as error:  # such as a name that is too long, or a folder that may not be read
        raise BadInput(f"{path.name:.80} cannot be read: {error.strerror or error}") from error
    if not is_file:
        problem = f"{path} is a folder" if is_folder else f"there is no file {path}"
        raise BadInput(f"{problem}; expected a file of logits, {', '.join(SUFFIXES)}")
    stored = open_stored(path)
    if len(stored.arrays) != 1 and stage not in stored.arrays:
        listed = f": {', '.join(stored.arrays):.120}" if stored.arrays else ""
        raise BadInput(f"{path.name} holds {len(stored.arrays)} arrays{listed}; {EXPECTED}")
    read_array = stored.arrays[stage] if stage in stored.arrays else next(iter(stored.arrays.values()))
    if len(stored.arrays) == 1 and not stored.types <= {*FLOATS, "bfloat16"}:
        raise BadInput(f"{path.name} holds {', '.join(stored.types)}; {EXPECTED}")
    logits = read_array()
    check_logits(logits, path.name)
    return logits


def with_columns(logits: np.ndarray, count: int) -> np.ndarray:
    """Returns logits [frames, count]: columns of impossible tokens stand behind those that the network has."""
    missing = count - logits.shape[1]
    return np.pad(logits, ((0, 0), (0, missing)), constant_values=-np.inf) if missing else logits


def check_logits(logits: np.ndarray, where: str) -> None:
    """Raises `BadInput` unless a search can decode an array. `where` names it in messages.

    It must be [frames, vocabulary] of floating-point numbers and not empty. -inf is a probability of zero; NaN, +inf
    and a frame without any finite value are refused, and so are probabilities.
    """
    if not isinstance(logits, np.ndarray) or logits.dtype.name not in FLOATS:
        kind = logits.dtype if isinstance(logits, np.ndarray) else f"a {type(logits).__name__}"
        raise BadInput(f"{where} holds {kind}; {EXPECTED}")
    if logits.ndim != 2:
        raise BadInput(f"{where} has the shape {logits.shape}; {EXPECTED}")
    if not logits.size:
        raise BadInput(f"{where} has the shape {logits.shape}, which is empty; expected at least one frame and token")
    adds_up = True  # whether the values are those of probabilities so far
    step = max(_CHECKED_AT_ONCE // logits.shape[1], 1)
    for first in range(0, len(logits), step):
        block = logits[first : first + step]
        wrong = np.isnan(block) | (block == np.inf)
        if wrong.any():
            frame, token = (int(each) for each in np.unravel_index(int(wrong.argmax()), wrong.shape))
            raise BadInput(
                f"{where} has {block[frame, token]} at frame {first + frame}, token {token}, counted from 0; expected "
                "finite numbers, or -inf for a probability of zero"
            )
        impossible = (block == -np.inf).all(axis=1)
        if impossible.any():
            raise BadInput(
                f"{where} has -inf for all tokens of frame {first + int(impossible.argmax())}, counted from 0; "
                "expected a finite number for at least one token of each frame"
            )
        adds_up = adds_up and block.min() >= 0 and bool((abs(block.sum(axis=1, dtype=np.float64) - 1) < ADDS_UP).all())
    if adds_up:
        raise BadInput(
            f"{where} holds probabilities, as the numbers of each frame add up to 1; expected logits or "
            "log-probabilities, such as their natural logarithms"
        )
