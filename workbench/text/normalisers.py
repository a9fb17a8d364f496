"""What happens to a text before it is scored, as one table: name -> title, function, version.

A rate means nothing without the name and version of its normaliser, so both travel with every score; a change of
what a function does is a new version. The raw texts are never changed by anything here.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

from workbench.core.errors import BadInput

_DIGIT_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_APOSTROPHES = str.maketrans(dict.fromkeys("\u2018\u2019\u02bc", "'"))  # typographic and modifier-letter forms


@dataclass(frozen=True)
class Normaliser:
    """One way to make two texts comparable."""

    title: str
    function: Callable[[str], str]
    version: str


def no_change(text: str) -> str:
    """The text as it is; scoring splits it at white space, which is all that is taken away."""
    return text


def basic(text: str) -> str:
    """Unicode NFKC, lower case, no punctuation or symbols except apostrophes inside words, single spaces.

    A removed character separates words ("well-known" is two), except invisible format characters, which go without a
    trace. `basic("Ｈello, it’s  3.5 — OK！😊")` is `"hello it's 3 5 ok"`.
    """
    text = "".join(char for char in text if unicodedata.category(char) != "Cf")
    # Lower case of a composed letter may be a decomposed one (Turkish İ), so compose again after it.
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).lower()).translate(_APOSTROPHES)
    kept = []
    for index, char in enumerate(text):
        if char == "'":
            inside = 0 < index < len(text) - 1 and text[index - 1].isalnum() and text[index + 1].isalnum()
            kept.append(char if inside else " ")
        else:
            kept.append(" " if unicodedata.category(char)[0] in "PSC" else char)
    return " ".join("".join(kept).split())


def digits(text: str) -> str:
    """`basic`, and every digit 0-9 becomes the English word it is read as, "oh" becoming "zero".

    "371", "3 7 1" and "Three, seven, one." are the same text. Digits are read one by one: 42 is "four two", never
    "forty-two", so this is for digit strings, not for running English.
    """
    spelt = re.sub(r"[0-9]", lambda digit: f" {_DIGIT_WORDS[int(digit[0])]} ", basic(text))
    return " ".join("zero" if word == "oh" else word for word in spelt.split())


NORMALISERS = {
    "none": Normaliser("None: the raw text", no_change, "1"),
    "basic": Normaliser("Basic: case and punctuation do not count", basic, "1"),
    "digits": Normaliser("Digits: basic, and spoken and written English digits are the same", digits, "1"),
}


def find_normaliser(name: str) -> Normaliser:
    """The table's entry of that name; `BadInput` naming the known ones if there is none."""
    try:
        return NORMALISERS[name]
    except KeyError:
        raise BadInput(f"there is no normaliser {name!r}; expected one of {', '.join(NORMALISERS)}") from None
