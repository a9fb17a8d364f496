"""Cancelled or killed engine starts leave no process and no file behind."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.processes import eventually
from workbench.core.errors import Cancelled, SessionDied, Unavailable, WorkbenchError
from workbench.registry.registry import Registry
from workbench.runtimes.vllm.engine.log import STEPS
from workbench.system.memory import descendants
from workbench.system.process_groups import is_tracker

pytest.importorskip("vllm")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.usefixtures("shared_cache")]

MODEL, SMALL = "demo/qwen3", {"threads": 1, "kv_gigabytes": 0.1}
# The activities between the first output of the engine process and its readiness; each may be short.
MIDDLE = tuple(text for _, text in STEPS[:-1])


@pytest.fixture
def temporary_folder() -> Iterator[Path]:
    """The temporary folder; its name is short, as paths of sockets must be short."""
    folder = Path(tempfile.mkdtemp(prefix="up-", dir="/tmp"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(folder))
        yield folder
    shutil.rmtree(folder)


def give_up(session: int) -> None:
    raise Cancelled("nobody waits any more")


def ask_the_session_to_end(session: int) -> None:
    os.kill(session, signal.SIGTERM)


def kill_the_session(session: int) -> None:
    os.kill(session, signal.SIGKILL)


def kill_the_engine(session: int) -> None:
    [engine] = [pid for pid in descendants(session) if not is_tracker(pid)]
    os.kill(engine, signal.SIGKILL)


ENDS: dict[Callable[[int], None], type[WorkbenchError]] = {
    give_up: Cancelled,
    ask_the_session_to_end: SessionDied,
    kill_the_session: SessionDied,
    kill_the_engine: Unavailable,
}


def test_interrupted_engine_start_leaves_no_process_or_file_and_the_next_succeeds(
    temporary_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with Registry() as registry:
        for end, error in ENDS.items():
            pids: list[int] = []

            def end_in_the_middle(
                fraction: float, activity: str, end: Callable[[int], None] = end, pids: list[int] = pids
            ) -> None:
                session_pids = [session.pid for session in registry._sessions()]  # none while the model is converted
                if activity in MIDDLE and not pids and session_pids and session_pids[0]:
                    pids += [session_pids[0], *descendants(session_pids[0])]
                    end(session_pids[0])

            with pytest.raises(error):
                registry.open(MODEL, "vllm", on_progress=end_in_the_middle, **SMALL)
            assert len(pids) > 1, end.__name__
            eventually(lambda pids=pids: not any(map(psutil.pid_exists, pids)))  # type: ignore[misc]
            assert not list(temporary_folder.iterdir()), end.__name__
        assert "Traceback" not in capfd.readouterr().err
        with registry.open(MODEL, "vllm", **SMALL) as session:
            assert session.generate("seven", max_new_tokens=2).tokens
    assert not list(temporary_folder.iterdir())
