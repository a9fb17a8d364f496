"""Drives the schedule of an evaluation over made-up results: no model runs, and what must come out is known."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from tests.support.evaluations import make_evaluation, model, result
from workbench.core.errors import Unavailable
from workbench.core.settings import Server, SessionSpec
from workbench.evaluation.models import Chosen
from workbench.evaluation.rows import Utterance
from workbench.evaluation.schedule import Schedule
from workbench.evaluation.store import RESULTS, Evaluation, shards
from workbench.evaluation.worker import Job
from workbench.evaluation.workers import Died, Failed, Finished, Opened, Reply, Workers
from workbench.evaluation.writer import Writer, claimed

KNOWN: dict[tuple[str, str], Any] = {}
KEYS = ("demo/a|pytorch", "demo/b|gguf|q8_0")


def computed(key: str, utterance: Utterance) -> Any:
    """What a model makes of an utterance, wherever and whenever it does."""
    if (key, utterance.id) not in KNOWN:
        KNOWN[key, utterance.id] = result(key, utterance, random.Random(f"{key} {utterance.id}"), 0.1)
    return KNOWN[key, utterance.id]


def never(worker: int, utterances: Sequence[Utterance]) -> str | None:
    return None


class FakeWorkers:
    """Workers that compute at once; `fate` says what becomes of one at a batch."""

    place = "nowhere"

    def __init__(
        self, fate: Callable[[int, Sequence[Utterance]], str | None] = never, born: Callable[[int], Any] = bool
    ):
        self.fate, self.born = fate, born
        self.jobs: dict[int, Job] = {}
        self.said: deque[Reply] = deque()
        self.most = 0
        self.addresses: list[str] = []
        self.seen: list[str] = []

    def start(self, number: int, job: Job) -> None:
        self.jobs[number] = job
        self.most = max(self.most, len(self.jobs))
        if job.spec.server:
            self.addresses.append(job.spec.server.url)
        error = self.born(number)
        self.said.append(
            error(number) if callable(error) else Opened(number, 0.0) if error else Died(number, "was ended by SIGKILL")
        )

    def submit(self, number: int, batch: int, utterances: Sequence[Utterance]) -> None:
        if number not in self.jobs:
            return
        key = self.jobs[number].key
        fate = self.fate(number, utterances)
        whole = [computed(key, each) for each in utterances]
        self.seen += [each.id for each in utterances]
        if fate is None:
            self.said.append(Finished(number, batch, whole, True))
            return
        self.said.append(Finished(number, batch, whole[: len(whole) // 2], False))
        if fate == "outage":
            self.said.append(Failed(number, Unavailable("the server is away")))
        else:
            self.said.append(Died(number, "was ended by SIGKILL"))

    def replies(self, seconds: float) -> list[Reply]:
        found = [self.said.popleft() for _ in range(min(len(self.said), 3))]
        return [each for each in found if each.worker in self.jobs]

    def end(self, number: int) -> None:
        self.jobs.pop(number, None)

    def close(self) -> None:
        self.jobs.clear()


def chosen(key: str, servers: Sequence[str] = ()) -> Chosen:
    name, runtime, *_ = key.split("|")
    spec = SessionSpec(name, "sensevoice", runtime, Path(name))
    card = cast(Any, SimpleNamespace(id=name, family="sensevoice"))
    return Chosen(model(key), card, spec, {}, tuple(Server(url, "m") for url in servers))


def job(each: Chosen, sample: str) -> Job:
    return Job(each.key, each.card, each.spec, {}, {}, "basic", "", None, sample)


def emptied(directory: Path, count: int = 30, rows: int = 8) -> tuple[Evaluation, dict[str, bytes]]:
    """A directory without results, and the results that it is to have."""
    found = make_evaluation(directory, count, KEYS, shard_rows=rows, empty=True)
    with claimed(found.path):
        writer = Writer(found.path, found.run, KEYS)
        for key in KEYS:
            for each in found.utterances():
                writer.add(computed(key, each))
        writer.close()
    wanted = all_rows(found)
    for path in found.path.glob(f"{RESULTS}/*/*"):
        path.unlink()
    return found, wanted


def all_rows(found: Evaluation) -> dict[str, bytes]:
    return {str(path.relative_to(found.path)): path.read_bytes() for key in KEYS for path in shards(found.path, key)}


def drive(found: Evaluation, workers: Workers, count: int = 2, batch: int | None = 4, **more: Any) -> Schedule:
    with claimed(found.path):
        writer = Writer(found.path, found.run, KEYS)
        models = more.pop("models", [chosen(key) for key in KEYS])
        schedule = Schedule(writer, models, workers, count, batch, more.pop("limit", None), job, **more)
        try:
            schedule.run()
        finally:
            writer.close()
    return schedule
