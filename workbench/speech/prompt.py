"""A prompt's parts as a language model takes them: each part is an array of embeddings.

This file knows no network: the caller embeds rows of ids.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from workbench.core.errors import BadInput
from workbench.speech.layout import SpeechLayout


def embedded(
    prompt: Sequence[Any], layout: SpeechLayout, context: int, embed: Callable[[np.ndarray], Any]
) -> list[Any]:
    """Returns the embeddings [n, hidden] of each part of a prompt.

    Args:
        prompt: rows of ids [n, streams], numpy arrays of whole numbers; and embeddings, which stay as they are.
        context: the most positions of a sequence, prompt and answer.
        embed: returns the embeddings of rows of ids.

    Raises `BadInput` for an empty prompt, one that fills the context, or ids that the vocabulary does not have.
    """
    parts = [embed(_checked(part, layout)) if _holds_ids(part) else part for part in prompt]
    count = sum(len(part) for part in parts)
    if not 0 < count < context:
        raise BadInput(
            f"the prompt has {count} positions; the model has room for {context}, prompt and answer included"
        )
    return parts


def _holds_ids(part: Any) -> bool:
    return isinstance(part, np.ndarray) and part.dtype.kind in "iu"


def _checked(rows: np.ndarray, layout: SpeechLayout) -> np.ndarray:
    if rows.ndim != 2 or rows.shape[1] != layout.streams:
        raise BadInput(f"rows of the prompt have the shape {rows.shape}; expected [rows, {layout.streams}] ids")
    if rows.size and not 0 <= rows.min() <= rows.max() < layout.vocabulary:
        raise BadInput(f"the prompt has ids from {rows.min()} to {rows.max()}; expected 0 to {layout.vocabulary - 1}")
    return rows
