"""Words or tokens at their times, as a strip that scrolls sideways. Takes texts and seconds; knows no transcript."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from workbench.display.html import Html, element, joined

MAX_MARKS = 400
WIDEST = 24000  # pixels of a strip
_MIN_PER_SECOND, _MAX_PER_SECOND = 40.0, 240.0  # pixels
_NARROW, _WIDE = 7.2, 13.0  # pixels of a character in the type of the strip
_ROW, _SCALE = 26, 16  # pixels of the height
_LABEL = 24  # pixels of a number on the scale
_STEPS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
_TICK_PIXELS = 56

Mark = tuple[float, float, str]
"""A text with its start and its end in seconds."""


def timeline(marks: Sequence[Mark], seconds: float) -> Html:
    """Returns texts at their times over a scale of seconds; nothing without texts or without a length.

    The strip is so wide that a usual text fits into its own time. It has the first `MAX_MARKS` texts and ends with the
    last of them.
    """
    visible_marks = [(max(start, 0.0), max(end, start, 0.0), text) for start, end, text in marks[:MAX_MARKS]]
    if not visible_marks or seconds <= 0:
        return Html("")
    end = max(seconds, visible_marks[-1][1]) if len(visible_marks) == len(marks) else visible_marks[-1][1]
    scale = min(_pixels_per_second(visible_marks), WIDEST / max(end, 1e-3))
    last = visible_marks[-1]
    width = max(end * scale + _LABEL, last[0] * scale + _pixels(last[2]) + 8)  # the last word and second stand whole
    shapes = [_tick(second, scale) for second in _seconds(end, scale)]
    for number, (start, stop, text) in enumerate(visible_marks):
        following = visible_marks[number + 1][0] if number + 1 < len(visible_marks) else width / scale
        shapes.append(_mark(start, stop, max(following, stop), text, scale))
    height = _ROW + _SCALE
    svg = element(
        "svg",
        *shapes,
        xmlns="http://www.w3.org/2000/svg",
        width=f"{width:.0f}",
        height=height,
        viewBox=f"0 0 {width:.0f} {height}",
        role="img",
        aria_label="the words over time",
    )
    return element("div", svg, class_="time", tabindex="0")


def _pixels_per_second(marks: Sequence[Mark]) -> float:
    """Returns a scale at which nine tenths of the texts fit between their start and the start of the next one."""
    scales = []
    for (start, stop, text), following in zip(marks, [*marks[1:], None]):
        room = (following[0] if following else stop) - start
        if room > 0:
            scales.append((_pixels(text) + 8) / room)
    usual = sorted(scales)[(9 * len(scales)) // 10 - 1 if len(scales) > 1 else 0] if scales else _MIN_PER_SECOND
    return min(max(usual, _MIN_PER_SECOND), _MAX_PER_SECOND)


def _mark(start: float, stop: float, room: float, text: str, scale: float) -> Html:
    left, width = start * scale, max((stop - start) * scale, 2.0)
    box = element("rect", x=f"{left:.1f}", y=1, width=f"{width:.1f}", height=_ROW - 4, rx=3)
    label = element("text", _fitting(text, (room - start) * scale - 4), x=f"{left + 3:.1f}", y=_ROW - 9)
    return element("g", element("title", f"{text} ({start:.2f} to {stop:.2f} s)"), box, label)


def _fitting(text: str, room: float) -> str:
    width = 0.0
    for place, char in enumerate(text):
        width += _pixels(char)
        if width > room:
            return f"{text[: max(place - 1, 0)]}…" if place > 1 else text[:1]
    return text


def _pixels(text: str) -> float:
    return sum(_WIDE if unicodedata.east_asian_width(char) in "WF" else _NARROW for char in text)


def _seconds(end: float, scale: float) -> list[float]:
    step = next((each for each in _STEPS if each * scale >= _TICK_PIXELS), 2 * _STEPS[-1])
    return [number * step for number in range(int(end / step + 1e-6) + 1)]


def _tick(second: float, scale: float) -> Html:
    left = second * scale
    line = element("line", x1=f"{left:.1f}", x2=f"{left:.1f}", y1=0, y2=_ROW)
    return joined((line, element("text", f"{second:g} s", class_="tick", x=f"{left + 2:.1f}", y=_ROW + 11)))
