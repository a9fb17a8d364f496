"""A session in a separate process: every failure gives the caller a one-line error, and the next call succeeds."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import textwrap
import tracemalloc
import types
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from tests.support import fake_worker
from tests.support.processes import (
    PATIENCE,
    ROOT,
    Background,
    FakeMaker,
    caught,
    children,
    eventually,
    fakes,
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


@pytest.fixture(scope="module", autouse=True)
def no_core_dumps() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    yield
    resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> SessionSpec:
    return SessionSpec("tiny", "sensevoice", "pytorch", tiny_sensevoice(tmp_path_factory.mktemp("tiny")))


@pytest.fixture(scope="module")
def session(spec: SessionSpec) -> Iterator[ProcessSession]:
    """One real model for the tests of this file; those that kill its process leave it to be started again."""
    with ProcessSession(spec) as session:
        yield session


@pytest.fixture(scope="module")
def expected(spec: SessionSpec) -> Transcript:
    return open_here(spec).transcribe(noise(2.0))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMaker]:
    yield from fakes(monkeypatch)


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


# A process that dies.


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
def test_crash_during_a_call_raises_one_line_error_and_the_next_call_succeeds(
    session: ProcessSession, expected: Transcript, number: signal.Signals
) -> None:
    events = session.stream(long_noise(), **LONG)
    next(events)
    pid = session.pid
    assert pid
    os.kill(pid, number)
    with pytest.raises(SessionDied) as error:
        list(events)
    assert str(error.value).startswith(f"the process of tiny on pytorch was ended by {number.name}")
    assert str(error.value).endswith("while transcribing; the next call starts a new one")
    assert "\n" not in str(error.value) and error.value.__suppress_context__
    assert list(events) == [] and gone(pid) and not session.busy
    assert heard(session.transcribe(noise(2.0))) == heard(expected)


def test_process_killed_between_calls_is_replaced_without_an_error(fake: FakeMaker) -> None:
    session = fake()
    for _ in range(5):
        session.start()
        assert session.pid
        os.kill(session.pid, signal.SIGKILL)  # the session has no time to notice it
        assert session.transcribe("x").text.endswith("/x")


def test_process_killed_before_it_received_the_call_is_replaced_without_an_error(fake: FakeMaker) -> None:
    session = fake()
    session.start()
    first_pid = session.pid
    assert first_pid
    os.kill(first_pid, signal.SIGSTOP)
    call = Background(lambda: session.trace("x"))
    eventually(lambda: session.busy)
    os.kill(first_pid, signal.SIGKILL)
    assert call.ended().error is None
    assert call.result.meta["pid"] not in (None, first_pid)


def test_native_abort_raises_one_line_error(fake: FakeMaker) -> None:
    session = fake()
    with pytest.raises(
        SessionDied, match=r"^the process of fake on fake was ended by SIGABRT while tracing; .* new one$"
    ):
        session.trace("x", do="abort")
    assert len(session.trace("x")["encoder.output"]) == 4


def test_exiting_model_raises_an_error_with_the_exit_status(fake: FakeMaker) -> None:
    session = fake()
    with pytest.raises(SessionDied, match="ended with status 3 while tracing"):
        session.trace("x", do="exit")
    assert session.trace("x")


def test_process_that_dies_while_loading_raises_an_error(fake: FakeMaker) -> None:
    session = fake("abort")
    with pytest.raises(SessionDied, match="of abort on fake was ended by SIGABRT while loading"):
        session.start()
    assert session.pid is None


def test_process_killed_while_sending_a_large_message_raises_an_error(fake: FakeMaker) -> None:
    session = fake()
    session.start()
    pid = session.pid
    assert pid
    child = psutil.Process(pid)
    idle = child.memory_info().rss
    events = session.stream("x", do="large")
    next(events)
    # The next message, which the child holds twice, does not fit into the socket: the child waits while it sends it.
    eventually(lambda: child.memory_info().rss > idle + 1.9 * fake_worker.LARGE)
    eventually(lambda: child.status() == psutil.STATUS_SLEEPING)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(SessionDied, match="was ended by SIGKILL, as happens when memory runs out, while transcribing"):
        list(events)
    assert session.transcribe("x").text.endswith("/x")


def test_result_of_100_megabytes_is_transferred(fake: FakeMaker) -> None:
    values = fake().trace("x", do="large")["encoder.output"]
    assert values.nbytes == 100_000_000
    np.testing.assert_array_equal(values, np.arange(len(values), dtype=np.float32))


def test_trace_written_to_a_file_is_not_transferred_between_processes(fake: FakeMaker, tmp_path: Path) -> None:
    session = fake()
    path = tmp_path / "t.safetensors"
    session.start()
    tracemalloc.start()
    trace = session.trace("x", do="large", out=path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000 and trace["encoder.output"].nbytes == 100_000_000
    with pytest.raises(BadInput, match="there is no folder"):
        session.trace("x", out=tmp_path / "none" / "t.safetensors")


def test_trace_file_is_removed_when_the_process_dies(fake: FakeMaker, tmp_path: Path) -> None:
    session = fake()
    with pytest.raises(SessionDied, match="while tracing"):
        session.trace("x", do="half", out=tmp_path / "t.safetensors")
    assert not list(tmp_path.iterdir())


def test_child_process_ends_with_its_parent(spec: SessionSpec) -> None:
    script = f"""
        import sys
        from pathlib import Path
        from workbench.core.settings import SessionSpec
        from workbench.isolation.serial import ProcessSession
        session = ProcessSession(SessionSpec("tiny", "sensevoice", "pytorch", Path({str(spec.checkpoint)!r})))
        session.start()
        print(session.pid, flush=True)
        sys.stdin.read()
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    psutil.wait_procs([child], PATIENCE)
    assert not child.is_running()


def test_child_process_ends_with_its_parent_while_loading() -> None:
    script = """
        import sys, threading
        from pathlib import Path
        from workbench.isolation import serial
        from workbench.core.settings import SessionSpec
        serial.CHILD = ("-P", "-m", "tests.support.fake_worker")
        session = serial.ProcessSession(SessionSpec("never", "fake", "fake", Path("/")))
        threading.Thread(target=session.start, daemon=True).start()
        while session.pid is None:
            pass
        print(session.pid, flush=True)
        sys.stdin.read()
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    psutil.wait_procs([child], PATIENCE)
    assert not child.is_running()


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
