"""Builds fragments of HTML from plain values. Every text is escaped; only functions of this room make `Html`.

A fragment has no script and loads nothing. It follows the theme of its surroundings (see `workbench.display.style`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from workbench.display.style import STYLE

MAX_TEXT_CHARACTERS = 4000  # characters of one text; the value itself has all of them
MAX_ROWS = 200  # of one table
_VOID = ("img",)  # elements without an end


class Html(str):
    """A text that is already HTML and is not escaped again."""


def escaped_text(value: Any) -> Html:
    """Returns a value as text in HTML: escaped, cut to `MAX_TEXT_CHARACTERS`, with its own text direction."""
    if isinstance(value, Html):
        return value
    text = str(value)
    hidden = len(text) - MAX_TEXT_CHARACTERS
    if hidden > 0:
        text = f"{text[:MAX_TEXT_CHARACTERS]}… (and {hidden} more characters)"
    return Html(f"<bdi>{_escaped(text)}</bdi>" if _has_direction(text) else _escaped(text))


def _escaped(text: str) -> str:
    """Returns a text without characters that HTML cannot hold: control characters and halves of characters become �."""
    return escape("".join("\ufffd" if _is_unfit(char) else char for char in text))


def _is_unfit(char: str) -> bool:
    if char in "\n\t":
        return False
    return unicodedata.category(char) in ("Cc", "Cs") or ord(char) & 0xFFFE == 0xFFFE


def _has_direction(text: str) -> bool:
    """Returns whether a text could turn the direction of what follows it."""
    return not text.isascii() and any(unicodedata.bidirectional(char) not in ("L", "EN", "WS", "ON") for char in text)


def direction(text: str) -> str | None:
    """Returns "rtl" for the attribute `dir` of an element whose text begins in a script from right to left, else None.

    `dir="auto"` does not see a text in an element of its own.
    """
    kinds = (unicodedata.bidirectional(char) for char in text)
    return "rtl" if next((kind for kind in kinds if kind in ("L", "R", "AL")), "L") != "L" else None


def element(name: str, *content: Any, **attributes: Any) -> Html:
    """Returns an element with its content, escaped. `class_` is the attribute `class`, and `data_x` is `data-x`.

    An attribute that is None or False is left out.
    """
    attribute_text = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_escaped(str(value))}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _VOID:
        return Html(f"<{name}{attribute_text}/>")
    return Html(f"<{name}{attribute_text}>{''.join(map(escaped_text, content))}</{name}>")


def joined(parts: Iterable[Html]) -> Html:
    """Returns fragments one after another."""
    return Html("".join(parts))


def table(head: Sequence[Any], rows: Sequence[Sequence[Any]], *, words: Sequence[int] = (0,)) -> Html:
    """Returns a table that scrolls inside its place, with at most `MAX_ROWS` rows and the number of the others.

    Args:
        words: the columns that hold words; they are aligned to the left, and the others are numbers.
    """
    kinds = ["words" if column in words else None for column in range(len(head))]
    top = joined(element("th", each, scope="col", class_=kind) for each, kind in zip(head, kinds))
    body = joined(element("tr", joined(_cell(each, kind) for each, kind in zip(row, kinds))) for row in rows[:MAX_ROWS])
    content = element("table", element("thead", element("tr", top)), element("tbody", body))
    more = len(rows) - MAX_ROWS
    after = element("p", f"and {more} more rows", class_="quiet") if more > 0 else Html("")
    return element("div", content, after, class_="scroll")


class TableCell(Html):
    """The content of a table's cell with a class of its own."""

    kind: str

    def __new__(cls, content: Any, kind: str) -> TableCell:
        cell = super().__new__(cls, escaped_text(content))
        cell.kind = kind
        return cell


def _cell(content: Any, kind: str | None) -> Html:
    cell_kind = content.kind if isinstance(content, TableCell) else None
    return element("td", content, class_=" ".join(filter(None, (kind, cell_kind))) or None)


def facts(*values: str | None) -> Html:
    """Returns short facts in one line of quiet colour; leaves out values that are None or empty."""
    known = [element("span", value) for value in values if value]
    return element("p", Html(" · ".join(known)), class_="quiet facts")


def notes(lines: Iterable[str]) -> Html:
    """Returns sentences as a list; nothing without any."""
    items = joined(element("li", line) for line in lines)
    return element("ul", items, class_="notes") if items else Html("")


def folded(title: str, *content: Html) -> Html:
    """Returns content under a title that opens it on a click, without a script."""
    return element("details", element("summary", title), *content)


def card(title: str, *content: Html) -> str:
    """Returns the fragment of one result: its style, its title, and its content."""
    body = element("div", element("p", title, class_="title"), *content, class_="workbench-value")
    return f"<style>{_SPACE.sub(' ', STYLE).strip()}</style>{body}"


_SPACE = re.compile(r"\s+")
