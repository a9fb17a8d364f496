"""A session in a separate process: every failure gives the caller a one-line error, and the next call succeeds."""

from __future__ import annotations

import sys
import types
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import fake_worker
from tests.support.processes import (
    FakeMaker,
    caught,
    children,
    gone,
    heard,
)
from tests.support.tiny_checkpoints import LONG, long_noise, noise, tiny_sensevoice
from workbench.audio.read import write_wav
from workbench.conversion import causal_lm, writer
from workbench.core.errors import BadInput, OutOfMemory, SessionDied, Unavailable, WorkbenchError
from workbench.core.settings import SessionSpec
from workbench.isolation.loader import open_here
from workbench.isolation.serial import ProcessSession
from workbench.registry.sources import assets
from workbench.session.values import Generation, Piece, Progress, Transcript

# A healthy process.


def test_child_process_gives_the_same_results_as_this_process(
    session: ProcessSession, spec: SessionSpec, expected: Transcript
) -> None:
    assert expected.text
    assert heard(session.transcribe(noise(2.0))) == heard(expected)
    local, remote = open_here(spec).trace(noise(2.0)), session.trace(noise(2.0))
    assert list(local) == list(remote) and local.meta == remote.meta
    for stage in local:
        np.testing.assert_array_equal(local[stage], remote[stage])


def test_stream_gives_progress_then_segments_and_ends_with_the_transcript(session: ProcessSession) -> None:
    events = list(session.stream(noise(5.0), **LONG))
    kinds = [type(event).__name__ for event in events]
    assert (
        kinds[0] == "Progress" and "Segment" in kinds and kinds[-1] == "Transcript" and kinds.count("Transcript") == 1
    )
    assert not session.busy


def test_relative_path_is_resolved_in_the_folder_of_the_caller(
    session: ProcessSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.start()  # it starts in the earlier folder
    monkeypatch.chdir(tmp_path)
    write_wav("here.wav", noise(2.0)[0])
    by_name = session.stream("here.wav")
    monkeypatch.chdir("/")  # the path was given in the other folder
    *_, transcript = by_name
    assert heard(transcript) == heard(session.transcribe(tmp_path / "here.wav"))


@pytest.mark.parametrize("audio", [None, 7, b"x.wav", [1, 2], (np.zeros(5),), ""])
def test_invalid_recording_argument_raises_bad_input(session: ProcessSession, audio: Any) -> None:
    with pytest.raises(BadInput):
        session.transcribe(audio)


def test_calls_from_several_threads_are_serialised(session: ProcessSession, spec: SessionSpec) -> None:
    recordings = [noise(1.0 + 0.5 * n, seed=n) for n in range(4)]
    local = open_here(spec)
    with ThreadPoolExecutor(4) as pool:
        transcripts = list(pool.map(session.transcribe, recordings * 3))
    assert [heard(t) for t in transcripts] == [heard(local.transcribe(r)) for r in recordings] * 3


def test_unload_ends_the_process_and_the_next_call_starts_a_new_one(
    session: ProcessSession, expected: Transcript
) -> None:
    session.start()
    first_pid = session.pid
    assert first_pid and session.memory_bytes > 50 << 20
    assert session.unload()
    assert session.pid is None and session.memory_bytes == 0 and gone(first_pid)
    assert heard(session.transcribe(noise(2.0))) == heard(expected)
    assert session.pid not in (None, first_pid)


def test_a_session_at_work_is_not_unloaded(session: ProcessSession) -> None:
    with closing(session.stream(long_noise(), **LONG)) as events:
        next(events)
        assert session.busy and not session.unload() and session.pid


# Errors of the model.


def test_bad_checkpoint_raises_the_error_of_the_child_and_leaves_no_process(spec: SessionSpec, tmp_path: Path) -> None:
    broken = tiny_sensevoice(tmp_path / "broken")
    (broken / "model.pt").write_bytes((broken / "model.pt").read_bytes()[:2000])
    children_before = children()
    with ProcessSession(SessionSpec("broken", "sensevoice", "pytorch", broken)) as session:
        for attempt in (session.start, lambda: session.transcribe(noise(1.0))):
            with pytest.raises(BadInput, match=r"^broken/model.pt \(2000 bytes\) is truncated"):
                attempt()
            assert session.pid is None and not session.busy
        assert children() <= children_before


@pytest.mark.parametrize(
    ("do", "kind", "sentence"),
    [
        ("refuse", BadInput, "the fake refuses"),
        ("unspeakable", WorkbenchError, "the fake holds a lock"),
        ("fault", WorkbenchError, "fake on fake failed: ValueError: first line second line"),
        ("memory", OutOfMemory, "fake on fake failed: there is not enough memory"),
        ("lambda", WorkbenchError, "fake on fake failed: "),
        ("unpicklable", WorkbenchError, "fake on fake failed: TypeError: <function"),
    ],
)
def test_any_error_of_the_model_reaches_the_caller(
    fake: FakeMaker, do: str, kind: type[Exception], sentence: str
) -> None:
    session = fake()
    session.start()
    pid = session.pid
    error = caught(lambda: session.trace("x", do=do))
    assert type(error) is kind and str(error).startswith(sentence) and "\n" not in str(error)
    notes = getattr(error, "__notes__", [])
    assert bool(notes) == sentence.startswith("fake on fake failed"), "an internal fault carries its traceback"
    assert all("Traceback" in note for note in notes)
    # A process without memory keeps what it has; the next call starts another.
    assert session.trace("x") and (session.pid == pid) == (do != "memory")


def test_arguments_that_cannot_be_pickled_raise_bad_input(fake: FakeMaker) -> None:
    session = fake()
    with pytest.raises(BadInput, match="cannot be sent to the session's process"):
        session.trace("x", hook=lambda: None)
    assert session.trace("x")


def test_arguments_that_cannot_be_unpickled_raise_bad_input(fake: FakeMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("only_in_this_process")
    exec("class Thing: pass", module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    session = fake()
    with pytest.raises(BadInput, match="cannot be understood in the session's process: No module named 'only_in_"):
        session.trace("x", thing=module.__dict__["Thing"]())
    assert session.trace("x")


def test_refused_admission_starts_no_process(fake: FakeMaker) -> None:
    refusals = [Unavailable("no room")]

    def admitted(newcomer: ProcessSession) -> AbstractContextManager[None]:
        if refusals:
            raise refusals.pop()
        return nullcontext()

    session = fake(admitted=admitted)
    with pytest.raises(Unavailable, match="no room"):
        session.transcribe("x")
    assert session.pid is None and not session.busy
    assert session.transcribe("x")


# Batches and texts.


def test_batch_results_keep_their_numbers_and_a_bad_recording_affects_no_other(fake: FakeMaker) -> None:
    session = fake()
    results = [
        (number, event)
        for number, event in session.stream_batch(["one.wav", Path("refuse.wav"), "two.wav"])
        if not isinstance(event, Progress)
    ]
    assert [number for number, _ in results] == [0, 1, 2]
    first, error, second = (event for _, event in results)
    assert isinstance(first, Transcript) and Path(first.text) == Path("one.wav").absolute()
    assert type(error) is BadInput and str(error) == "the fake refuses"
    assert isinstance(second, Transcript)
    assert [transcript.text for transcript in session.transcribe_batch(["one.wav", "two.wav"])] == [
        first.text,
        second.text,
    ]


def test_error_of_a_batch_names_the_bad_recording(fake: FakeMaker) -> None:
    session = fake()
    with pytest.raises(BadInput, match=r"^recording 2 of 3 \(refuse\.wav\): the fake refuses$"):
        session.transcribe_batch(["one.wav", "refuse.wav", "two.wav"])
    assert not session.busy and session.transcribe_batch([]) == []


@pytest.mark.parametrize("audios", ["one.wav", Path("one.wav"), (np.zeros(16), 16000), None, 7])
def test_single_recording_instead_of_a_list_is_refused(fake: FakeMaker, audios: Any) -> None:
    with pytest.raises(BadInput, match="is not a list of recordings; expected a list"):
        fake().transcribe_batch(audios)


def test_generated_text_is_streamed_in_pieces_and_ends_with_the_generation(fake: FakeMaker) -> None:
    session = fake()
    *pieces, generation = session.generate_stream("seven.wav")
    assert pieces == [Piece(f"{number} ", (number,)) for number in (1, 2, 3)]
    assert isinstance(generation, Generation) and generation.text == "seven.wav", "a prompt is no path"
    assert session.generate([{"role": "user", "content": "x"}]).tokens == (1, 2, 3)


def test_closing_a_text_stream_stops_the_generation(fake: FakeMaker) -> None:
    session = fake()
    with closing(session.generate_stream("x", do="many")) as pieces:
        assert [type(next(pieces)) for _ in range(3)] == [Piece] * 3
        pid = session.pid
    assert 0 < int(session.transcribe("x", do="report").text) < fake_worker.MANY and session.pid == pid


def test_process_death_during_generation_raises_an_error(fake: FakeMaker) -> None:
    session = fake()
    with pytest.raises(SessionDied, match="ended with status 3 while generating; the next call starts a new one"):
        session.generate("x", do="exit")
    assert session.generate("x").text == "x"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_gguf_language_model_session_loads_no_torch(tmp_path: Path) -> None:
    """Its tokenizer comes from transformers, whose import of torch would take seconds and hundreds of megabytes."""
    directory = assets() / "demo-funasr-nano"
    [path] = writer.write(causal_lm.plans(directory, "workbench"), "f16", tmp_path / "it.gguf")
    with ProcessSession(SessionSpec("it", "causal_lm", "gguf", path)) as session:
        assert session.generate("Count from two to four.", max_new_tokens=8).text
        assert "libtorch" not in Path(f"/proc/{session.pid}/maps").read_text()
