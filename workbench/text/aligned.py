"""A score as text for a terminal: reference over hypothesis, unit by unit."""

from __future__ import annotations

from workbench.core.errors import BadInput
from workbench.text.rates import Difference, Score
from workbench.text.scripts import display_width, padded

_MARKS = {"equal": " ", "substitute": "S", "delete": "D", "insert": "I"}
_LABELS = ("reference ", "hypothesis ", "")


def aligned_text(score: Score, width: int = 100) -> str:
    """Returns the rate, the counts and both texts under each other, wrapped at `width` columns.

    Wide characters count two columns. A single unit that is wider than a line stands alone on its line, unbroken.

    `aligned_text(score("Three, seven one oh two nine.", "three eleven one two nine five"))` is

        WER 50.0 % (normaliser basic, version 2): 4 right, 1 substituted, 1 deleted, 1 inserted of 6
        reference   three seven  one oh two nine ****
        hypothesis  three eleven one ** two nine five
                          S          D           I

    Raises `BadInput` if `width` leaves no room for text beside the labels.
    """
    margin = max(map(len, _LABELS)) + 1
    room = width - margin
    if room < 10:
        raise BadInput(f"aligned text cannot be {width} columns wide; expected at least {margin + 10}")
    counts = score.counts
    head = (
        f"{score.summary} (normaliser {score.normaliser}, version {score.normaliser_version}): {counts.hits} right, "
        f"{counts.substitutions} substituted, {counts.deletions} deleted, {counts.insertions} inserted "
        f"of {counts.reference_units}"
    )
    row, filled = ["", "", ""], 0
    rows = [row]
    for piece in score.alignment:
        cells, columns = _cells(piece)
        if filled and filled + len(piece.separator) + columns > room:
            row, filled = ["", "", ""], 0
            rows.append(row)
        separator = piece.separator if filled else ""
        row[:] = [line + separator + cell for line, cell in zip(row, cells, strict=True)]
        filled += len(separator) + columns
    lines = [head]
    for row in rows:
        both_and_marks = [(label.ljust(margin) + line).rstrip() for label, line in zip(_LABELS, row, strict=True)]
        lines += both_and_marks if both_and_marks[-1] else both_and_marks[:-1]
    return "\n".join(lines)


def _cells(piece: Difference) -> tuple[list[str], int]:
    """Returns reference, hypothesis and mark of one unit, padded to the same number of columns, and that number."""
    columns = max(display_width(piece.reference), display_width(piece.hypothesis), 1)
    missing = "*" * columns
    cells = [piece.reference or missing, piece.hypothesis or missing, _MARKS[piece.kind]]
    return [padded(cell, columns) for cell in cells], columns
