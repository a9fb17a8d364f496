"""A stand-in for the package `kenlm`: its interface, with the definition of a back-off model behind it."""

from __future__ import annotations

import math
from enum import Enum
from pathlib import Path
from typing import Any

from tests.support.slow_ngram import Entries, log10_of


class ARPALoadComplain(Enum):
    ALL = 0
    NONE = 2


class Config:
    show_progress = True
    arpa_complain = ARPALoadComplain.ALL


class State:
    """A history; equal histories are equal states."""

    def __init__(self) -> None:
        self.history: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, State) and other.history == self.history

    def __hash__(self) -> int:
        return hash(self.history)


class Model:
    """Reads no file: a test sets the n-grams. Raises what the package raises for a file that is too short."""

    entries: Entries = {}  # noqa: RUF012 (a test sets it)
    asked = 0

    def __init__(self, path: str, config: Any):
        if config.show_progress or config.arpa_complain is not ARPALoadComplain.NONE:
            raise AssertionError("KenLM would write to stderr")
        if Path(path).stat().st_size < 60:
            raise OSError("Cannot read model (lm/binary_format.cc:160 in ...)")
        self.order = max(map(len, self.entries))

    def __contains__(self, word: str) -> bool:
        return (word,) in self.entries

    def BeginSentenceWrite(self, state: State) -> None:
        state.history = ("<s>",)

    def NullContextWrite(self, state: State) -> None:
        state.history = ()

    def BaseScore(self, state: State, word: str, after: State) -> float:
        Model.asked += 1
        known = word if (word,) in self.entries else "<unk>"
        history = state.history[-(self.order - 1) :] if self.order > 1 else ()
        after.history = (*history, known)[1 - self.order :] if self.order > 1 else ()
        return float(math.fsum([log10_of(self.entries, known, history)]))
