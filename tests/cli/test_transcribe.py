"""Transcription of several recordings (a bad one fails alone), and the progress line in the terminal."""

from __future__ import annotations

import io
import os
from collections.abc import Generator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wcwidth import iter_graphemes

from workbench.cli.transcribe import ProgressLine, doubts, transcripts
from workbench.core.errors import BadInput, SessionDied, WorkbenchError
from workbench.session.reading import read_transcript
from workbench.session.values import Doubt, Event, Partial, Progress, Transcript
from workbench.text.scripts import clipped, display_width


def transcript(text: str) -> Transcript:
    return Transcript("fake", "fake", text, None, (), (), 1.0, 0.0, 0.0)


class Batches:
    """Transcribes recordings by their names, several side by side; some names cause errors."""

    def __init__(self, size: int = 1):
        self.size = size
        self.calls: list[list[str]] = []

    def stream_batch(
        self, audios: Sequence[str], **options: Any
    ) -> Generator[tuple[int, Event | BadInput], None, None]:
        self.calls.append(list(audios))
        waiting: list[int] = []
        for number, name in enumerate(audios):
            yield number, Progress(0.0, 1.0, "listening")
            if name.startswith("unreadable"):
                yield number, BadInput(f"{name} is no sound")
            else:
                waiting.append(number)
            if len(waiting) == self.size or number == len(audios) - 1:
                yield from self.transcribed(audios, waiting)
                waiting = []

    def transcribed(self, audios: Sequence[str], numbers: list[int]) -> Generator[tuple[int, Event], None, None]:
        for number in numbers:
            if audios[number].startswith("dies"):
                raise SessionDied(f"died of {audios[number]}")
            if audios[number].startswith("refuses"):
                raise BadInput(f"{audios[number]} is too long")
        for number in numbers:
            yield number, Partial(0.0, 1.0, "par")
            if not audios[number].startswith("silent"):
                yield number, transcript(audios[number])


def texts_of(batches: Batches, names: Sequence[str]) -> dict[int, str]:
    texts = {}
    for number, result in transcripts(batches, names, {}):  # type: ignore[arg-type]
        assert number not in texts
        texts[number] = result.text if isinstance(result, Transcript) else type(result).__name__
    return texts


@given(st.lists(st.sampled_from(["good", "unreadable", "dies", "refuses"]), min_size=1, max_size=9), st.integers(1, 4))
def test_each_recording_has_its_own_result_despite_failures_of_others(kinds: list[str], size: int) -> None:
    names = [f"{kind}{number}.wav" for number, kind in enumerate(kinds)]
    errors = {"unreadable": "BadInput", "dies": "SessionDied", "refuses": "BadInput"}
    expected = {number: errors.get(kind, names[number]) for number, kind in enumerate(kinds)}
    assert texts_of(Batches(size), names) == expected


def test_recordings_without_errors_are_transcribed_in_one_call() -> None:
    batches = Batches(size=2)
    texts_of(batches, ["a", "b", "c"])
    assert batches.calls == [["a", "b", "c"]]


def test_dead_worker_retries_only_its_current_recordings_one_by_one() -> None:
    batches = Batches(size=3)
    texts = texts_of(batches, ["a", "dies", "c", "d", "e", "f"])
    assert texts[1] == "SessionDied" and len(texts) == 6
    assert batches.calls[1:] == [["a"], ["dies"], ["c"], ["d", "e", "f"]]


def test_session_without_a_transcript_raises_an_error() -> None:
    with pytest.raises(WorkbenchError, match=r"^silent\.wav: the session ended without a transcript$"):
        texts_of(Batches(), ["silent.wav"])


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("workbench.cli.transcribe.sys", SimpleNamespace(stderr=terminal))
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_, **__: os.terminal_size((40, 24)))
    return terminal


def last_line(terminal: Terminal) -> str:
    return terminal.getvalue().rpartition("\x1b[K")[2]


@pytest.mark.parametrize(
    ("text", "growing", "line"),
    [
        ("loading x", "", "loading x"),
        ("a.wav: ", "three seven", "a.wav: three seven"),
        ("a.wav: ", "one two three four five six seven eight", "a.wav:  three four five six seven eight"),
        ("a.wav: ", "七" * 30, "a.wav: " + "七" * 16),
        ("x" * 60, "", "x" * 39),
        ("x" * 60, "the end of it", "x" * 27 + "he end of it"),
        ("a.wav: ", "two\nlines\x1b[2J", "a.wav: two lines [2J"),
    ],
)
def test_progress_line_fits_the_terminal(terminal: Terminal, text: str, growing: str, line: str) -> None:
    ProgressLine().show(text, growing)
    assert last_line(terminal) == line and display_width(line) <= 39


def test_progress_line_is_cleared_before_a_result(terminal: Terminal) -> None:
    results = transcripts(Batches(), ["a.wav"], {})  # type: ignore[arg-type]
    next(results)
    assert "a.wav: par" in terminal.getvalue() and last_line(terminal) == ""


def test_progress_line_is_not_shown_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    monkeypatch.setattr("workbench.cli.transcribe.sys", SimpleNamespace(stderr=pipe))
    texts_of(Batches(), ["a.wav"])
    assert pipe.getvalue() == ""


def test_progress_line_is_not_shown_where_a_line_cannot_be_cleared(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    texts_of(Batches(), ["a.wav"])
    assert terminal.getvalue() == ""


@given(st.text(max_size=30), st.integers(0, 20), st.booleans())
def test_a_clipped_text_is_the_longest_part_that_fits(text: str, width: int, keep_end: bool) -> None:
    part = clipped(text, width, keep_end)
    assert text.endswith(part) if keep_end else text.startswith(part)
    assert display_width(part) <= width
    if part != text:
        characters = list(iter_graphemes(text))
        count = len(list(iter_graphemes(part)))
        longer = characters[-count - 1 :] if keep_end else characters[: count + 1]
        assert sum(map(display_width, longer)) > width


def test_clipping_keeps_grapheme_clusters_whole() -> None:
    family = "👨\u200d👩\u200d👧"
    assert clipped(f"a{family}b", 2) == "a" and clipped(f"a{family}b", 2, keep_end=True) == "b"
    assert clipped(f"a{family}b", 3) == f"a{family}" and clipped("cafe\u0301s", 2, keep_end=True) == "e\u0301s"


def test_doubt_suggests_another_model_and_survives_a_json_round_trip() -> None:
    plain = transcript("three")
    doubted = replace(plain, doubt=Doubt("other speech", "this sounds like other speech"))
    assert doubts(plain, "demo/paraformer") == [] and "doubt" not in plain.to_dict()
    [line] = doubts(doubted, "demo/paraformer")
    assert line == "this sounds like other speech; try --model sensevoice-small (downloads 940 MB)"
    assert read_transcript(doubted.to_dict()).doubt == doubted.doubt
    silent = replace(plain, doubt=Doubt("silence", "the recording is silent"))
    assert doubts(silent, "demo/paraformer") == ["the recording is silent"], "no other model hears more in it"
