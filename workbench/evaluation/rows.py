"""The rows of an evaluation: an utterance of the corpus, and the result of one model, each as one line of JSON.

The keys of a line have a fixed order, so equal results are equal bytes. Only the last key, `measured`, holds values
that depend on a clock or a machine. This file knows rows and lines; `workbench.evaluation.store` knows their files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from workbench.core.errors import BadInput
from workbench.text.rates import Counts, ErrorRates, RateName, Score

COUNTED = ("substitutions", "deletions", "insertions", "hits")
MEASURED = "measured"


@dataclass(frozen=True, slots=True)
class Utterance:
    """One recording of the corpus, or a segment of one, with what is said in it."""

    id: str  # unique in the corpus
    audio: str  # as the manifest has it; relative to the manifest's folder (see `workbench.evaluation.places`)
    text: str  # the reference; empty where nothing is said
    offset: float = 0.0  # seconds from the start of the file
    duration: float | None = None  # seconds; None for everything after the offset
    channel: int | None = None  # 0-based; None for the mean of all
    language: str | None = None
    speaker: str | None = None
    noise: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)  # the manifest's other columns

    def to_line(self) -> str:
        """Returns the utterance as one line of JSON, without empty keys."""
        fields: dict[str, Any] = {"id": self.id, "audio": self.audio}
        if self.offset:
            fields["offset"] = self.offset
        fields |= {name: value for name in ("duration", "channel") if (value := getattr(self, name)) is not None}
        fields["text"] = self.text
        fields |= {name: value for name in ("language", "speaker", "noise") if (value := getattr(self, name))}
        if self.extra:
            fields["extra"] = dict(self.extra)
        return as_line(fields)

    @classmethod
    def from_line(cls, line: str | bytes) -> Utterance:
        """Reads a line that `to_line` has written."""
        return cls(**json.loads(line))


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one model on one utterance. A failed recording has no scores, and `error` says why."""

    id: str  # of the utterance
    model: str  # the model's key, such as demo/sensevoice|gguf|q8_0
    text: str  # as the model wrote it, before any normaliser
    error: str | None = None  # one sentence; the text is then empty
    audio_seconds: float = 0.0  # of the sound that the model heard
    scores: Mapping[str, Any] | None = None  # see `scores_of`; None for an error
    language: str | None = None  # as the model heard it
    tokens: tuple[int, ...] = ()  # ids, as the network's decoding emitted them
    words: tuple[Mapping[str, Any], ...] = ()  # {text, start, end}, and confidence if the model gives one
    notes: tuple[str, ...] = ()
    measured: Mapping[str, Any] = field(default_factory=dict)  # see `Measured`

    def to_line(self) -> str:
        """Returns the result as one line of JSON; `tokens`, `words`, `language` and `notes` only if there are any."""
        fields: dict[str, Any] = {
            "id": self.id,
            "model": self.model,
            "text": self.text,
            "error": self.error,
            "audio_seconds": round(self.audio_seconds, 3),
            "scores": self.scores,
        }
        fields |= {name: value for name in ("language", "tokens", "words", "notes") if (value := getattr(self, name))}
        fields[MEASURED] = dict(self.measured)
        return as_line(fields)

    @classmethod
    def from_line(cls, line: str | bytes) -> Result:
        """Reads a line that `to_line` has written; raises `ValueError` for any other line, such as a torn one."""
        try:
            row = json.loads(line)
        except RecursionError as error:
            raise ValueError("not a result") from error
        if not isinstance(row, dict) or not all(isinstance(row.get(name), kind) for name, kind in _KINDS.items()):
            raise ValueError("not a result")
        if not _is_counted(row.get("scores")):
            raise ValueError("a result without its counts")
        try:
            fields: dict[str, Any] = {name: tuple(value) if name in _TUPLES else value for name, value in row.items()}
            return cls(**fields)
        except TypeError as error:
            raise ValueError("not a result") from error

    @property
    def rates(self) -> ErrorRates | None:
        """The error rates of this utterance, which `workbench.text.rates.pool_scores` adds up; None for an error.

        The run knows the normaliser's name, which all results of one directory share.
        """
        if self.scores is None:
            return None
        words, chars = counts_of(self.scores, "words"), counts_of(self.scores, "chars")
        name: RateName = self.scores["primary"]
        primary = words if name == "WER" else chars if name == "CER" else counts_of(self.scores, "mixed")
        return ErrorRates(name, primary, words, chars, "", "")


_TUPLES = {"tokens", "words", "notes"}
_KINDS: dict[str, Any] = {"id": str, "model": str, "text": str, "audio_seconds": (int, float), MEASURED: dict}
_UNITS = {"WER": ("words", "chars"), "CER": ("words", "chars"), "MER": ("words", "chars", "mixed")}


def _is_counted(scores: Any) -> bool:
    """Returns whether these are scores as `scores_of` returns them, or none."""
    try:
        return scores is None or all(
            isinstance(scores[unit][name], int) for unit in _UNITS[scores["primary"]] for name in COUNTED
        )
    except (KeyError, TypeError):
        return False


def scores_of(score: Score) -> dict[str, Any]:
    """The counts of a score as plain values: `primary` (WER, CER or MER), `words`, `chars`, and for MER `mixed`.

    Each of them has `substitutions`, `deletions`, `insertions`, `hits`, and `length`, the units of the reference.
    """
    values: dict[str, Any] = {
        "primary": score.name,
        "words": _plain_counts(score.words),
        "chars": _plain_counts(score.characters),
    }
    return {**values, "mixed": _plain_counts(score.counts)} if score.name == "MER" else values


def counts_of(scores: Mapping[str, Any], unit: str) -> Counts:
    """The counts of `words`, `chars` or `mixed` as `workbench.text.rates` adds them up."""
    return Counts(**{name: scores[unit][name] for name in COUNTED})


def _plain_counts(counts: Counts) -> dict[str, int]:
    return {**{name: getattr(counts, name) for name in COUNTED}, "length": counts.reference_units}


def as_line(fields: Mapping[str, Any]) -> str:
    """Returns plain values as one line of JSON, with the end of the line; text stays readable."""
    try:
        return json.dumps(fields, ensure_ascii=False, allow_nan=False) + "\n"
    except ValueError as error:
        raise BadInput(f"{str(fields)[:80]} holds a number that is not finite; expected plain values") from error


def encoded(fields: str) -> bytes:
    r"""Returns JSON as UTF-8; a byte 0xFF in the name of a file becomes `\udcff`, which JSON reads back."""
    return fields.encode("utf-8", "backslashreplace")
