"""Transcripts as annotations of speech research: TextGrid for Praat and ELAN, and NIST's CTM for scoring programs.

The functions return text and write no file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import NamedTuple

from workbench.session.values import Transcript
from workbench.text.spoken_words import spoken_words
from workbench.text.subtitles import milliseconds, segments_of

CHANNEL = 1  # the model hears all channels of a recording as one
UNNAMED = "recording"


class Interval(NamedTuple):
    """A labelled stretch of time, in whole milliseconds; without a label, nothing is annotated there."""

    start: int
    end: int
    label: str


def write_textgrid(transcripts: Sequence[Transcript], files: Sequence[str] = ()) -> str:
    """Returns Praat's long TextGrid: a tier `segments`, and a tier `words` if the model gave times of words.

    The intervals of a tier follow each other without a gap or an overlap, as Praat demands. Where segments overlap, the
    later one begins when the earlier one ends; a text without any time of its own joins the interval before it.
    """
    segments = [segment for transcript in transcripts for segment in segments_of(transcript)]
    tiers = {"segments": intervals((each.start, each.end, each.text) for each in segments)}
    words = [word for word in spoken_words(segments) if word.timed]
    if words:
        tiers["words"] = intervals((each.start, each.end, each.text) for each in words)
    ends = [tier[-1].end for tier in tiers.values() if tier]
    end = max([1, *(milliseconds(each.audio_seconds) for each in transcripts), *ends])
    lines = ['File type = "ooTextFile"', 'Object class = "TextGrid"', "", *_span(0, end, "")]
    lines += ["tiers? <exists>", f"size = {len(tiers)}", "item []:"]
    for number, (name, tier) in enumerate(tiers.items(), 1):
        covered = _without_gaps(tier, end)
        lines += [f"    item [{number}]:", '        class = "IntervalTier"', f"        name = {_quoted(name)}"]
        lines += [*_span(0, end, "        "), f"        intervals: size = {len(covered)}"]
        for place, each in enumerate(covered, 1):
            lines += [f"        intervals [{place}]:", *_span(each.start, each.end, "            ")]
            lines.append(f"            text = {_quoted(each.label)}")
    return "\n".join(lines) + "\n"


def write_ctm(transcripts: Sequence[Transcript], files: Sequence[str] = ()) -> str:
    """Returns NIST's CTM: a line for each word with its recording, channel, start and duration in seconds, and, if
    known, its confidence.

    The recording is its file name without folders and extension, and with `_` for spaces; `recording` if no name is
    known. Where the model gave no times, the words are spread evenly over their segment.
    """
    names = [PurePath(each.replace("\\", "/")).stem for each in files] or [UNNAMED] * len(transcripts)
    lines = []
    for name, transcript in zip(names, transcripts, strict=True):
        recording = _field(name) or UNNAMED
        for word in spoken_words(segments_of(transcript)):
            start, end = milliseconds(word.start), milliseconds(word.end)
            confidence = "" if word.confidence is None else f" {word.confidence:.3f}"
            times = f"{_seconds(start)} {_seconds(max(end - start, 0))}"
            lines.append(f"{recording} {CHANNEL} {times} {_field(word.text)}{confidence}\n")
    return "".join(lines)


def intervals(stretches: Iterable[tuple[float, float, str]]) -> list[Interval]:
    """Returns labelled stretches of seconds as intervals that do not overlap, in order of time."""
    found: list[Interval] = []
    for start_seconds, end_seconds, label in sorted(stretches):
        before = found[-1].end if found else 0
        start, end = max(milliseconds(start_seconds), before), milliseconds(end_seconds)
        if end > start or not found:
            found.append(Interval(start, max(end, start + 1), label))
        else:
            found[-1] = found[-1]._replace(label=f"{found[-1].label} {label}")
    return found


def _without_gaps(tier: Sequence[Interval], end: int) -> list[Interval]:
    """Returns the intervals and, between them, intervals without a label, from 0 to the end of the recording."""
    covered: list[Interval] = []
    for each in (*tier, Interval(end, end, "")):
        before = covered[-1].end if covered else 0
        if each.start > before:
            covered.append(Interval(before, each.start, ""))
        if each.end > each.start:
            covered.append(each)
    return covered


def _span(start: int, end: int, indent: str) -> list[str]:
    return [f"{indent}xmin = {_seconds(start)}", f"{indent}xmax = {_seconds(end)}"]


def _quoted(text: str) -> str:
    """Returns a text in quotes on one line; a quote within it stands twice."""
    return '"' + " ".join(text.split()).replace('"', '""') + '"'


def _field(text: str) -> str:
    """Returns a text as one field. A line that begins with two semicolons would be a comment."""
    field = "_".join(text.split())
    return f"_{field}" if field.startswith(";;") else field


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds // 1000}.{milliseconds % 1000:03d}"
