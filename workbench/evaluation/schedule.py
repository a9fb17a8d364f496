"""The driver of an evaluation: gives utterances to workers, takes back those of a dead worker, and writes the results.

It knows neither processes nor clusters (`workbench.evaluation.workers` is its interface to them), and no file format.
Models are computed one after the other, but a free worker may begin with the next model.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from workbench.core.errors import BadInput, Unavailable, WorkbenchError
from workbench.core.runtimes import RUNTIMES
from workbench.core.settings import Server
from workbench.evaluation.models import Chosen
from workbench.evaluation.rows import Result
from workbench.evaluation.worker import Job
from workbench.evaluation.workers import Died, Failed, Finished, Opened, Reply, Workers
from workbench.evaluation.writer import Position, Writer

BEAT_SECONDS = 0.2  # how often `on_beat` is called, which can stop the run
BATCHES_AHEAD = 2  # batches that a worker holds, so that it never waits for the next
BATCH_SECONDS = 120.0  # seconds of sound in a batch, if the manifest says them; then a dead worker loses little
LIVES = 3  # workers that may end at one recording before it counts as failed
STARTS = 5  # starts of a model that may fail in a row
OUTAGES = 6  # the same for each server that cannot be reached
PLACE_OUTAGES = 4  # the same for the places of recordings; a worker goes on if single recordings cannot be reached
MAX_PAUSE_SECONDS = 30.0  # seconds before a server that failed is asked again

OnBeat = Callable[["EvaluationState"], None]


@dataclass(frozen=True)
class EvaluationState:
    """How far an evaluation is."""

    model: str  # the model that is computed now
    done: int  # of all models and recordings that were asked for
    total: int
    model_done: int
    model_total: int
    computed: int  # results of this run; the others were there already
    seconds: float  # seconds of sound that this run computed
    workers: int  # workers that have loaded their model
    failed: int  # recordings with an error, of those computed now
    left_models: int  # models that no worker has begun


@dataclass
class _Work:
    """What is left of one model."""

    chosen: Chosen
    waiting: deque[list[Position]]
    remaining: set[Position]
    total: int
    started: bool = False
    bad_starts: int = 0
    outages: int = 0
    deaths: Counter[Position] = field(default_factory=Counter)

    @property
    def key(self) -> str:
        return self.chosen.key


@dataclass
class _WorkerState:
    """What the schedule knows of one worker."""

    work: _Work
    server: Server | None
    ready: bool = False
    batches: dict[int, list[Position]] = field(default_factory=dict)  # in the order in which it computes them


class Schedule:
    """Computes the missing results of some models.

    Args:
        count: workers at a time.
        batch: utterances that a worker gets at a time; None for a usual number.
        job: what every worker needs beside its model: `normaliser` and `root`.
        on_beat: receives the state, and may raise to stop the run.
    """

    def __init__(
        self,
        writer: Writer,
        models: Sequence[Chosen],
        workers: Workers,
        count: int,
        batch: int | None,
        limit: int | None,
        job: Callable[[Chosen, str], Job],
        on_beat: OnBeat | None = None,
    ):
        self.writer = writer
        self.workers = workers
        self.count = count
        self.batch = batch
        self.job = job
        self.on_beat = on_beat
        self.total = min(len(writer.corpus), limit if limit is not None else len(writer.corpus))
        self.works = [self._work(each, limit) for each in models]
        self.worker_states: dict[int, _WorkerState] = {}
        self.computed = self.failed = 0
        self.seconds = 0.0
        self._numbers = 0
        self._batches = 0
        self._pause: dict[Server | None, tuple[float, float]] = {}  # its end and its seconds

    def _work(self, model: Chosen, limit: int | None) -> _Work:
        todo = self.writer.todo(model.key, limit)
        size = self.batch or usual_batch(model)
        batches = deque(todo[first : first + size] for first in range(0, len(todo), size))
        return _Work(model, batches, set(todo), self.total)

    def run(self) -> None:
        """Computes everything. Raises the error of a model that cannot be loaded or reached; finished results stay."""
        try:
            self._beat()
            while any(work.remaining for work in self.works):
                self._employ()
                for reply in self.workers.replies(BEAT_SECONDS):
                    self._take_reply(reply)
                self._beat()
        finally:
            self.workers.close()

    # Who does what.

    def _employ(self) -> None:
        """Ends idle workers, starts workers for waiting batches, and gives batches to workers that are ready."""
        for number, worker in list(self.worker_states.items()):
            if not worker.work.waiting and not worker.batches:  # also one that still loads: others were quicker
                self._dismiss(number)
        for work in self.works:
            # No more workers than batches that wait beside those of workers that are still loading.
            loading = sum(1 for worker in self.worker_states.values() if worker.work is work and not worker.ready)
            while len(self.worker_states) < self.count and len(work.waiting) > loading:
                if not self._start(work):
                    break
                loading += 1
        for number, worker in self.worker_states.items():
            while worker.ready and len(worker.batches) < BATCHES_AHEAD and worker.work.waiting:
                self._hand_over(number, worker)

    def _start(self, work: _Work) -> bool:
        """Starts a worker; returns False while its servers or the recordings' places are not asked after a failure."""
        now, servers = time.monotonic(), work.chosen.servers or (None,)
        rested = [each for each in servers if self._pause.get(each, (0.0, 0.0))[0] <= now]
        if not rested:
            return False
        busy = Counter(worker.server for worker in self.worker_states.values())
        server = min(rested, key=lambda each: busy[each])
        self._numbers += 1
        self.worker_states[self._numbers] = _WorkerState(work, server)
        work.started = True
        [first] = self.writer.corpus.at([work.waiting[0][0]])
        job = self.job(work.chosen, first.audio)
        if server is not None:
            job = replace(job, spec=replace(job.spec, server=server))
        self.workers.start(self._numbers, job)
        return True

    def _hand_over(self, number: int, worker: _WorkerState) -> None:
        positions = worker.work.waiting.popleft()
        utterances = self.writer.corpus.at(positions)
        if len(positions) > 1:
            fitting, seconds = 1, utterances[0].duration or 0.0
            while fitting < len(positions) and seconds + (utterances[fitting].duration or 0.0) <= BATCH_SECONDS:
                seconds += utterances[fitting].duration or 0.0
                fitting += 1
            if fitting < len(positions):
                worker.work.waiting.appendleft(positions[fitting:])
                positions, utterances = positions[:fitting], utterances[:fitting]
        self._batches += 1
        worker.batches[self._batches] = positions
        self.workers.submit(number, self._batches, utterances)

    def _dismiss(self, number: int) -> None:
        del self.worker_states[number]
        self.workers.end(number)

    # What workers say.

    def _take_reply(self, reply: Reply) -> None:
        worker = self.worker_states.get(reply.worker)
        if worker is None:
            return
        if isinstance(reply, Opened):
            worker.ready = True
            worker.work.bad_starts = 0
        elif isinstance(reply, Finished):
            self._finished(worker, reply)
        else:
            self._reassign(reply.worker, worker, reply)

    def _finished(self, worker: _WorkerState, reply: Finished) -> None:
        if reply.results:
            worker.work.outages = 0
            self._pause.pop(worker.server, None)
        for result in reply.results:
            self._write(worker.work, result)
        positions = worker.batches.get(reply.batch, [])
        remaining = [each for each in positions if each in worker.work.remaining]
        if reply.is_last:
            worker.batches.pop(reply.batch, None)
            if remaining:  # it skipped some; a recording that is computed alone is never skipped
                self._suspect(worker.work, remaining, "ended without a result")
        elif reply.batch in worker.batches:
            worker.batches[reply.batch] = remaining

    def _write(self, work: _Work, result: Result) -> None:
        position = self.writer.position(result.id)
        if self.writer.add(result):
            self.computed += 1
            self.seconds += result.audio_seconds
            self.failed += result.error is not None
        work.remaining.discard(position)

    def _reassign(self, number: int, worker: _WorkerState, reply: Died | Failed) -> None:
        """Gives the batches of a worker that has ended to other workers."""
        work = worker.work
        batches = [[each for each in positions if each in work.remaining] for positions in worker.batches.values()]
        batches = [positions for positions in batches if positions]
        self._dismiss(number)
        if isinstance(reply, Failed):
            if worker.server is None:  # the other recordings may be in places that can be reached
                work.waiting.extend(batches[:1])
                batches = batches[1:]
            work.waiting.extendleft(reversed(batches))
            self._failed(worker, reply.error)
            return
        if not worker.ready:
            work.bad_starts += 1
            if work.bad_starts >= STARTS:
                raise WorkbenchError(f"{work.key} cannot be loaded: its process {reply.ending} {STARTS} times in a row")
            return
        work.waiting.extendleft(reversed(batches[1:]))
        if batches:
            self._suspect(work, batches[0], reply.ending)

    def _suspect(self, work: _Work, positions: Sequence[Position], ending: str) -> None:
        """Tries recordings again, each alone, after a worker has ended at one of them; gives up those that end every
        worker.
        """
        work.deaths.update(positions)
        single_batches = [[position] for position in positions if work.deaths[position] < LIVES]
        work.waiting.extendleft(reversed(single_batches))
        for position in positions:
            if work.deaths[position] >= LIVES:
                [utterance] = self.writer.corpus.at([position])
                sentence = (
                    f"the model's process ended {LIVES} times while it transcribed this (it {ending.strip(' ,')})"
                )
                self._write(work, Result(utterance.id, work.key, "", sentence, measured=_no_measurements()))

    def _failed(self, worker: _WorkerState, error: WorkbenchError) -> None:
        """Stops asking a failed server for a while; raises the error if a later attempt cannot succeed."""
        work = worker.work
        work.outages += 1
        hopeless = isinstance(error, BadInput) and not worker.ready
        cannot_start = not work.chosen.servers and not worker.ready and isinstance(error, Unavailable)
        most_outages = OUTAGES * len(work.chosen.servers) or PLACE_OUTAGES
        if hopeless or cannot_start or work.outages >= most_outages:
            raise error
        pause = min(2 * self._pause.get(worker.server, (0.0, 0.5))[1], MAX_PAUSE_SECONDS)
        self._pause[worker.server] = time.monotonic() + pause, pause

    # How far it is.

    def _beat(self) -> None:
        if self.on_beat is None:
            return
        remaining = sum(len(work.remaining) for work in self.works)
        total = sum(work.total for work in self.works)
        current = next((work for work in self.works if work.remaining), self.works[-1])
        self.on_beat(
            EvaluationState(
                current.key,
                total - remaining,
                total,
                current.total - len(current.remaining),
                current.total,
                self.computed,
                self.seconds,
                sum(1 for worker in self.worker_states.values() if worker.ready),
                self.failed,
                sum(1 for work in self.works if work.remaining and not work.started and work is not current),
            )
        )


def usual_batch(model: Chosen) -> int:
    """Returns how many utterances a worker gets at a time: an engine computes many side by side."""
    return 64 if RUNTIMES[model.spec.runtime].parallel else 8


def _no_measurements() -> dict[str, Any]:
    """Returns the measurements for a recording at which every worker ended."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"compute_seconds": 0.0, "cpu_seconds": None, "memory_bytes": None, "worker": None, "when": now}
