"""A language model's table of embeddings: its rows, and the tokens whose rows are nearest to other embeddings."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from workbench.core.errors import BadInput
from workbench.embeddings import check_embeddings, embedding_of
from workbench.embeddings.nearest import nearest
from workbench.session.values import Neighbours

SAMPLED = 2000  # rows of the embedding table that represent the vocabulary


class Table:
    """A language model's embedding table that reads rows on demand.

    Args:
        shape: (vocabulary, hidden).
        rows: returns the rows from a first index to an end index (exclusive), float32.
    """

    def __init__(self, shape: tuple[int, int], rows: Callable[[int, int], np.ndarray]):
        self.shape = shape
        self._rows = rows

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> np.ndarray:
        first, last, _ = rows.indices(len(self))
        return self._rows(first, last)


def neighbours_of(values: np.ndarray, table: Table, piece: Callable[[int], str], count: int, model: str) -> Neighbours:
    """Returns the tokens nearest to embeddings [tokens, hidden], and a sample of the table.

    Args:
        piece: returns the text of a token.
        model: its name, for messages.

    Raises `BadInput` for embeddings of another width.
    """
    embedding = embedding_of(np.asarray(values), "given")
    check_embeddings([embedding], table.shape[1], embedding.tokens, model)
    ids, cosines = nearest(embedding.values, table, count)
    texts = tuple(tuple(piece(int(token)) for token in row) for row in ids)
    places = np.unique(np.linspace(0, len(table) - 1, SAMPLED).astype(np.int64))
    sample = np.concatenate([table[place : place + 1] for place in places.tolist()])
    return Neighbours(ids, cosines, texts, sample)


def check_ids(ids: Sequence[int], vocabulary: int, model: str) -> None:
    """Raises `BadInput` for an id outside a vocabulary of so many ids; the message names the model."""
    wrong = next((number for number in ids if not 0 <= number < vocabulary), None)
    if wrong is not None:
        raise BadInput(f"{model} has no token {wrong}; expected ids from 0 to {vocabulary - 1}")


def rows_of(table: Table, ids: Sequence[int], model: str) -> np.ndarray:
    """Returns the rows of some tokens, float32 [tokens, hidden]; raises `BadInput` for an id outside the table."""
    check_ids(ids, len(table), model)
    rows = [table[number : number + 1] for number in ids]
    return np.concatenate([np.empty((0, table.shape[1]), dtype=np.float32), *rows]).astype(np.float32)
