"""The `workbench` command as a program of its own: its pipes, a full disk, Ctrl-C, SIGTERM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import psutil
import pytest

from tests.support.processes import FAKE_CHILD, PATIENCE, ROOT, eventually, gone
from tests.support.tiny_checkpoints import tiny_sensevoice
from workbench.cli import program

pytestmark = pytest.mark.usefixtures("in_folder")


def workbench(*words: str, fake: bool = False, **options: object) -> subprocess.Popen[str]:
    """Starts the command as a separate program."""
    code = "import sys; from workbench.cli import program; from workbench.isolation import serial"
    if fake:
        code += f"; serial.CHILD = {FAKE_CHILD}; from workbench.cli import transcribe"
        code += "; transcribe.check_sound = lambda path: None"  # the recordings are only names
    command = [sys.executable, "-c", f"{code}; sys.exit(program.main())", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment}
    return subprocess.Popen(command, **{**pipes, **options})  # type: ignore[call-overload,no-any-return]


def test_command_runs_as_a_separate_process(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "workbench", "transcribe", "short.wav", "-m", "paraformer"]
    process = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert (process.returncode, process.stderr) == (0, "") and len(process.stdout.splitlines()) == 1
    failed = subprocess.run(
        [*command[:-1], "no-such"], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert failed.returncode == 2 and len(failed.stderr.splitlines()) == 1


def test_letters_that_a_pipe_cannot_take_are_escaped() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"}
    with workbench("transcribe", "一.wav", "二.wav", "-m", "sensevoice", fake=True, env=environment) as program:
        output, errors = program.communicate(timeout=PATIENCE)
    assert program.returncode == 0 and "UnicodeEncodeError" not in errors
    assert [line.rpartition("/")[2] for line in output.splitlines()] == ["\\u4e00.wav", "\\u4e8c.wav"]


def test_closed_stdout_pipe_ends_the_program_without_an_error_message() -> None:
    recordings = [f"{n}.wav" for n in range(2000)]
    with workbench("transcribe", *recordings, "-m", "sensevoice", fake=True) as program:
        assert program.stdout and program.stderr
        assert program.stdout.readline().endswith("/0.wav\n")
        [child] = psutil.Process(program.pid).children()
        program.stdout.close()
        assert program.stderr.read() == ""
        assert program.wait() == 1
    psutil.wait_procs([child], 10)
    eventually(lambda: gone(child.pid))  # its new parent may take a moment to note its end


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [["models"], ["--help"], ["--version"], ["chat", "--help"]])
def test_full_disk_raises_one_line_error(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], unbuffered: str
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    with open("/dev/full", "w") as full, workbench(*arguments, stdout=full) as program:  # noqa: PTH123
        assert program.stderr
        assert program.stderr.read() == (
            "workbench: standard output could not be written: the disk is full (No space left on device); make room\n"
        )
        assert program.wait() == 3


def test_help_into_a_closed_pipe_says_nothing() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe, workbench("--help", stdout=pipe) as program:
        assert program.stderr and program.stderr.read() == ""
        assert program.wait() == 0


def test_ctrl_c_during_import_prints_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted(ModuleType):
        def __getattr__(self, name: str) -> object:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "workbench.cli.commands", Interrupted("workbench.cli.commands"))
    assert program.main(["models"]) == 130
    assert capsys.readouterr().err == "workbench: stopped\n"


def interrupt(program: subprocess.Popen[str], number: signal.Signals = signal.SIGINT) -> list[str]:
    """Returns the program's lines on stderr after Ctrl-C or another signal."""
    program.send_signal(number)
    _, err = program.communicate(timeout=PATIENCE)
    return err.splitlines()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_during_a_call_stops_the_child_too(number: signal.Signals, status: int) -> None:
    with workbench("transcribe", "one.wav", "block.wav", "-m", "sensevoice", fake=True) as program:
        assert program.stdout and program.stdout.readline()
        [child] = psutil.Process(program.pid).children()
        assert interrupt(program, number) == ["workbench: stopped"] and program.returncode == status
    eventually(lambda: gone(child.pid))  # its new parent may take a moment to note its end


def test_ctrl_c_during_model_loading_stops_the_worker(tmp_path: Path) -> None:
    tiny_sensevoice(tmp_path / "never")
    with workbench("transcribe", "one.wav", "-m", "never", fake=True, cwd=tmp_path) as program:
        parent = psutil.Process(program.pid)
        eventually(lambda: bool(parent.children()) and "tests.support.fake_worker" in parent.children()[0].cmdline())
        [child] = parent.children()
        assert interrupt(program) == ["workbench: stopped"] and program.returncode == 130
    eventually(lambda: gone(child.pid))  # its new parent may take a moment to note its end
