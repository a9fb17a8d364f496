"""Sessions forked from a prepared process behave and end like sessions started from scratch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.processes import ROOT, Listener, eventually, forked_fakes, gone
from workbench.core.errors import BadInput, Cancelled, SessionDied
from workbench.core.progress import listening
from workbench.core.settings import Server, SessionSpec, Settings
from workbench.isolation.concurrent import ParallelSession
from workbench.isolation.kinds import kind_of
from workbench.isolation.serial import ProcessSession
from workbench.prepared import pool as prepared
from workbench.prepared.kinds import COMPILED, Kind, session_environment, unused_packages
from workbench.prepared.pool import STARTED_EARLY, PreparedProcesses, prepared_processes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks safely")

Kinds = type[ProcessSession] | type[ParallelSession]
KINDS: list[Kinds] = [ProcessSession, ParallelSession]


@pytest.fixture(scope="module")
def pool() -> Iterator[PreparedProcesses]:
    with forked_fakes() as pool:
        yield pool


@pytest.fixture
def make(pool: PreparedProcesses) -> Iterator[Callable[..., Any]]:
    sessions: list[Any] = []
    pool.use()

    def make(kind: Kinds = ProcessSession, name: str = "fake") -> Any:
        sessions.append(kind(SessionSpec(name, "fake", "fake", Path("/"))))
        return sessions[-1]

    yield make
    for session in sessions:
        session.close()


def parent_of(session: Any) -> psutil.Process:
    return psutil.Process(psutil.Process(session.pid).ppid())


def is_prepared(process: psutil.Process) -> bool:
    return "tests.support.fake_preparation" in process.cmdline() and process.ppid() == os.getpid()


def has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


# Forked sessions behave like started ones.


@pytest.mark.parametrize("kind", KINDS)
def test_sessions_of_a_kind_come_from_one_prepared_process(make: Callable[..., Any], kind: Kinds) -> None:
    first, second = make(kind), make(kind)
    assert first.trace("x").meta["pid"] == first.pid != second.trace("x").meta["pid"] == second.pid
    assert parent_of(first) == parent_of(second) and is_prepared(parent_of(first))
    assert os.getpgid(first.pid) == os.getsid(first.pid) == first.pid, "a group of its own"
    pid = first.pid
    first.unload()
    assert gone(pid) and second.trace("x").meta["pid"] == second.pid
    assert first.trace("x").meta["pid"] != pid


def test_forked_session_has_the_environment_and_working_folder_of_its_start(
    make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    earlier = make()
    earlier.start()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("GRADIO_TEMP_DIR")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    session = make()
    session.start()
    assert parent_of(session) == parent_of(earlier), "no value that the imports read has changed"
    meta = session.trace("x", do="environment").meta
    assert meta["cwd"] == str(tmp_path)
    assert meta["environment"]["XDG_CACHE_HOME"] == str(tmp_path / "cache")
    assert "GRADIO_TEMP_DIR" not in meta["environment"]


@pytest.mark.parametrize("change", ["environment", "cores", "files"])
def test_changed_threads_cores_or_file_limits_start_another_prepared_process(
    make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Libraries read such values, for example the number of threads, when they are loaded."""
    import resource

    earlier = make()
    earlier.start()
    if change == "environment":
        monkeypatch.setenv("OMP_NUM_THREADS", "3")
        undo: Callable[[], object] = monkeypatch.undo
    elif change == "cores":
        cores = os.sched_getaffinity(0)
        if len(cores) == 1:
            pytest.skip("a process that may use one core cannot give one up")
        os.sched_setaffinity(0, {min(cores)})
        undo = lambda: os.sched_setaffinity(0, cores)  # noqa: E731
    else:
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limits[0] - 1, limits[1]))
        undo = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limits)  # noqa: E731
    try:
        session = make()
        session.start()
    finally:
        undo()
    assert is_prepared(parent_of(session)) and parent_of(session) != parent_of(earlier)
    old_process = parent_of(earlier)
    assert earlier.trace("x").meta["pid"] == earlier.pid, "sessions of the old process continue"
    if change == "environment":
        assert session.trace("x", do="environment").meta["environment"]["OMP_NUM_THREADS"] == "3"
    earlier.close()
    eventually(lambda: has_ended(old_process.pid))


def test_forked_sessions_draw_different_random_numbers(make: Callable[..., Any]) -> None:
    numbers = [make().trace("x", do="random").meta["drawn"] for _ in range(2)]
    assert numbers[0] != numbers[1]


def test_output_of_a_forked_session_goes_to_stderr_of_this_process(
    make: Callable[..., Any], capfd: pytest.CaptureFixture[str]
) -> None:
    session = make()
    session.trace("x", do="print")
    session.close()
    out, errors = capfd.readouterr()
    assert out == "" and "printed to stdout" in errors and "printed to stderr" in errors


# The end of forked sessions.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_killed_forked_session_reports_the_signal(
    make: Callable[..., Any], kind: Kinds, number: signal.Signals
) -> None:
    session = make(kind)
    session.start()
    pid, source = session.pid, parent_of(session)
    call = Listener(session, "block")
    call.wait()
    os.kill(pid, number)
    error = call.ended()
    assert isinstance(error, SessionDied) and f"was ended by {number.name}" in str(error)
    assert session.trace("x").meta["pid"] != pid and parent_of(session) == source


def test_aborted_load_of_a_forked_session_reports_the_signal(make: Callable[..., Any]) -> None:
    with pytest.raises(SessionDied, match="was ended by SIGABRT while loading"):
        make(name="abort").start()
    with pytest.raises(BadInput, match="the fake does not load"):
        make(name="refuse").start()


@pytest.mark.parametrize("kind", KINDS)
def test_subprocesses_of_a_forked_session_end_with_it(make: Callable[..., Any], kind: Kinds) -> None:
    session = make(kind)
    meta = session.trace("x", do="spawn").meta
    os.kill(meta["pid"], signal.SIGKILL)
    eventually(lambda: session.pid is None)
    assert gone(meta["pid"])
    assert not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in meta["started"])
    assert not Path("/dev/shm", meta["shared"]).exists()


@pytest.mark.parametrize("kind", KINDS)
def test_killing_the_prepared_process_ends_its_sessions(make: Callable[..., Any], kind: Kinds) -> None:
    session = make(kind)
    session.start()
    source = parent_of(session)
    call = Listener(session, "block")
    call.wait()
    source.kill()
    assert isinstance(call.ended(), SessionDied)
    assert has_ended(source.pid) and session.trace("x").meta["pid"] == session.pid
    other_session = make(kind)
    other_session.start()
    assert is_prepared(parent_of(other_session)) and parent_of(other_session) != source


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_prepared_process_and_sessions_end_with_the_program(number: signal.Signals) -> None:
    script = """
        import os, sys
        from pathlib import Path
        import psutil
        from tests.support.processes import forked_fakes
        from workbench.core.settings import SessionSpec
        from workbench.isolation.serial import ProcessSession
        with forked_fakes():
            session = ProcessSession(SessionSpec("fake", "fake", "fake", Path("/")))
            session.start()
            print(session.pid, psutil.Process(session.pid).ppid(), flush=True)
            sys.stdin.read()
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout
        pids = [int(word) for word in program.stdout.readline().split()]
        assert len(pids) == 2 and program.pid not in pids
        program.send_signal(number)
    eventually(lambda: all(map(has_ended, pids)))


# Sessions without a prepared process.


@pytest.mark.parametrize("fault", ["threaded", "dying"])
def test_session_starts_directly_when_the_prepared_process_cannot_fork(fault: str) -> None:
    with forked_fakes(fault) as pool, ProcessSession(SessionSpec("fake", "fake", "fake", Path("/"))) as session:
        session.start()
        assert psutil.Process(session.pid).ppid() == os.getpid()
        assert pool.memory_bytes == 0
        session.unload()
        session.start()
        assert psutil.Process(session.pid).ppid() == os.getpid()


def test_waiting_for_the_imports_can_be_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    with forked_fakes("slow"), ProcessSession(SessionSpec("fake", "fake", "fake", Path("/"))) as session:
        activities: list[str] = []

        def stop(fraction: float, activity: str) -> None:
            activities.append(activity)
            assert session.loading and session.state == "loading"
            if len(activities) == 2:
                session.cancel()

        with listening(stop), pytest.raises(Cancelled):
            session.start()
        assert set(activities) == {"loading fake"} and session.pid is None and not session.loading


def test_prepared_process_is_released_when_memory_is_short(make: Callable[..., Any], pool: PreparedProcesses) -> None:
    session = make()
    session.start()
    source = parent_of(session)
    assert 0 < pool.memory_bytes < source.memory_info().rss
    pool.give_up()
    assert session.trace("x").meta["pid"] == session.pid and source.is_running(), "its session continues"
    other_session = make()
    other_session.start()
    assert psutil.Process(other_session.pid).ppid() == os.getpid()
    session.close()
    eventually(lambda: has_ended(source.pid))
    assert pool.memory_bytes == 0
    pool.use()
    third_session = make()
    third_session.start()
    assert is_prepared(parent_of(third_session))


def test_environment_variable_turns_prepared_processes_on_and_off(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = PreparedProcesses()
    monkeypatch.setattr(prepared, "PREPARED", pool)
    monkeypatch.setattr(PreparedProcesses, "start", lambda self, kinds: started.extend(kinds))
    started: list[Kind] = []
    for value, alone, on_the_page in ((None, False, True), ("0", False, False), ("1", True, True)):
        started.clear()
        if value is None:
            monkeypatch.delenv("WORKBENCH_PREPARED")
        else:
            monkeypatch.setenv("WORKBENCH_PREPARED", value)
        assert PreparedProcesses().on is alone
        pool.__init__()  # type: ignore[misc]
        with prepared_processes():
            assert pool.on is on_the_page and started == [*STARTED_EARLY] * on_the_page
            with prepared_processes(early=False):
                assert pool.on is on_the_page and started == [*STARTED_EARLY] * on_the_page
            assert pool.on is on_the_page, "the inner block leaves the processes of the outer one"
        assert pool.on is alone
        pool.close()


def test_session_specs_map_to_kinds_of_prepared_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def kind(family: str, runtime: str, **fields: Any) -> Kind | None:
        return kind_of(SessionSpec("x", family, runtime, tmp_path, **fields))

    assert kind("sensevoice", "pytorch") == kind("paraformer", "pytorch") == Kind("pytorch", language=False)
    assert kind("funasr_nano", "pytorch") == kind("causal_lm", "pytorch") == Kind("pytorch", language=True)
    assert kind("sensevoice", "gguf") == Kind("gguf", language=False)
    assert kind("sensevoice", "vllm") is None and kind("unknown", "pytorch") is None
    assert kind("causal_lm", "vllm", server=Server("http://127.0.0.1:1", "x")) is None
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    two, three, default = (kind("causal_lm", "vllm", settings=Settings(threads=n)) for n in (2, 3, None))
    assert default == two != three and two is not None and two.parallel


def test_only_sessions_that_may_need_a_package_find_it() -> None:
    hidden = {runtime: unused_packages(runtime) for runtime in ("pytorch", "gguf", "vllm")}
    assert hidden == {
        "pytorch": ["sklearn", "mistral_common"],
        "gguf": ["sklearn", "mistral_common", "torch"],
        "vllm": ["sklearn"],
    }
    assert unused_packages("pytorch", outside=True) == [], "what a family of another package needs is not known"


def test_gguf_files_are_read_without_tokenizers_of_mistral() -> None:
    program = """
import sys
from workbench.prepared.kinds import unused_packages
from workbench.system.imports import hidden_packages
with hidden_packages(*unused_packages("pytorch")):
    from gguf import quants
print(any(name.startswith("mistral_common") for name in sys.modules), callable(quants.dequantize))
"""
    process = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert process.stdout.split() == ["False", "True"]


def test_language_model_imports_leave_no_files_in_the_temporary_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """torch's compiler, which transformers imports, creates a folder there and never removes it."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.delenv(COMPILED, raising=False)
    pool, kind = PreparedProcesses(), Kind("pytorch", language=True)
    pool.use()
    try:
        pool.wait_for(kind, "a language model")
        assert pool.is_ready(kind)
    finally:
        pool.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"])
def test_sessions_keep_little_code_of_products_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.delenv(name, raising=False)
    assert session_environment(parallel=False)[name] == "64"
    assert name not in session_environment(parallel=True), "an engine multiplies in few shapes, again and again"
    monkeypatch.setenv(name, "512")
    assert session_environment(parallel=False)[name] == "512"
