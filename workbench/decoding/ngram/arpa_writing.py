"""Writes n-gram models in the ARPA format, which KenLM, SRILM and `arpa_reading` read."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from workbench.decoding.ngram.tables import Ngrams, NgramTables
from workbench.system.atomic_files import explained_file_errors

_AT_ONCE = 1 << 14  # n-grams that become text together


def write_arpa(tables: NgramTables, path: Path, zipped: bool = False) -> None:
    """Writes the model, with nine significant digits of each number.

    Args:
        zipped: compress the file.

    Raises `BadInput` or `Unavailable` if the file cannot be written.
    """
    with explained_file_errors(path), path.open("wb") as target:
        if zipped:
            # Without a time in the file, the same model gives the same bytes.
            with gzip.GzipFile(filename="", fileobj=target, mode="wb", mtime=0) as file:
                for text in _texts(tables):
                    file.write(text.encode())
        else:
            for text in _texts(tables):
                target.write(text.encode())


def _texts(tables: NgramTables) -> Iterator[str]:
    counts = [f"ngram {order}={len(ngrams)}\n" for order, ngrams in enumerate(tables.orders, 1)]
    yield "".join(["\\data\\\n", *counts])
    words = np.array(tables.words, dtype=object)
    for order, ngrams in enumerate(tables.orders, 1):
        yield f"\n\\{order}-grams:\n"
        for first in range(0, len(ngrams), _AT_ONCE):
            yield "".join(_lines(ngrams, slice(first, first + _AT_ONCE), words))
    yield "\n\\end\\\n"


def _lines(ngrams: Ngrams, rows: slice, words: np.ndarray) -> Iterator[str]:
    texts = words[ngrams.words[rows]].tolist()
    for log10, names, backoff in zip(ngrams.log10[rows].tolist(), texts, ngrams.backoff[rows].tolist(), strict=True):
        ending = f"\t{backoff:.9g}" if backoff else ""
        yield f"{log10:.9g}\t{' '.join(names)}{ending}\n"
