"""The log of an engine's processes: a file that also shows how far a start is, and why one failed."""

from __future__ import annotations

import ctypes
import logging
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from workbench.core.errors import Unavailable
from workbench.system.user_cache import file_name, user_cache

MAX_LOGS = 20  # number of logs of earlier engines that stay
MAX_REASON_CHARACTERS = 400

# What vLLM prints when it reaches a step, and the sentence to show for it.
STEPS = (
    ("Initializing a V1 LLM engine", "vLLM is starting its engine process"),
    ("Starting to load model", "vLLM is loading the weights"),
    ("Loading weights took", "vLLM has loaded the weights"),
    ("KV cache size", "vLLM has allocated the KV cache"),
    ("init engine", "the engine is ready"),
)
# The last line of a traceback: a class and its message.
_RAISED = re.compile(r"(?:^|\s|\])((?:\w+\.)*\w*(?:Error|Exception|Exit)): (.+)$")
# Reasons of vLLM that name its own arguments, and their sentences with this project's settings.
_OWN_TERMS = (
    (
        re.compile(r"User-specified max_model_len \((\d+)\) is greater than the derived max_model_len \(\w+=(\d+)"),
        r"max_length is \1; expected at most \2, the positions that the model takes",
    ),
    (
        re.compile(r"max seq len \((\d+)\).* KV cache is needed.*the estimated maximum model length is (\d+)"),
        r"max_length is \1, and the memory for keys and values has room for \2; set max_length to at most \2, or "
        "kv_gigabytes to more",
    ),
)
NUMA = "libnuma.so.1"  # vLLM goes on without its kernels for processors if they do not load, and fails later
_WITHOUT_HEADER = re.compile(r"fatal error: '?Python\.h'?")
_WITHOUT_KERNELS = "'_C' object has no attribute"
_WITHOUT_CAUSE = ("Engine core initialization failed", "WorkerProc initialization failed", "Failed core proc")


@dataclass
class EngineLog:
    """The log file of an engine; each run of the engine is appended."""

    path: Path
    start: int = 0  # bytes of earlier runs

    @classmethod
    def open(cls, name: str) -> EngineLog:
        """Creates an empty file for a new engine and removes the oldest logs. Raises `Unavailable` if there is no
        room.
        """
        folder = user_cache() / "logs"
        stem = file_name(name)[-80:]
        path = folder / f"vllm-{stem}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for old in sorted(folder.glob("vllm-*.log"), key=lambda each: each.stat().st_mtime)[:-MAX_LOGS]:
                old.unlink(missing_ok=True)
            path.touch()
        except OSError as error:
            raise Unavailable(f"the log of the engine cannot be written to {path}: {error.strerror}") from error
        return cls(path)

    def begin(self) -> None:
        """Marks the beginning of a new run."""
        self.start = self.path.stat().st_size if self.path.is_file() else 0

    @contextmanager
    def captured(self) -> Iterator[None]:
        """Writes the output of this process to the file within the block, and all output of processes that start within
        it.
        """
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        saved = {number: os.dup(number) for number in (1, 2)}
        try:
            for number in saved:
                os.dup2(file, number)
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, before in saved.items():
                os.dup2(before, number)
                os.close(before)
            os.close(file)
            self._take_messages()

    def _take_messages(self) -> None:
        """Copies vLLM's log messages in this process to the file."""
        logger = logging.getLogger("vllm")
        for handler in list(logger.handlers):
            logger.removeHandler(handler)
            handler.close()
        handler = logging.FileHandler(self.path, delay=True)
        handler.setFormatter(logging.Formatter("(front end) %(levelname)s %(asctime)s [%(filename)s] %(message)s"))
        logger.addHandler(handler)

    def text(self) -> str:
        """Returns all output of this run."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.start)
                return file.read().decode("utf-8", "replace")
        except OSError:
            return ""

    def activity(self) -> str:
        """Returns what the engine is doing while it starts."""
        output = self.text()
        labels = [label for mark, label in STEPS if mark in output]
        return labels[-1] if labels else "vLLM is being loaded"


def reason_of(error: BaseException, log: EngineLog) -> str:
    """Returns why an engine could not start, in vLLM's own words unless they are about this project's settings.

    vLLM's error in this process often says only that another one failed; the log then has the cause.
    """
    message = _one_line(str(error))
    if not message or any(mark in message for mark in _WITHOUT_CAUSE):
        message = raised_in(log.text()) or message or type(error).__name__
    if _WITHOUT_KERNELS in message and not _loads(NUMA):
        return f"its library needs {NUMA}, which this system does not have; on Debian: apt-get install libnuma1"
    if _WITHOUT_HEADER.search(log.text()):
        return (
            "its compiled graphs need Python's header files, which this system does not have; on Debian: "
            "apt-get install python3-dev; or leave out --no-eager"
        )
    return message


def _loads(library: str) -> bool:
    """Returns whether the system has a library."""
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def raised_in(output: str) -> str:
    """Returns the first error in a log that says what was wrong; empty if there is none."""
    for line in output.splitlines():
        match = _RAISED.search(line)
        if match and not any(mark in line for mark in _WITHOUT_CAUSE):
            return _one_line(match[2])
    return ""


def _one_line(message: str) -> str:
    """Returns an error's message in one line, without pydantic's additions, and with the settings of this project."""
    lines = [line.strip() for line in message.splitlines()]
    lines = [
        line for line in lines if line and not re.match(r"\d+ validation errors? for |For further information", line)
    ]
    text = re.sub(r"\s*\[type=.*", "", " ".join(lines)).removeprefix("Value error, ")
    for pattern, sentence in _OWN_TERMS:
        if match := pattern.search(text):
            return match.expand(sentence)
    return text if len(text) <= MAX_REASON_CHARACTERS else text[:MAX_REASON_CHARACTERS].rstrip() + " ..."
