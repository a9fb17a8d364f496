"""Turns segments into subtitle cues that people can read in time: one or two short lines, cut at pauses and sentence
ends.

The limits are those of broadcasters and streaming services: 42 columns a line (a CJK character takes two), two lines,
seven seconds. If the tokens of a segment have times, a cue begins and ends with its tokens; otherwise the text is
spread evenly over the segment's time. This file knows no file format and no model.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from workbench.session.values import Segment, Token, Transcript
from workbench.text.scripts import display_width, mixed_units

LINE_COLUMNS = 42
LINES = 2
MAX_SECONDS = 7.0
LINGER_SECONDS = 1.0  # a cue stays visible this long into a pause, so that pauses between words do not flicker
MOMENT_SECONDS = 0.5  # the duration of a cue with equal times, which players would not show otherwise
PAUSE_SECONDS = 0.3  # a silence long enough for a cut
_LOOK_AHEAD = (
    8  # letters of text that no token spells (punctuation, a number written out) before the next that one does
)
_SENTENCE_ENDS = (".", "!", "?", "…", "。", "！", "？", "．")
_CLAUSE_ENDS = (",", ";", ":", "，", "、", "；", "：", "—", "–")


@dataclass(frozen=True)
class Cue:
    """One or two lines on the screen from `start_ms` to `end_ms` (whole milliseconds, end after start)."""

    start_ms: int
    end_ms: int
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Atom:
    """A piece of text that no cut divides: a word, or a CJK character, with its punctuation."""

    text: str
    space: bool  # whether running text has a space before it
    start: float
    end: float


def cues(segments: Iterable[Segment]) -> list[Cue]:
    """Returns the cues of segments in any order, sorted by start. A segment without text has none."""
    timed = [cue for segment in segments for cue in _segment_cues(segment)]
    timed.sort(key=lambda cue: (cue.start_ms, cue.end_ms))
    for index, cue in enumerate(timed):
        if cue.end_ms <= cue.start_ms:
            later = (follower.start_ms for follower in timed[index + 1 :] if follower.start_ms > cue.start_ms)
            moment = cue.start_ms + round(1000 * MOMENT_SECONDS)
            timed[index] = replace(cue, end_ms=min(next(later, moment), moment))
    return timed


def segments_of(transcript: Transcript) -> tuple[Segment, ...]:
    """Returns the segments of a transcript; a text without segments is one segment over the whole recording."""
    if transcript.segments or not transcript.text.strip():
        return transcript.segments
    return (Segment(0.0, transcript.audio_seconds, transcript.text),)


def timed_words(segment: Segment) -> list[tuple[str, float, float]]:
    """Returns the words of a segment (of Chinese and Japanese, the characters), each with its start and end in seconds.

    Punctuation belongs to the word before it. A segment whose tokens have no times has no words with times.
    """
    if not segment.tokens or any(token.start is None or token.end is None for token in segment.tokens):
        return []
    return [(atom.text, atom.start, atom.end) for atom in atoms_of(segment)]


def tokens_in(text: str, tokens: Iterable[Token]) -> list[tuple[Token, int, int]]:
    """Returns the tokens that the text spells, in order, each with its range of letters (characters except spaces).

    Case and the pieces' word marks do not count. A token that the text does not spell within a few letters after the
    last one is left out, so a text that was edited or rewritten (numbers, punctuation) keeps the tokens around the
    change.
    """
    letters = _folded("".join(text.split()))
    found, at = [], 0
    for token in tokens:
        spelt = _folded("".join(token.text.replace("\u2581", "").removesuffix("@@").split()))
        first = letters.find(spelt, at, at + len(spelt) + _LOOK_AHEAD) if spelt else -1
        if first >= 0:
            at = first + len(spelt)
            found.append((token, first, at))
    return found


def _folded(text: str) -> str:
    """Returns the text in lower case, letter by letter, so that positions stay the same."""
    return "".join(char.lower() if len(char.lower()) == 1 else char for char in text)


def _segment_cues(segment: Segment) -> list[Cue]:
    atoms = atoms_of(segment)
    if not atoms:
        return []
    if segment.end - segment.start <= MAX_SECONDS and _fitting(atoms) == len(atoms):
        return [Cue(milliseconds(segment.start), milliseconds(segment.end), _lines(atoms))]
    groups: list[Sequence[Atom]] = []
    at, columns_left = 0, _columns(atoms)
    while at < len(atoms):
        cut = _cut(atoms[at : at + LINES * LINE_COLUMNS + 1], columns_left)
        groups.append(atoms[at : at + cut])
        at, columns_left = at + cut, columns_left - _columns(groups[-1])
    cues_of_groups = []
    for index, group in enumerate(groups):
        last = index + 1 == len(groups)
        until = segment.end if last else min(groups[index + 1][0].start, group[-1].end + LINGER_SECONDS)
        end = min(until, group[0].start + MAX_SECONDS)
        cues_of_groups.append(Cue(milliseconds(group[0].start), milliseconds(end), _lines(group)))
    return cues_of_groups


def atoms_of(segment: Segment) -> list[Atom]:
    """Returns the segment's text in pieces that a cut may separate, each with its times."""
    texts: list[tuple[str, bool]] = []  # a text, and whether a space is before it
    for word in segment.text.split():
        opening, space = "", True
        for unit in mixed_units(word):
            if _is_opening(unit):
                opening += unit
            elif texts and not opening and not any(map(str.isalnum, unit)):
                before, its_space = texts.pop()
                texts.append((before + (" " if space else "") + unit, its_space))
            else:
                texts.append((opening + unit, space))
                opening = ""
            space = space and bool(opening)
        if opening:
            texts.append((opening, space))
    times = _letter_times(segment)
    atoms, at = [], 0
    for text, space in texts:
        for number, part in enumerate(_parts(text)):
            end = at + len(part.replace(" ", ""))
            atoms.append(Atom(part, space and not number, times[at][0], times[end - 1][1]))
            at = end
    return atoms


def _is_opening(unit: str) -> bool:
    return all(unicodedata.category(char) in ("Ps", "Pi") for char in unit)


def _parts(text: str) -> list[str]:
    """Returns the pieces of a text that is longer than a line, cut where the line is full."""
    parts = [""]
    for char in text:
        if display_width(parts[-1] + char) > LINE_COLUMNS:
            parts.append("")
        parts[-1] += char
    return [part.strip() for part in parts if part.strip()]


def _letter_times(segment: Segment) -> list[tuple[float, float]]:
    """Returns start and end of each letter (character except space) of the text.

    The times come from the tokens that spell the letters; letters between tokens are spread evenly.
    """
    letters = "".join(segment.text.split())
    times: list[tuple[float, float]] = []
    time, final = segment.start, max(segment.start, segment.end)

    def spread(until: int, end: float) -> None:
        nonlocal time
        # Punctuation takes no time, or a comma would fill the pause after it.
        weights = [display_width(char) if char.isalnum() else 0 for char in letters[len(times) : until]]
        begin, length, passed, total_weight = time, end - time, 0, sum(weights)
        for weight in weights:
            times.append((time, begin + length * (passed + weight) / total_weight if total_weight else begin))
            passed += weight
            time = times[-1][1]

    for token, first, end in tokens_in(segment.text, segment.tokens):
        if token.start is not None and token.end is not None:
            token_start = min(max(token.start, time), final)
            spread(first, token_start)
            time = token_start
            spread(end, min(max(token.end, token_start), final))
    spread(len(letters), final)
    return times


def _fitting(atoms: Sequence[Atom]) -> int:
    """Returns how many of the atoms fit into one cue; at least one."""
    lines, first = 1, 0  # of the lines so far, and the first atom of the last one
    for index, atom in enumerate(atoms):
        if index > first and _columns(atoms[first : index + 1]) > LINE_COLUMNS:
            lines, first = lines + 1, index
        if index and (lines > LINES or atom.end - atoms[0].start > MAX_SECONDS):
            return index
    return len(atoms)


def _cut(atoms: Sequence[Atom], columns_left: int) -> int:
    """Returns the end of the first cue: near an even share of the columns left, best after a sentence or pause."""
    max_atoms = _fitting(atoms)
    if max_atoms == len(atoms):
        return max_atoms
    share = columns_left / math.ceil(columns_left / max(_columns(atoms[:max_atoms]), 1))

    def cost(cut: int) -> float:
        pause = atoms[cut].start - atoms[cut - 1].end >= PAUSE_SECONDS
        return abs(_columns(atoms[:cut]) / share - 1) - max(_merit(atoms[cut - 1]), 0.35 if pause else 0.0)

    return min(range(1, max_atoms + 1), key=lambda cut: (cost(cut), -cut))


def _lines(atoms: Sequence[Atom]) -> tuple[str, ...]:
    """Returns the atoms as one line, or as two of similar length, preferably cut after a clause."""
    if _columns(atoms) <= LINE_COLUMNS:
        return (_text(atoms),)
    cuts = [
        cut
        for cut in range(1, len(atoms))
        if _columns(atoms[:cut]) <= LINE_COLUMNS and _columns(atoms[cut:]) <= LINE_COLUMNS
    ]
    columns = _columns(atoms)
    best = min(cuts, key=lambda cut: abs(2 * _columns(atoms[:cut]) / columns - 1) - 0.5 * _merit(atoms[cut - 1]))
    return (_text(atoms[:best]), _text(atoms[best:]))


def _merit(atom: Atom) -> float:
    """Returns the value of a cut after the atom, as the share of a cue that may be lost for it."""
    closed = atom.text.rstrip("\"'”’」』）)")
    return 0.6 if closed.endswith(_SENTENCE_ENDS) else 0.35 if closed.endswith(_CLAUSE_ENDS) else 0.0


def _text(atoms: Sequence[Atom]) -> str:
    return "".join(" " * (atom.space and index > 0) + atom.text for index, atom in enumerate(atoms))


def _columns(atoms: Sequence[Atom]) -> int:
    return display_width(_text(atoms))


def milliseconds(seconds: float) -> int:
    """Returns whole milliseconds, at least 0."""
    return max(0, round(1000 * seconds))
