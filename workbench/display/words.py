"""Durations, speeds and numbers in the words of the page, the notebooks and the reports."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """Returns a duration as `34 ms`, `2.1 s`, `3 min 20 s` or `1 h 05 min`."""
    if seconds < 0.9995:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 119.5:
        return f"{seconds:.1f} s" if seconds < 99.5 else f"{seconds:.0f} s"
    if seconds < 3599.5:
        return f"{round(seconds) // 60} min {round(seconds) % 60} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min"


def speed(compute_seconds: float, audio_seconds: float) -> str:
    """Returns the seconds of audio per second of computing, as `12 × real time`; empty if unknown."""
    if not (compute_seconds > 0 and audio_seconds > 0):
        return ""
    times = audio_seconds / compute_seconds
    return f"{times:.0f} × real time" if times >= 10 else f"{times:.1f} × real time"


def error_rate(rate: float | None) -> str:
    """Returns an error rate as `12.5 %`, or a dash if it is undefined."""
    return "–" if rate is None else f"{100 * rate:.1f} %"


def number(value: float) -> str:
    """Returns a number with three or four digits, as `0.0182`, `-12.3` or `1.2e-07`."""
    return f"{value:.3g}"


def clipped(text: str, limit: int = 60) -> str:
    """Returns a text on one line, with at most `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"
