"""The interface between the driver of an evaluation and its workers, wherever they run.

`workbench.evaluation.local` has processes of this machine, `workbench.evaluation.on_ray` actors on a Ray cluster.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from workbench.core.errors import WorkbenchError
from workbench.evaluation.rows import Result, Utterance
from workbench.evaluation.worker import Job


@dataclass(frozen=True)
class Opened:
    """A worker has loaded its model."""

    worker: int
    seconds: float


@dataclass(frozen=True)
class Finished:
    """A worker has computed some results of a batch."""

    worker: int
    batch: int
    results: Sequence[Result]
    is_last: bool  # whether these are the last ones of the batch


@dataclass(frozen=True)
class Failed:
    """A worker has ended because it could not go on; it names the reason."""

    worker: int
    error: WorkbenchError


@dataclass(frozen=True)
class Died:
    """A worker has ended without a message: it crashed, was killed, or its machine is gone."""

    worker: int
    ending: str  # as the middle of a sentence


Reply = Opened | Finished | Failed | Died


class Workers(Protocol):
    """Starts workers, gives them batches and collects their replies. Its calls come from one thread."""

    @property
    @abstractmethod
    def place(self) -> str:
        """Where they run, for people."""

    @abstractmethod
    def start(self, number: int, job: Job) -> None:
        """Starts a worker under a number that no other has had."""

    @abstractmethod
    def submit(self, number: int, batch: int, utterances: Sequence[Utterance]) -> None:
        """Gives a batch to a worker, which computes its batches one after the other."""

    @abstractmethod
    def replies(self, seconds: float) -> list[Reply]:
        """Waits up to `seconds` for replies of workers, and returns them."""

    @abstractmethod
    def end(self, number: int) -> None:
        """Ends a worker at once. May be called again."""

    @abstractmethod
    def close(self) -> None:
        """Ends all workers."""
