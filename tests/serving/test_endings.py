"""SIGTERM ends a program with cleanup; folders left by a killed program are removed by the next program."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from workbench.system.endings import remove_leftovers
from workbench.system.tempdirs import OWNER, make_tempdir, remove_tempdir

PROGRAM = """
import sys, time
from workbench.system.endings import Ended, end_in_order
from workbench.system.tempdirs import make_tempdir, remove_tempdir
end_in_order()
folder = make_tempdir()
try:
    print(folder, flush=True)
    time.sleep(60)
except Ended:
    remove_tempdir(folder)
"""


def start(folder: Path) -> tuple[subprocess.Popen[str], Path]:
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(folder)}
    )
    assert program.stdout is not None
    return program, Path(program.stdout.readline().strip())


def test_programs_remove_their_folders_on_sigterm_and_leftovers_of_killed_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Path("/tmp") if len(str(tmp_path)) > 40 else tmp_path
    monkeypatch.setattr("tempfile.tempdir", str(place))
    terminated, terminated_folder = start(place)
    killed, killed_folder = start(place)
    own_folder, other_folder = make_tempdir(), place / f"workbench-other{os.getpid()}"
    other_folder.mkdir()
    try:
        terminated.send_signal(signal.SIGTERM)
        assert terminated.wait(30) == 0 and not terminated_folder.exists()
        killed.kill()
        killed.wait(30)
        assert killed_folder.exists()
        removed = remove_leftovers()
        assert killed_folder in removed and not killed_folder.exists()
        # One folder belongs to a running process, the other has no known owner.
        assert own_folder.exists() and other_folder.exists()
        (other_folder / OWNER).write_text("1 0.0")  # another process has this number now
        assert other_folder in remove_leftovers()
    finally:
        for program in (terminated, killed):
            program.kill()
            program.wait()
            assert program.stdout is not None
            program.stdout.close()
        own_folder.joinpath(OWNER).unlink()
        own_folder.rmdir()


def test_folder_of_a_running_program_stays_after_a_change_of_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = make_tempdir()
    try:
        monkeypatch.setattr(psutil._psplatform, "boot_time", lambda: 0.0)  # Linux computes it from the clock
        assert folder not in remove_leftovers() and folder.exists()
    finally:
        remove_tempdir(folder)
