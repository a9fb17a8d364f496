"""Normalisers for scoring, as one table: name -> title, function, version.

An error rate means nothing without the name and version of its normaliser, so every score carries both. If a function
changes its result, its version changes. Nothing here changes the raw texts.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

from workbench.core.errors import BadInput

_DIGIT_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_APOSTROPHES = str.maketrans(dict.fromkeys("\u2018\u2019\u02bc\u00b4`", "'"))  # other characters typed for it
_WITHOUT_TRACE = ("Cf", "Me")  # format characters and enclosing marks
# They only choose between shapes of the character before them, such as a coloured emoji.
_VARIATION_SELECTORS = re.compile("[\u180b-\u180d\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")


@dataclass(frozen=True)
class Normaliser:
    """One way to make two texts comparable."""

    title: str
    function: Callable[[str], str]
    version: str


def no_change(text: str) -> str:
    """Returns the text unchanged. Scoring splits it at white space, and that is all that is removed."""
    return text


def basic(text: str) -> str:
    """Returns the text in Unicode NFKC and lower case, without punctuation and symbols, with single spaces.

    Apostrophes inside words stay. A removed character separates words ("well-known" is two) and takes its combining
    marks along. An invisible format character or an enclosing mark (a keycap) disappears without separating.
    `basic("Ｈello, it’s  3.5 — OK！😊")` is `"hello it's 3 5 ok"`.
    """
    text = _VARIATION_SELECTORS.sub("", text).translate(_APOSTROPHES)
    text = "".join(
        " " if _is_lone_mark(char) else char for char in text if unicodedata.category(char) not in _WITHOUT_TRACE
    )
    # The lower case of a composed letter may be decomposed (Turkish İ), so compose again.
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).lower()).translate(_APOSTROPHES)
    characters = []
    removed = False  # whether the character that a mark would belong to is
    for index, char in enumerate(text):
        kind = unicodedata.category(char)[0]
        if char == "'":
            inside = 0 < index < len(text) - 1 and text[index - 1].isalnum() and text[index + 1].isalnum()
            removed = not inside
        elif kind != "M":
            removed = kind in "PSC"
        if not removed:
            characters.append(char)
        elif kind != "M":
            characters.append(" ")
    return " ".join("".join(characters).split())


def _is_lone_mark(char: str) -> bool:
    """Returns whether a character is a symbol that NFKC turns into a space with a mark on it (¨ or ‾)."""
    return unicodedata.category(char)[0] in "PS" and unicodedata.normalize("NFKC", char).startswith(" ")


def digits(text: str) -> str:
    """Returns `basic` of the text with every digit 0-9 as its English word, and "oh" as "zero".

    "371", "3 7 1" and "Three, seven, one." give the same text. Digits are read one by one: 42 is "four two", never
    "forty-two", so this is for digit strings, not for running English.
    """
    spelt = re.sub(r"[0-9]", lambda digit: f" {_DIGIT_WORDS[int(digit[0])]} ", basic(text))
    # The apostrophe of "80's" is no longer inside a word.
    return " ".join("zero" if word == "oh" else word for word in basic(spelt).split())


NORMALISERS = {
    "none": Normaliser("None: the raw text", no_change, "1"),
    "basic": Normaliser("Basic: case and punctuation do not count", basic, "2"),
    "digits": Normaliser("Digits: basic, and spoken and written English digits are the same", digits, "2"),
}


def find_normaliser(name: str) -> Normaliser:
    """Returns the table's entry of that name; raises `BadInput`, which lists the known names, if it does not exist."""
    try:
        return NORMALISERS[name]
    except KeyError:
        raise BadInput(f"there is no normaliser {name!r}; expected one of {', '.join(NORMALISERS)}") from None
