"""Which words a model confuses, and where it adds and drops words.

The alignments are those of `workbench.text.rates.score`, recording by recording.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from workbench.evaluation.report.columns import Columns
from workbench.text.rates import Score, score

MAX_ALIGNED = 5000  # recordings of one model; more are spread evenly over the corpus
MAX_SHOWN = 20  # of each kind

Key = TypeVar("Key")


@dataclass(frozen=True)
class Borders:
    """How many units were added, or dropped, before the first right one, after the last, and between them."""

    start: int = 0
    middle: int = 0
    end: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.start + self.middle + self.end


@dataclass(frozen=True)
class Confusions:
    """The errors of one model, each with its number, the most frequent first."""

    model: str
    swapped: tuple[tuple[str, str, int], ...]  # reference, hypothesis
    dropped: tuple[tuple[str, int], ...]
    added: tuple[tuple[str, int], ...]
    added_at: Borders
    dropped_at: Borders
    aligned: int  # recordings with errors that were looked at
    wrong: int  # recordings with errors


def confusions(columns: Columns) -> list[Confusions]:
    """Returns the errors of each model."""
    errors = columns.errors()
    by_model = []
    for place, model in enumerate(columns.models):
        rows = np.flatnonzero(np.nan_to_num(errors[:, place]) > 0)
        wrong = len(rows)
        if wrong > MAX_ALIGNED:
            rows = rows[np.linspace(0, wrong - 1, MAX_ALIGNED).astype(int)]
        by_model.append(_counted(model, (_score(columns, model, row) for row in rows), len(rows), wrong))
    return by_model


def _score(columns: Columns, model: str, row: int) -> Score:
    return score(columns.utterances[row].text, columns.texts[model][row] or "", columns.normaliser)


def _counted(model: str, scores: Iterable[Score], aligned: int, wrong: int) -> Confusions:
    swapped: Counter[tuple[str, str]] = Counter()
    one_sided = {"delete": Counter[str](), "insert": Counter[str]()}
    positions: dict[str, Counter[str]] = {"delete": Counter(), "insert": Counter()}
    for each in scores:
        right = [place for place, piece in enumerate(each.alignment) if piece.kind == "equal"]
        first, last = (right[0], right[-1]) if right else (len(each.alignment), -1)
        for place, piece in enumerate(each.alignment):
            if piece.kind == "substitute":
                swapped[piece.reference, piece.hypothesis] += 1
            elif piece.kind != "equal":
                one_sided[piece.kind][piece.reference or piece.hypothesis] += 1
                # Without a right word there is no start and no end.
                part = "middle" if last < 0 or first < place < last else "start" if place < first else "end"
                positions[piece.kind][part] += 1
    return Confusions(
        model,
        tuple((*pair, count) for pair, count in _most_frequent(swapped)),
        tuple(_most_frequent(one_sided["delete"])),
        tuple(_most_frequent(one_sided["insert"])),
        Borders(**positions["insert"]),
        Borders(**positions["delete"]),
        aligned,
        wrong,
    )


def _most_frequent(counter: Counter[Key]) -> list[tuple[Key, int]]:
    """Returns the most frequent keys with their counts; equal counts are in alphabetical order."""
    return sorted(counter.items(), key=lambda pair: (-pair[1], str(pair[0])))[:MAX_SHOWN]
