"""Workers in processes of this machine. `workbench.evaluation.child` is the other end."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Sequence

from workbench.core.errors import WorkbenchError
from workbench.evaluation.rows import Utterance
from workbench.evaluation.worker import Job
from workbench.evaluation.workers import Died, Failed, Finished, Opened, Reply
from workbench.isolation.channel import WORKER, Channel, ConnectionLost, wait_until_prepared

CHILD = (*WORKER[:-1], "workbench.evaluation.child")


class LocalWorkers:
    """See `workbench.evaluation.workers.Workers`."""

    place = "this machine"

    def __init__(self) -> None:
        self._workers: dict[int, _WorkerProcess] = {}
        self._replies: queue.SimpleQueue[Reply] = queue.SimpleQueue()

    def start(self, number: int, job: Job) -> None:
        """Starts a process and does not wait until it has loaded the model."""
        worker = self._workers[number] = _WorkerProcess(number, self._replies)
        threading.Thread(target=worker.run, args=(job, f"local-{number}"), daemon=True).start()

    def submit(self, number: int, batch: int, utterances: Sequence[Utterance]) -> None:
        """Sends a batch to a worker. If the worker is gone, a reply that says so will come."""
        with contextlib.suppress(ConnectionLost):
            self._workers[number].send(batch, utterances)

    def replies(self, seconds: float) -> list[Reply]:
        """Waits up to `seconds` for replies of workers, and returns them."""
        replies: list[Reply] = []
        try:
            replies.append(self._replies.get(timeout=seconds))
            while True:
                replies.append(self._replies.get_nowait())
        except queue.Empty:
            return [each for each in replies if each.worker in self._workers]

    def pid(self, number: int) -> int | None:
        """Returns the id of a worker's process."""
        worker = self._workers.get(number)
        return worker.channel.pid if worker and worker.channel else None

    def end(self, number: int) -> None:
        """Ends a worker at once."""
        worker = self._workers.pop(number, None)
        if worker is not None:
            worker.end()

    def close(self) -> None:
        """Ends all workers, side by side."""
        ending = [threading.Thread(target=self.end, args=(number,)) for number in list(self._workers)]
        for thread in ending:
            thread.start()
        for thread in ending:
            thread.join()


class _WorkerProcess:
    """One worker's process, and the thread that reads its replies."""

    def __init__(self, number: int, replies: queue.SimpleQueue[Reply]):
        self.number = number
        self.channel: Channel | None = None
        self._replies = replies
        self._ended = False
        self._starting = threading.Lock()

    def run(self, job: Job, name: str) -> None:
        """Starts the process and passes on its replies until it ends."""
        try:
            wait_until_prepared(job.spec, CHILD)
            with self._starting:
                if self._ended:
                    return
                self.channel = Channel(job.spec, CHILD, parallel=job.spec.runtime == "vllm" and job.spec.server is None)
            self.channel.send("open", job, name)
            while True:
                kind, batch, value = self.channel.receive()
                if kind == "opened":
                    self._replies.put(Opened(self.number, value))
                elif kind == "result":
                    self._replies.put(Finished(self.number, batch, [value], False))
                elif kind == "done":
                    self._replies.put(Finished(self.number, batch, [], True))
                else:
                    error, sentence = value
                    self.channel.end()
                    self._replies.put(Failed(self.number, error(sentence)))
                    return
        except ConnectionLost:
            assert self.channel is not None
            ending = self.channel.how_it_ended()
            self.channel.end()
            self._replies.put(Died(self.number, ending))
        except WorkbenchError as error:
            self._replies.put(Failed(self.number, error))
        except Exception as error:
            self._replies.put(Died(self.number, f"sent a message that cannot be read ({error})"))

    def send(self, batch: int, utterances: Sequence[Utterance]) -> None:
        """Sends a batch; raises `ConnectionLost` if the process is gone."""
        if self.channel is None:
            raise ConnectionLost
        self.channel.send("batch", batch, list(utterances))

    def end(self) -> None:
        """Ends the process."""
        with self._starting:
            self._ended = True
        if self.channel is not None:
            self.channel.end()
