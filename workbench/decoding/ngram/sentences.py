"""Reads the sentences of texts, a line each, for the training of an n-gram model."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from io import BufferedReader
from pathlib import Path
from typing import cast

from workbench.core.errors import BadInput
from workbench.decoding.ngram.line_blocks import LineBlocks, open_lines

STANDARD_INPUT = "-"


def read_sentences(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yields the words of each line of UTF-8 files, plain or gzipped, one file after the other; `-` is standard input.

    A word is what ASCII white space separates, as in ARPA files.

    Raises `BadInput` with the number of the line for a file that cannot be read.
    """
    for text in texts:
        with _open(text) as (lines, name):
            for first, block in lines.blocks():
                _check(block, first, name)
                for line in block.removesuffix(b"\n").split(b"\n"):
                    yield [str(word, "utf-8") for word in line.split()]


@contextlib.contextmanager
def _open(text: str) -> Iterator[tuple[LineBlocks, str]]:
    if text != STANDARD_INPUT:
        with open_lines(Path(text)) as lines:
            yield lines, text
        return
    if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
        raise BadInput(
            "standard input is closed or a terminal; expected a text, as in: cat text | workbench train-lm -"
        )
    yield LineBlocks(cast(BufferedReader, sys.stdin.buffer), "standard input"), "standard input"


def _check(block: bytes, first: int, name: str) -> None:
    """Raises `BadInput` if a block of lines is not UTF-8.

    Args:
        first: number of its first line.
    """
    try:
        block.decode("utf-8")
    except UnicodeDecodeError as error:
        line = first + block.count(b"\n", 0, error.start)
        raise BadInput(f"line {line} of {name} is not text in UTF-8") from error
