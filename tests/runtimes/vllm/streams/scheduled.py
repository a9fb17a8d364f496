"""A scheduler like vLLM's over a fake network: it splits prompts, preempts requests and batches them in any order.

Like vLLM it knows only stream 0: the other streams of a row come from `Answers`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tests.support.speech_layouts import FakeNetwork
from workbench.runtimes.vllm.streams.answers import Answers
from workbench.runtimes.vllm.streams.stream_request import ARGUMENT, StreamRequest, spans_of
from workbench.speech.choosing import Step
from workbench.speech.network import NeededLogits
from workbench.speech.plan import AnswerPlan


@dataclass
class Request:
    """The state of a request in vLLM."""

    name: str
    prompt: list[int]
    extra: dict
    ids: list[int] = field(default_factory=list)  # generated
    rows: list[tuple[int, ...]] = field(default_factory=list)  # the rows in its cache
    steps: list[Step] = field(default_factory=list)  # the answers of `Answers.choose`
    wait_count: int = 0  # steps that computed all its positions and chose no row


class Scheduler:
    """Runs requests step by step, in an order drawn from `chance`.

    Args:
        parks: whether a preempted request is parked, as in vLLM's runner V2, or stays, as in V1.
    """

    def __init__(self, network: FakeNetwork, chance: random.Random, parks: bool, maximum: int = 100):
        self.network, self.chance, self.parks = network, chance, parks
        self.answers = Answers(network.layout, maximum, allows_pairs=True)
        self.running: list[Request] = []

    def add(self, name: str, rows: np.ndarray, plan: AnswerPlan) -> Request:
        extra = {ARGUMENT: StreamRequest(plan, spans_of(rows, 0, self.network.layout)).extra_entry()}
        request = Request(name, rows[:, 0].tolist(), extra)
        self.running.append(request)
        return request

    def add_pair(self, name: str, rows: np.ndarray, plan: AnswerPlan, prefix_ids: Sequence[int]) -> list[Request]:
        """The two requests of an answer with guidance; `prefix_ids` are the answer's ids up to `<|audio|>`."""
        layout = self.network.layout
        shared = {"prefix_ids": prefix_ids, "pair": name}
        stream_requests = (
            StreamRequest(plan, spans_of(rows, 0, layout), **shared),
            StreamRequest(plan, null=True, **shared),
        )
        ids = [*rows[:, 0].tolist(), *prefix_ids]
        prompts = ids, [layout.pad] * (len(ids) - 1) + ids[-1:]
        requests = [
            Request(f"{name} {n}", list(p), {ARGUMENT: a.extra_entry()})
            for n, (p, a) in enumerate(zip(prompts, stream_requests))
        ]
        self.running += requests
        return requests

    def preempt(self, request: Request, drops: bool = False) -> None:
        """Preempt a request: its positions are computed again, and the newest id may be lost."""
        request.rows = []
        if drops and request.ids:
            del request.ids[-1], request.steps[-1]
        if self.parks:
            self.answers.park(request.name)

    def end(self, request: Request) -> None:
        self.running.remove(request)
        self.answers.park(request.name) if self.parks else self.answers.end(request.name)

    def step(self) -> None:
        """Compute some positions of some requests."""
        batch = [item for item in self.running if self.chance.random() < 0.8] or self.running[:1]
        self.chance.shuffle(batch)
        starts, stops = [], []
        for request in batch:
            positions = len(request.prompt) + len(request.ids)
            problem = self.answers.begin(request.name, request.extra, len(request.prompt), positions)
            assert problem == ""
            starts.append(len(request.rows))
            stops.append(self.chance.randint(starts[-1] + 1, positions))
        names = [item.name for item in batch]
        self._compute(batch, starts, stops, *self.answers.rows(names, starts, stops))
        steps = self.answers.choose(names, stops, self._logits(batch))
        assert sorted(steps) == list(range(len(batch)))
        for row, request in enumerate(batch):
            if steps[row] is None:  # the request waits for its partner
                assert stops[row] == len(request.prompt) + len(request.ids) == len(request.rows)
                request.rows.pop()
                request.wait_count += 1
            elif stops[row] == len(request.prompt) + len(request.ids):  # a row chosen for part of a prompt is dropped
                request.ids.append(steps[row].id)
                request.steps.append(steps[row])

    def _compute(
        self, batch: Sequence[Request], starts: list[int], stops: list[int], places: list[int], rows: list[np.ndarray]
    ) -> None:
        several = dict(zip(places, rows, strict=True))
        index = 0
        for request, start, stop in zip(batch, starts, stops):
            ids = [*request.prompt, *request.ids]
            for position in range(start, stop):
                row = several.get(index, self.network.layout.row(ids[position]))
                assert row[0] == ids[position]
                request.rows.append(tuple(map(int, row)))
                index += 1

    def _logits(self, batch: Sequence[Request]):
        layout = self.network.layout

        def logits_of(rows: Sequence[int], needed: NeededLogits) -> tuple[np.ndarray, np.ndarray | None]:
            logits = np.stack([self.network.logits(batch[row].rows) for row in rows])
            columns = [number for first, end in needed.main for number in range(first, end)]
            codec = None
            if needed.codec:
                codec = np.stack(
                    [
                        [row_logits[s, slice(*layout.interval(s))] for s in range(1, layout.streams)]
                        for row_logits in logits
                    ]
                )
            return logits[:, 0, columns], codec

        return logits_of
