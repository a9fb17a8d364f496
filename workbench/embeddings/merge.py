"""Merges speech into text embeddings: the frames of speech replace every placeholder of a prompt.

Every family whose decoder is a language model uses it, and every runtime that merges outside its engine. It works on
numpy arrays and torch tensors alike and moves neither to another device. It knows no model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import numpy as np

from workbench.core.phrases import counted

Array = TypeVar("Array")  # a numpy array or a torch tensor
PaddingSide = Literal["left", "right"]


@dataclass(frozen=True, eq=False)
class Merged(Generic[Array]):
    """A batch of prompts as a language model takes them."""

    embeddings: Array  # [batch, positions, width], zero at padding
    attention_mask: np.ndarray  # [batch, positions], bool: false at padding
    positions: np.ndarray  # [batch, positions], int64: from 0 in each row; 0 at padding

    @property
    def lengths(self) -> np.ndarray:
        """The number of positions of each row without padding: [batch]."""
        counts: np.ndarray = self.attention_mask.sum(axis=1)
        return counts


@dataclass(frozen=True, eq=False)
class MergePlan:
    """The source of each position of the merged batch; see `plan_merge`."""

    source: np.ndarray  # [batch, positions], int64: a token's index in its row, or tokens + a frame's index
    attention_mask: np.ndarray  # [batch, positions], bool
    positions: np.ndarray  # [batch, positions], int64


def merge_speech(
    ids: np.ndarray,
    text_embeddings: Array,
    speech_embeddings: Array,
    speech_lengths: np.ndarray,
    placeholder: int,
    attention_mask: np.ndarray | None = None,
    padding_side: PaddingSide = "right",
) -> Merged[Array]:
    """Returns text embeddings in which frames of speech replace every placeholder.

    Args:
        ids: [batch, tokens].
        text_embeddings: [batch, tokens, width]; the rows of placeholders and padding are not used.
        speech_embeddings: [batch, frames, width], with any padding behind each row's frames.
        speech_lengths: frames of each row [batch], all of which replace each placeholder of the row; or frames of each
            placeholder [batch, placeholders], in order: the row's frames are then divided among them one after another.
            Rows with fewer placeholders than others have zeros behind theirs.
        placeholder: its token id.
        attention_mask: which tokens are not padding [batch, tokens]; all of them by default.
        padding_side: the side on which shorter rows of the result are padded.

    Raises `ValueError` if shapes disagree, if a row has frames without a placeholder or a placeholder without frames,
    or if the lengths ask for more frames than exist.
    """
    ids = _table(ids)
    _check_shapes(ids, text_embeddings, speech_embeddings)
    frames = int(speech_embeddings.shape[1])  # type: ignore[attr-defined]
    plan = plan_merge(ids, speech_lengths, placeholder, attention_mask, padding_side, frames)
    return Merged(_gather(text_embeddings, speech_embeddings, plan), plan.attention_mask, plan.positions)


def plan_merge(
    ids: np.ndarray,
    speech_lengths: np.ndarray,
    placeholder: int,
    attention_mask: np.ndarray | None = None,
    padding_side: PaddingSide = "right",
    frames: int | None = None,
) -> MergePlan:
    """Returns the merge as indices, before any embedding exists; takes the arguments of `merge_speech`."""
    ids = _table(ids)
    batch, tokens = ids.shape
    present = np.ones(ids.shape, bool) if attention_mask is None else np.asarray(attention_mask).astype(bool)
    if present.shape != ids.shape:
        raise ValueError(f"the attention mask has shape {present.shape}; the ids have {ids.shape}")
    if padding_side not in ("left", "right"):
        raise ValueError(f"padding_side is {padding_side!r}; expected left or right")
    is_speech = present & (ids == placeholder)
    starts, lengths = _chunks(is_speech, np.asarray(speech_lengths), frames)

    # For each token: its number of positions, and where they begin in the row's tokens followed by its frames.
    spans = present.astype(np.int64)
    spans[is_speech] = lengths
    begins = np.tile(np.arange(tokens), (batch, 1))
    begins[is_speech] = tokens + starts

    totals = spans.sum(axis=1)
    width = int(totals.max(initial=0))
    shift = width - totals if padding_side == "left" else np.zeros_like(totals)
    place = np.arange(width)[None, :] - shift[:, None]
    mask = (place >= 0) & (place < totals[:, None])

    # All positions of the batch in row-major order, in which the mask is filled.
    counts = spans.ravel()
    inside = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    source = np.zeros((batch, width), dtype=np.int64)
    source[mask] = np.repeat(begins.ravel(), counts) + inside
    return MergePlan(source, mask, np.where(mask, place, 0))


def _chunks(is_speech: np.ndarray, lengths: np.ndarray, frames: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Returns (first frame, number of frames) of every placeholder, in row-major order of the batch."""
    batch = len(is_speech)
    counts = is_speech.sum(axis=1)
    if lengths.ndim not in (1, 2) or len(lengths) != batch or not np.issubdtype(lengths.dtype, np.integer):
        raise ValueError(
            f"speech_lengths has shape {lengths.shape} and type {lengths.dtype}; expected whole numbers of shape "
            f"({batch},) or ({batch}, placeholders)"
        )
    if (lengths < 0).any():
        raise ValueError(f"speech_lengths holds {lengths.min()}; expected no negative number")
    per_placeholder = lengths.ndim == 2
    per_row = lengths if per_placeholder else lengths[:, None]
    used = per_row.sum(axis=1)
    if frames is not None and (used > frames).any():
        row = int(np.argmax(used > frames))
        raise ValueError(f"row {row} needs {used[row]} frames of speech, and there are {frames}")
    gap = ((per_row[:, :-1] == 0) & (per_row[:, 1:] > 0)).any(axis=1)
    if gap.any():
        row = int(np.argmax(gap))
        raise ValueError(
            f"row {row} has speech lengths {per_row[row].tolist()}; expected zeros only behind its last placeholder"
        )
    filled = (per_row > 0).sum(axis=1)
    wrong = (filled != counts) if per_placeholder else (filled > 0) != (counts > 0)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"row {row} has {counted(counts[row], 'placeholder')} and {counted(filled[row], 'chunk')} of speech "
            f"(lengths {per_row[row].tolist()}); expected one for each"
            + ("" if per_placeholder else ", or none of either")
        )
    if not per_placeholder:
        return np.zeros(int(counts.sum()), np.int64), np.repeat(lengths, counts).astype(np.int64)
    ends = np.cumsum(per_row, axis=1)
    nonempty = per_row > 0
    return (ends - per_row)[nonempty].astype(np.int64), per_row[nonempty].astype(np.int64)


def _table(ids: Any) -> np.ndarray:
    ids = np.asarray(ids)
    if ids.ndim != 2:
        raise ValueError(f"ids has shape {ids.shape}; expected (batch, tokens)")
    return ids


def _check_shapes(ids: np.ndarray, text: Any, speech: Any) -> None:
    if text.ndim != 3 or tuple(text.shape[:2]) != ids.shape:
        raise ValueError(
            f"text_embeddings has shape {tuple(text.shape)}; expected ({ids.shape[0]}, {ids.shape[1]}, width)"
        )
    if speech.ndim != 3 or speech.shape[0] != text.shape[0]:
        raise ValueError(
            f"speech_embeddings has shape {tuple(speech.shape)}; expected ({text.shape[0]}, frames, width)"
        )
    if speech.shape[2] != text.shape[2]:
        raise ValueError(f"speech is {speech.shape[2]} wide and text {text.shape[2]}; expected the same width")


def _gather(text: Any, speech: Any, plan: MergePlan) -> Any:
    """Returns rows of text and speech by the plan's sources, with zeros at padding.

    It does not multiply with the mask: padding that is not finite must not reach the result.
    """
    batch = np.arange(len(plan.source))[:, None]
    if isinstance(text, np.ndarray):
        table = np.concatenate([text, speech.astype(text.dtype)], axis=1)
        return np.where(plan.attention_mask[..., None], table[batch, plan.source], table.dtype.type(0))
    import torch

    table = torch.cat([text, speech.to(text.dtype)], dim=1)
    rows, source, mask = (
        torch.from_numpy(np.ascontiguousarray(index)).to(table.device)
        for index in (batch, plan.source, plan.attention_mask)
    )
    return torch.where(mask[..., None], table[rows, source], table.new_zeros(()))
