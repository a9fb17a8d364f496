"""Keeps the speech of answers for a while, so that later requests can refer to it by its id.

OpenAI's clients send an answer back as `{"role": "assistant", "audio": {"id": ...}}`, also one in which the model said
nothing. What is kept are the text and the codec ids that the model generated, a few kilobytes for each second of
speech. Every answer stays until its time is over. If there is no room, a new answer is not kept, and its time is over
at once.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

KEPT_SECONDS = 3600  # as long as OpenAI keeps them
KEPT_BYTES = 256 << 20  # many hours of speech
NARROW = np.int32  # holds the ids of every vocabulary
OVERHEAD = 1 << 10  # bytes of an answer beside its text and ids, rounded up


@dataclass(frozen=True, eq=False)
class KeptAnswer:
    """The answer of one request."""

    text: str
    streams: np.ndarray | None  # global ids [rows, streams]; None without rows
    expires_at: int  # seconds since 1970
    speaks_first: bool = False  # whether the speech came before the text

    @property
    def size(self) -> int:
        """The bytes that it takes."""
        return OVERHEAD + 4 * len(self.text) + (0 if self.streams is None else self.streams.nbytes)


class KeptAnswers:
    """Stores the answers of a server by id. Several threads may use it.

    Args:
        seconds: how long an answer is kept.
        max_bytes: of all answers together.
        clock: returns the seconds since 1970.
    """

    def __init__(
        self, seconds: int = KEPT_SECONDS, max_bytes: int = KEPT_BYTES, clock: Callable[[], float] = time.time
    ):
        self._seconds, self._most, self._clock = seconds, max_bytes, clock
        self._lock = threading.Lock()
        self._answers: dict[str, KeptAnswer] = {}  # the oldest first
        self._bytes = 0

    def __len__(self) -> int:
        with self._lock:
            self._drop_expired()
            return len(self._answers)

    def keep(self, name: str, text: str, streams: np.ndarray | None, speaks_first: bool = False) -> int:
        """Stores an answer, and returns when it expires, in seconds since 1970.

        An answer that does not fit into `max_bytes` is not stored; it expires at once.
        """
        now = int(self._clock())
        rows = None if streams is None or not len(streams) else np.asarray(streams, NARROW)
        answer = KeptAnswer(text, rows, now + self._seconds, speaks_first)
        with self._lock:
            self._drop_expired()
            if self._bytes + answer.size > self._most:
                return now
            self._answers[name] = answer
            self._bytes += answer.size
        return answer.expires_at

    def get(self, name: str) -> KeptAnswer | None:
        """Returns an answer; None if it is unknown or has expired."""
        with self._lock:
            self._drop_expired()
            return self._answers.get(name)

    def _drop_expired(self) -> None:
        now = self._clock()
        while self._answers:
            name, oldest = next(iter(self._answers.items()))
            if oldest.expires_at > now:
                return
            del self._answers[name]
            self._bytes -= oldest.size


def new_audio_id() -> str:
    """Returns an id for an answer's speech that cannot be guessed."""
    return f"audio_{secrets.token_hex(16)}"
