"""What an engine's processes print: kept in a file, read for how far a start is and why one failed."""

from __future__ import annotations

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

KEPT = 20  # logs of earlier engines
LONGEST_REASON = 400  # characters

# What vLLM prints when it gets to a step, and how that is told.
STEPS = (
    ("Initializing a V1 LLM engine", "vLLM is starting its engine process"),
    ("Starting to load model", "vLLM is loading the weights"),
    ("Loading weights took", "vLLM has loaded the weights"),
    ("KV cache size", "vLLM has made room for keys and values"),
    ("init engine", "the engine is ready"),
)
# The last line of a traceback: a class, and what it says.
_RAISED = re.compile(r"(?:^|\s|\])((?:\w+\.)*\w*(?:Error|Exception|Exit)): (.+)$")
_SAYS_NOTHING = ("Engine core initialization failed", "WorkerProc initialization failed", "Failed core proc")


@dataclass
class EngineLog:
    """The file of an engine; each of its lives is written behind the one before."""

    path: Path
    start: int = 0  # bytes of earlier lives

    @classmethod
    def open(cls, name: str) -> EngineLog:
        """An empty file for a new engine; the oldest ones are removed. Raises `Unavailable` where there is no room."""
        folder = user_cache() / "logs"
        stem = file_name(name)[-80:]
        path = folder / f"vllm-{stem}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for old in sorted(folder.glob("vllm-*.log"), key=lambda each: each.stat().st_mtime)[:-KEPT]:
                old.unlink(missing_ok=True)
            path.touch()
        except OSError as error:
            raise Unavailable(f"the log of the engine cannot be written to {path}: {error.strerror}") from error
        return cls(path)

    def begin(self) -> None:
        """What is printed from now on is of a new life."""
        self.start = self.path.stat().st_size if self.path.is_file() else 0

    @contextmanager
    def captured(self) -> Iterator[None]:
        """Within the block, what this process prints goes to the file; and for good, what those begun within it do."""
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        kept = {number: os.dup(number) for number in (1, 2)}
        try:
            for number in kept:
                os.dup2(file, number)
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, before in kept.items():
                os.dup2(before, number)
                os.close(before)
            os.close(file)
            self._take_messages()

    def _take_messages(self) -> None:
        """Has vLLM's messages in this process written to the file too."""
        logger = logging.getLogger("vllm")
        for handler in list(logger.handlers):
            logger.removeHandler(handler)
            handler.close()
        handler = logging.FileHandler(self.path, delay=True)
        handler.setFormatter(logging.Formatter("(front end) %(levelname)s %(asctime)s [%(filename)s] %(message)s"))
        logger.addHandler(handler)

    def text(self) -> str:
        """All that has been printed in this life."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.start)
                return file.read().decode("utf-8", "replace")
        except OSError:
            return ""

    def activity(self) -> str:
        """What the engine is doing while it starts."""
        printed = self.text()
        found = [told for mark, told in STEPS if mark in printed]
        return found[-1] if found else "vLLM is being loaded"


def reason_of(error: BaseException, log: EngineLog) -> str:
    """Why an engine could not start, in vLLM's own words.

    vLLM's error in this process often says only that another one failed; the log then has the cause.
    """
    said = _plain(str(error))
    if said and not any(mark in said for mark in _SAYS_NOTHING):
        return said
    return raised_in(log.text()) or said or type(error).__name__


def raised_in(printed: str) -> str:
    """The first error of a log that says what was wrong; empty where there is none."""
    for line in printed.splitlines():
        match = _RAISED.search(line)
        if match and not any(mark in line for mark in _SAYS_NOTHING):
            return _plain(match[2])
    return ""


def _plain(said: str) -> str:
    """An error's words in one line, without what pydantic adds to them."""
    lines = [line.strip() for line in said.splitlines()]
    lines = [
        line for line in lines if line and not re.match(r"\d+ validation errors? for |For further information", line)
    ]
    text = re.sub(r"\s*\[type=.*", "", " ".join(lines)).removeprefix("Value error, ")
    return text if len(text) <= LONGEST_REASON else text[:LONGEST_REASON].rstrip() + " ..."
