"""Facts about writing systems: which have no spaces between words, where a word ends, how wide a character is
displayed.

This file knows nothing of scores, subtitles or models.
"""

from __future__ import annotations

import bisect
import re
import unicodedata
from collections.abc import Iterable, Sequence

BROKEN = "\ufffd"  # an unfinished character decodes to this

# Scripts in which a space does not separate words, as inclusive code point ranges in ascending order. Hangul is in
# the list because writers disagree about its spaces; for that reason Korean is scored by characters.
_UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1100, 0x11FF),  # Hangul letters
    (0x1780, 0x17FF),  # Khmer
    (0x2E80, 0x2FDF),  # Han radicals
    (0x3001, 0x303F),  # CJK punctuation, iteration marks, Hangzhou numerals
    (0x3041, 0x33FF),  # kana, bopomofo, Hangul letters, enclosed and squared CJK
    (0x3400, 0x4DBF),  # Han, extension A
    (0x4E00, 0x9FFF),  # Han
    (0xA960, 0xA97F),  # Hangul letters, extension A
    (0xAC00, 0xD7FF),  # Hangul syllables
    (0xF900, 0xFAFF),  # Han, compatibility
    (0xFF01, 0xFF0F),  # full-width punctuation (full-width letters and digits are Latin words)
    (0xFF1A, 0xFF20),
    (0xFF3B, 0xFF40),
    (0xFF5B, 0xFFDC),  # full-width punctuation, half-width kana and Hangul
    (0x1B000, 0x1B16F),  # kana supplements
    (0x20000, 0x3FFFF),  # Han, extensions B and later
)
_FIRST = [first for first, _ in _UNSPACED]
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def is_unspaced(char: str) -> bool:
    """Returns whether a character belongs to a script (or its punctuation) in which spaces do not separate words."""
    index = bisect.bisect_right(_FIRST, ord(char)) - 1
    return index >= 0 and ord(char) <= _UNSPACED[index][1]


def is_hangul(char: str) -> bool:
    """Returns whether a character is Korean, which is scored by characters but written with spaces."""
    return unicodedata.name(char, "").startswith("HANGUL")


def is_mark(char: str) -> bool:
    """Returns whether a character combines with the one before it (an accent, a Thai vowel sign)."""
    return unicodedata.category(char).startswith("M")


def needs_space(left: str, right: str) -> bool:
    """Returns whether running text has a space between two pieces: only if both sides belong to spaced scripts."""
    if not left or not right:
        return False
    return is_mark(right[0]) or not (is_unspaced(left[-1]) or is_unspaced(right[0]))


def mixed_units(text: str) -> list[str]:
    """Returns the units of a mixed error rate: each character of an unspaced script, each word of the others.

    `mixed_units("打开 my app吧")` is `["打", "开", "my", "app", "吧"]`. Marks stay with their character.
    """
    units: list[str] = []
    for word in text.split():
        run, word_start = "", len(units)
        for char in word:
            if is_mark(char) and not run and len(units) > word_start:
                units[-1] += char
            elif is_unspaced(char) and not (is_mark(char) and run):
                units += [run, char] if run else [char]
                run = ""
            else:
                run += char
        if run:
            units.append(run)
    return units


def join_units(units: Iterable[str]) -> str:
    """Returns running text made of units: the inverse of `mixed_units`, with spaces between words only."""
    pieces: list[str] = []
    for unit in units:
        if pieces and needs_space(pieces[-1], unit):
            pieces.append(" ")
        pieces.append(unit)
    return "".join(pieces)


def join_texts(texts: Sequence[str]) -> str:
    """Joins the texts of consecutive chunks, with a space where the script puts spaces between words."""
    joined = ""
    for text in texts:
        korean = bool(joined and text) and is_hangul(joined[-1]) and is_hangul(text[0])
        joined += f" {text}" if korean or needs_space(joined, text) else text
    return joined


def characters(text: str) -> list[str]:
    """Returns the units of a character error rate: characters, and one space between words of spaced scripts."""
    found: list[str] = []
    for char in join_units(mixed_units(text)):
        if found and found[-1] != " " and is_mark(char):
            found[-1] += char
        else:
            found.append(char)
    return found


def display_width(text: str) -> int:
    """Returns the columns of a text on a screen: wide characters (CJK, emoji, sequences of emoji) 2, marks 0, others 1.

    A control character counts 1.
    """
    from wcwidth import wcswidth

    return wcswidth(_CONTROL.sub(" ", text))


def padded(text: str, columns: int) -> str:
    """Returns a text, followed by spaces up to `columns` columns."""
    return text + " " * (columns - display_width(text))


def settled_text(text: str) -> str:
    """Returns the part of a text that will not change: without a last character whose bytes are incomplete."""
    return text.rstrip(BROKEN)


def clipped(text: str, width: int, keep_end: bool = False) -> str:
    """Returns as much of the beginning (or end) of a text as fits into `width` columns.

    Never separates a character from its marks.
    """
    from wcwidth import iter_graphemes, iter_graphemes_reverse

    characters, columns = [], width
    for character in iter_graphemes_reverse(text) if keep_end else iter_graphemes(text):
        columns -= display_width(character)
        if columns < 0:
            break
        characters.append(character)
    return "".join(reversed(characters) if keep_end else characters)
