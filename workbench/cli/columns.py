"""Rows of cells as the lines of a table for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from workbench.text.scripts import display_width


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yields a line for each row: the first column begins at the left, the cells of the others end at the right.

    Args:
        rows: of equal length.
    """
    widths = [max(map(display_width, column)) for column in zip(*rows)]
    for row in rows:
        room = [" " * (width - display_width(cell)) for cell, width in zip(row, widths)]
        yield "  ".join([row[0] + room[0], *(blank + cell for blank, cell in zip(room[1:], row[1:]))]).rstrip()
