"""Judges an answer to an exercise of a notebook, and says what is wrong with it."""

from __future__ import annotations

from typing import Any

ORDINALS = ("first", "second", "third")


def check_answer(mine: Any, right: Any, tolerance: float = 0, hint: str = "") -> str:
    """Returns whether an answer is right. Of a wrong one it says what is wrong, and in a second line the hint.

    Args:
        mine: the answer; `...` is an answer that was not tried.
        right: a number or a text, or a tuple of them. In a text, capitals do not count.
        tolerance: by which a number may differ.
    """
    fault = _fault(mine, right, tolerance)
    if fault is None:
        return "not tried yet"
    return "right" if not fault else f"not yet; {fault}" + (f"\nHint: {hint}" if hint else "")


def _fault(mine: Any, right: Any, tolerance: float) -> str | None:
    """Returns what is wrong with an answer: an empty text if nothing is, None if it was not tried."""
    if not isinstance(right, tuple):
        return None if mine is ... else _fault_of_one(mine, right, tolerance)
    try:
        answers = None if mine is ... or isinstance(mine, str) else tuple(mine)
    except TypeError:  # one value
        answers = None
    if mine is ... or (answers and all(each is ... for each in answers)):
        return None
    if answers is None or len(answers) != len(right):
        return f"expected {len(right)} values with a comma between them"
    for place, (one, wanted) in enumerate(zip(answers, right, strict=True)):
        fault = "is not tried yet" if one is ... else _fault_of_one(one, wanted, tolerance).removeprefix("it ")
        if fault:
            return f"the {ORDINALS[place]} value {fault}"
    return ""


def _fault_of_one(mine: Any, right: float | str, tolerance: float) -> str:
    """Returns what is wrong with one value, such as `it is too large`; an empty text if it is right."""
    if isinstance(right, str):
        if not isinstance(mine, str):
            return "it should be a text in quotes"
        return "" if mine.strip().casefold() == right.casefold() else "it is another text"
    try:
        number = float("nan" if isinstance(mine, str) else mine)
    except (TypeError, ValueError, RuntimeError):  # no number, or several
        number = float("nan")
    if number != number:
        return "it should be a number"
    return "" if abs(number - right) <= tolerance else "it is too large" if number > right else "it is too small"
