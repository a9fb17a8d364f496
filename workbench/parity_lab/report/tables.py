"""Tables and numbers of a report as HTML. All text is escaped here; this file knows no stages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any


def table(
    head: Sequence[str], lines: Iterable[Sequence[str]], marks: Sequence[bool] = (), wide_columns: Sequence[int] = ()
) -> str:
    """Returns a table of texts; the first cell of each line is its name.

    Args:
        head: names of the columns; an empty one gives a table without head.
        marks: which lines are marked.
        wide_columns: columns whose texts may be long.
    """
    head_cells = "".join(f'<th scope="col"{_kind(n, wide_columns)}>{escape(cell)}</th>' for n, cell in enumerate(head))
    body = []
    for number, line in enumerate(lines):
        cells = "".join(f"<td{_kind(n, wide_columns)}>{escape(cell)}</td>" for n, cell in enumerate(line[1:], 1))
        mark = ' class="over"' if number < len(marks) and marks[number] else ""
        body.append(f'<tr{mark}><th scope="row">{escape(line[0])}</th>{cells}</tr>')
    head_html = f"<thead><tr>{head_cells}</tr></thead>" if head else ""
    return f"<table>{head_html}<tbody>{''.join(body)}</tbody></table>"


def _kind(column: int, wide_columns: Sequence[int]) -> str:
    return ' class="wide"' if column in wide_columns else ' class="text"' if column == 0 else ""


def pairs(values: Any) -> str:
    """Returns a mapping as `name value, name value`; empty for anything else."""
    return ", ".join(f"{name} {value}" for name, value in values.items()) if isinstance(values, Mapping) else ""


def short_number(value: float) -> str:
    """Returns a number with two digits, as in the sentences of verdicts."""
    return f"{value:.2g}"


def breakable_html(name: str) -> str:
    """Returns the name of a stage, escaped, with places where a line may break."""
    return escape(name).replace(".", ".<wbr>")
