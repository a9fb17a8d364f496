"""A scheduler like vLLM's over a fake network: pieces of prompts, requests taken out and computed again, any order.

It knows stream 0 alone, like vLLM: the other streams of a row come from `Answers`.
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
    """What vLLM knows of a request."""

    name: str
    prompt: list[int]
    extra: dict
    ids: list[int] = field(default_factory=list)  # generated
    computed: list[tuple[int, ...]] = field(default_factory=list)  # the rows in its cache
    steps: list[Step] = field(default_factory=list)  # as they came back
    waited: int = 0  # steps that computed all of it and gave it nothing


class Scheduler:
    """Runs requests step by step, as the draws of `chance` have it.

    Args:
        parks: whether a request that is taken out is parked, as vLLM's runner V2 does, or stays, as V1 does.
    """

    def __init__(self, network: FakeNetwork, chance: random.Random, parks: bool, most: int = 100):
        self.network, self.chance, self.parks = network, chance, parks
        self.answers = Answers(network.layout, most, pairs=True)
        self.running: list[Request] = []

    def add(self, name: str, rows: np.ndarray, plan: AnswerPlan) -> Request:
        extra = {ARGUMENT: StreamRequest(plan, spans_of(rows, 0, self.network.layout)).written()}
        request = Request(name, rows[:, 0].tolist(), extra)
        self.running.append(request)
        return request

    def add_pair(self, name: str, rows: np.ndarray, plan: AnswerPlan, prefix_ids: Sequence[int]) -> list[Request]:
        """The two requests of an answer with guidance; `prefix_ids` are the answer's ids up to `<|audio|>`."""
        layout = self.network.layout
        shared = {"prefix_ids": prefix_ids, "pair": name}
        asked = StreamRequest(plan, spans_of(rows, 0, layout), **shared), StreamRequest(plan, null=True, **shared)
        ids = [*rows[:, 0].tolist(), *prefix_ids]
        prompts = ids, [layout.pad] * (len(ids) - 1) + ids[-1:]
        found = [
            Request(f"{name} {n}", list(p), {ARGUMENT: a.written()}) for n, (p, a) in enumerate(zip(prompts, asked))
        ]
        self.running += found
        return found

    def preempt(self, request: Request, drops: bool = False) -> None:
        """Takes a request out; everything is computed again, and the newest id may be lost on its way."""
        request.computed = []
        if drops and request.ids:
            del request.ids[-1], request.steps[-1]
        if self.parks:
            self.answers.park(request.name)

    def end(self, request: Request) -> None:
        self.running.remove(request)
        self.answers.park(request.name) if self.parks else self.answers.end(request.name)

    def step(self) -> None:
        """Computes some positions of some requests."""
        chosen = [each for each in self.running if self.chance.random() < 0.8] or self.running[:1]
        self.chance.shuffle(chosen)
        starts, stops = [], []
        for request in chosen:
            positions = len(request.prompt) + len(request.ids)
            problem = self.answers.begin(request.name, request.extra, len(request.prompt), positions)
            assert problem == ""
            starts.append(len(request.computed))
            stops.append(self.chance.randint(starts[-1] + 1, positions))
        names = [each.name for each in chosen]
        self._compute(chosen, starts, stops, *self.answers.rows(names, starts, stops))
        found = self.answers.choose(names, stops, self._logits(chosen))
        assert sorted(found) == list(range(len(chosen)))
        for row, request in enumerate(chosen):
            if found[row] is None:  # it waits for its partner
                assert stops[row] == len(request.prompt) + len(request.ids) == len(request.computed)
                request.computed.pop()
                request.waited += 1
            elif stops[row] == len(request.prompt) + len(request.ids):  # else it is a piece, whose choice is dropped
                request.ids.append(found[row].id)
                request.steps.append(found[row])

    def _compute(
        self, chosen: Sequence[Request], starts: list[int], stops: list[int], places: list[int], rows: list[np.ndarray]
    ) -> None:
        several = dict(zip(places, rows, strict=True))
        at = 0
        for request, start, stop in zip(chosen, starts, stops):
            ids = [*request.prompt, *request.ids]
            for position in range(start, stop):
                row = several.get(at, self.network.layout.row(ids[position]))
                assert row[0] == ids[position]
                request.computed.append(tuple(map(int, row)))
                at += 1

    def _logits(self, chosen: Sequence[Request]):
        layout = self.network.layout

        def found(rows: Sequence[int], wanted: NeededLogits) -> tuple[np.ndarray, np.ndarray | None]:
            logits = np.stack([self.network.logits(chosen[row].computed) for row in rows])
            columns = [number for first, end in wanted.main for number in range(first, end)]
            codec = None
            if wanted.codec:
                codec = np.stack(
                    [[each[s, slice(*layout.interval(s))] for s in range(1, layout.streams)] for each in logits]
                )
            return logits[:, 0, columns], codec

        return found
