"""Aligns two sequences of token ids, or two texts, and measures their difference with the project's scoring."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workbench.core.errors import BadInput
from workbench.text.rates import score

_MAX_EDITS = 200  # most runs of an edit script that are returned
_MAX_IDS = 6  # ids of a run that a sentence shows


@dataclass(frozen=True)
class Edit:
    """A run of the alignment: `equal`, `substitute`, `delete` (reference only) or `insert` (candidate only)."""

    kind: str
    reference: str
    candidate: str


@dataclass(frozen=True)
class SequenceMeasures:
    """The measures of two aligned sequences, in units of tokens, words or characters."""

    unit: str  # token; for texts WER, CER or MER, chosen by the reference's script
    errors: int  # substituted, deleted and inserted
    reference_length: int
    candidate_length: int
    error_rate: float  # errors per unit of the reference, or of the candidate if the reference is empty
    first_difference: int | None  # index of the first token or character that differs
    edits: tuple[Edit, ...]  # the script that turns the reference into the candidate; the first runs of a long one
    wer: float | None = None  # for texts; case and punctuation count
    cer: float | None = None


def as_tokens(stage: str, array: np.ndarray) -> np.ndarray:
    """Returns the ids int64 [tokens] of a stage; raises `BadInput` if a value is not a whole number, or too large."""
    flat = array.reshape(-1)
    finite = flat.dtype.kind in "iub" or (flat.dtype.kind == "f" and np.isfinite(flat).all())
    if not finite or (flat.dtype.kind == "f" and (flat != np.round(flat)).any()):
        raise BadInput(f"stage {stage} holds {array.dtype} values that are not token ids; expected whole numbers")
    if flat.size and not -(2**63) <= int(flat.min()) <= int(flat.max()) < 2**63:
        raise BadInput(
            f"stage {stage} holds the numbers {int(flat.min())} to {int(flat.max())}, not token ids; expected "
            "numbers of at most 64 bits with a sign"
        )
    return flat.astype(np.int64)


def is_in_batch(ids: np.ndarray, candidate: np.ndarray) -> bool:
    """Returns whether a row of a batch [B, N] of at least two begins or ends with these ids; the rest is padding."""
    if candidate.ndim != 2 or len(candidate) < 2 or not 0 < len(ids) <= candidate.shape[1]:
        return False
    parts = candidate[:, : len(ids)], candidate[:, candidate.shape[1] - len(ids) :]
    return any(bool((part == ids).all(axis=1).any()) for part in parts)


def as_text(stage: str, array: np.ndarray) -> str:
    """Returns the text of a stage: a string, or bytes of UTF-8; raises `BadInput` for anything else."""
    if array.dtype.kind == "U" and array.size == 1:
        return str(array.reshape(-1)[0])
    if array.dtype.kind == "S" and array.size == 1:
        return bytes(array.reshape(-1)[0]).decode("utf-8", "replace")
    if array.dtype.kind in "iu" and array.dtype.itemsize == 1:
        return array.astype(np.uint8).tobytes().decode("utf-8", "replace")
    raise BadInput(f"stage {stage} holds {array.dtype} of shape {array.shape}; expected one string or bytes of UTF-8")


def measure_tokens(reference: np.ndarray, candidate: np.ndarray) -> SequenceMeasures:
    """Returns the measures of two sequences of ids [tokens] after their alignment; the lengths may differ."""
    texts = [" ".join(map(str, ids.tolist())) for ids in (reference, candidate)]
    alignment = score(texts[0], texts[1], normaliser="none")
    return SequenceMeasures(
        unit="token",
        errors=alignment.words.errors,
        reference_length=len(reference),
        candidate_length=len(candidate),
        error_rate=alignment.words.errors / max(len(reference) or len(candidate), 1),
        first_difference=_first_difference(reference, candidate),
        edits=tuple(Edit(run.kind, run.reference, run.hypothesis) for run in alignment.differences[:_MAX_EDITS]),
    )


def _first_difference(reference: np.ndarray, candidate: np.ndarray) -> int | None:
    """Returns the index of the first id that differs, or the length of the shorter one; None for equal ids."""
    common = min(len(reference), len(candidate))
    differing = np.flatnonzero(reference[:common] != candidate[:common])
    return int(differing[0]) if len(differing) else common if len(reference) != len(candidate) else None


def explain_tokens(reference: np.ndarray, candidate: np.ndarray) -> str | None:
    """Returns where two sequences of ids differ, and the ids there; None if they are equal.

    Only one run of ids differs if a tokenizer lacks a merge or a special token; all ids around it agree.
    """
    first = _first_difference(reference, candidate)
    if first is None:
        return None
    reference_run, candidate_run = reference[first:], candidate[first:]
    equal_count = _first_difference(reference_run[::-1], candidate_run[::-1]) or 0  # ids after the run that differs
    reference_run, candidate_run = (
        reference_run[: len(reference_run) - equal_count],
        candidate_run[: len(candidate_run) - equal_count],
    )
    if max(len(reference_run), len(candidate_run)) > _MAX_IDS:
        ids = [str(side[first]) if first < len(side) else "the end" for side in (reference, candidate)]
        return f"the ids differ from place {first} on, {ids[0]} and {ids[1]}"
    runs = [" ".join(map(str, ids)) for ids in (reference_run, candidate_run)]
    where = f"at place {first}, and nowhere else,"
    if not len(reference_run):
        return f"{where} the candidate puts in {runs[1]}"
    if not len(candidate_run):
        return f"{where} the candidate leaves out {runs[0]}"
    return f"{where} the candidate has {runs[1]} for {runs[0]}"


def measure_text(reference: str, candidate: str) -> SequenceMeasures:
    """Returns the error rates of a text against another without normalisation: a capital letter is a difference."""
    alignment = score(reference, candidate, normaliser="none")
    first_difference = next(
        (i for i, (a, b) in enumerate(zip(reference, candidate)) if a != b), min(len(reference), len(candidate))
    )
    length = alignment.counts.reference_units
    return SequenceMeasures(
        unit=alignment.name,
        errors=alignment.counts.errors,
        reference_length=length,
        candidate_length=alignment.counts.hits + alignment.counts.substitutions + alignment.counts.insertions,
        error_rate=alignment.counts.errors / max(length or alignment.counts.insertions, 1),
        first_difference=None if reference == candidate else first_difference,
        edits=tuple(Edit(run.kind, run.reference, run.hypothesis) for run in alignment.differences[:_MAX_EDITS]),
        wer=alignment.wer,
        cer=alignment.cer,
    )
