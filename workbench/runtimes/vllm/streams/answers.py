"""Keeps the answers that an engine is generating: the rows of each so far, and what comes next.

An engine may compute a position several times. It cuts long prompts into pieces, and it takes a request out of the
batch and starts it again later. So each position is chosen once and kept until its request ends.

An answer with classifier-free guidance is two requests of the same length: the model and the null branch. A row of
audio is chosen from the logits of both, and both get it. If a step has the logits of only one of them, it waits. This
file knows neither vLLM nor a network.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from workbench.core.errors import BadInput
from workbench.runtimes.vllm.streams.stream_request import BROKEN, StreamRequest, read
from workbench.speech.choosing import PendingPosition, Step, chosen, forced
from workbench.speech.layout import SpeechLayout
from workbench.speech.masks import needed_logits
from workbench.speech.network import NeededLogits, Scores
from workbench.speech.phases import Cursor, Kind
from workbench.speech.plan import AnswerPlan
from workbench.speech.sampling import apply_guidance

Logits = Callable[[Sequence[int], NeededLogits], tuple[np.ndarray, np.ndarray | None]]
"""Takes numbers of rows in the batch. Returns their logits: of stream 0 [n, ids], and of the other streams
[n, streams - 1, layer size].
"""


class Answer:
    """One request: the rows of its prompt that have several streams, and the rows generated so far."""

    def __init__(self, stream_request: StreamRequest, layout: SpeechLayout, prompt: int):
        self.stream_request, self.layout, self.prompt = stream_request, layout, prompt
        self.steps: list[Step] = []
        self._broken = False
        self._cursor = Cursor(stream_request.plan, layout)
        for number in stream_request.prefix_ids:
            self._cursor.advance(number)

    def rows(self, start: int, stop: int) -> list[tuple[int, np.ndarray]]:
        """Returns (position, row [streams]) of the positions from `start` to `stop` that have streams 1 and above."""
        stream_rows = []
        for first, rows in self.stream_request.spans if start < self.prompt else ():
            stream_rows += [(p, rows[p - first]) for p in range(max(start, first), min(stop, first + len(rows)))]
        for position in range(max(start, self.prompt), min(stop, self.prompt + len(self.steps))):
            step = self.steps[position - self.prompt]
            if step.phase is Kind.AUDIO:
                stream_rows.append((position, step.ids))
        return stream_rows

    def known_step(self, length: int) -> Step | None:
        """Returns the position after the first `length` ones, or None if the model must choose it now.

        The model does not choose if it has chosen this position before, if an id is forced, or if the answer has ended.
        It also does not choose while only a piece of the prompt is computed; vLLM discards what follows such a piece.
        """
        number = length - self.prompt
        if number > len(self.steps):
            raise ValueError(f"the engine asks for position {number} of an answer that has {len(self.steps)} so far")
        if number < 0:
            return _end(self.layout)
        if number < len(self.steps):
            return self.steps[number]
        phase = self._cursor.phase
        if self._broken or phase.kind is Kind.END:
            return _end(self.layout, self._broken)
        if phase.forced is None:
            return None
        step = forced(phase, self.layout, self.stream_request.probabilities, self.stream_request.evidence)
        self.take(step)
        return step

    @property
    def has_ended(self) -> bool:
        """Whether the answer is complete."""
        return self._broken or self._cursor.phase.kind is Kind.END

    @property
    def is_guided(self) -> bool:
        """Whether the next position is chosen together with the partner."""
        return bool(self.stream_request.pair) and self._cursor.phase.kind is Kind.AUDIO

    def pending_position(self) -> PendingPosition:
        """Returns the values that the model needs to choose the next position."""
        stream_request, number = self.stream_request, len(self.stream_request.prefix_ids) + len(self.steps)
        return PendingPosition(
            self._cursor.phase, stream_request.plan, number, stream_request.probabilities, stream_request.evidence
        )

    def take(self, step: Step) -> None:
        """Appends a position."""
        self._cursor.advance(step.id)
        self.steps.append(step)

    def break_off(self) -> Step:
        """Ends the answer, because its logits are NaN; returns the end."""
        self._broken = True
        return _end(self.layout, broken=True)


class _EndedAnswer(Answer):
    """A request that cannot be answered, so it ends at once."""

    has_ended = True

    def __init__(self, prompt: int, layout: SpeechLayout):
        super().__init__(StreamRequest(AnswerPlan()), layout, prompt)

    def known_step(self, length: int) -> Step:
        """Returns the end."""
        return _end(self.layout)


def _end(layout: SpeechLayout, broken: bool = False) -> Step:
    """Returns the position after an answer: the pad, at which vLLM stops every request.

    Args:
        broken: mark the end with `BROKEN`, because the logits were NaN.
    """
    return Step(layout.row(layout.pad), Kind.END, np.full(layout.streams, BROKEN) if broken else None)


class Answers:
    """The requests in an engine, by id.

    Args:
        max_parked: the number of requests outside the batch that are kept. If there are more, a request that has
            ended is forgotten; if none has ended, the request that left the batch first.
        allows_pairs: whether requests may come in pairs, which needs a scheduler that lets one wait for the other.
    """

    def __init__(self, layout: SpeechLayout, max_parked: int = 0, allows_pairs: bool = False):
        self.layout, self._max_parked, self._allows_pairs = layout, max_parked, allows_pairs
        self._running: dict[str, Answer] = {}
        self._parked: OrderedDict[str, Answer] = OrderedDict()

    def __contains__(self, request: str) -> bool:
        return request in self._running

    @property
    def known_requests(self) -> int:
        """The number of requests that are known, in the batch and outside of it."""
        return len(self._running) + len(self._parked)

    def begin(self, request: str, extra: Mapping[str, Any] | None, prompt: int, positions: int) -> str:
        """Starts a request, or continues a parked one. vLLM alone handles a request that asks for no streams.

        Args:
            prompt: the number of positions of its prompt.
            positions: the number of positions of its prompt and of its answer so far.

        Returns an empty string, or a sentence that says why the answer ends at once: the request cannot be read, or its
        rows are no longer known.
        """
        if request in self._running:
            return ""
        if request in self._parked:
            self._running[request] = self._parked.pop(request)
            return ""
        try:
            stream_request = read(extra, self.layout, prompt)
            if stream_request is None:
                return ""
            if stream_request.pair and not self._allows_pairs:
                raise BadInput("it is one of a pair, and this engine's scheduler lets no request wait for another")
            if positions > prompt:
                raise BadInput(f"the streams of the {positions - prompt} rows so far are no longer known")
        except BadInput as error:
            self._running[request] = _EndedAnswer(prompt, self.layout)
            return str(error)
        self._running[request] = Answer(stream_request, self.layout, prompt)
        return ""

    def end(self, request: str) -> None:
        """Forgets a request. Does nothing if it is unknown."""
        self._running.pop(request, None)

    def park(self, request: str) -> None:
        """Keeps a request that leaves the batch, as it may come back. Does nothing if it is unknown."""
        answer = self._running.pop(request, None)
        if answer is None:
            return
        self._parked[request] = answer
        if len(self._parked) > self._max_parked:
            ended_names = (name for name, each in self._parked.items() if each.has_ended)
            del self._parked[next(ended_names, next(iter(self._parked)))]

    def rows(self, requests: Sequence[str], starts: Sequence[int], stops: Sequence[int]) -> tuple[list[int], list[Any]]:
        """Returns (places, rows): the rows of several streams in a step, and their places among its tokens.

        Args:
            requests: in the order of the batch. The tokens of a request stand together.
            starts: the first position of each request that the step computes.
            stops: the position after the last one.
        """
        places: list[int] = []
        rows: list[np.ndarray] = []
        offset = 0
        for request, start, stop in zip(requests, starts, stops):
            if (answer := self._running.get(request)) is not None:
                for position, row in answer.rows(start, stop):
                    places.append(offset + position - start)
                    rows.append(row)
            offset += stop - start
        return places, rows

    def choose(self, requests: Sequence[str], lengths: Sequence[int], logits: Logits) -> dict[int, Step | None]:
        """Returns the next position of each of these requests, by its row in the batch.

        None means that the request waits for its partner, and that the engine must compute its last position again.

        Args:
            requests: in the order of the batch.
            lengths: the number of positions of each that are computed, those of this step included.
        """
        steps: dict[int, Step | None] = {}
        groups: dict[Any, list[Branches]] = {}
        waiting_pairs: dict[str, dict[bool, tuple[int, Answer]]] = {}
        for row, (request, length) in enumerate(zip(requests, lengths)):
            if (answer := self._running.get(request)) is None:
                continue
            step = answer.known_step(length)
            if step is not None:
                steps[row] = step
            elif answer.is_guided:
                waiting_pairs.setdefault(answer.stream_request.pair, {})[answer.stream_request.null] = row, answer
            else:
                groups.setdefault(answer.pending_position().manner, []).append([(row, answer)])
        for pair in waiting_pairs.values():
            if len(pair) == 2:
                groups.setdefault(pair[False][1].pending_position().manner, []).append([pair[False], pair[True]])
            else:
                steps.update((row, None) for row, _ in pair.values())
        for manner, group in groups.items():
            main, codec = logits(
                [row for branches in group for row, _ in branches], needed_logits(manner[0], self.layout)
            )
            main, codec = _apply_guidance(main, codec, group)
            are_finite = _are_numbers(main) & (_are_numbers(codec) if codec is not None else True)
            for place in np.flatnonzero(~are_finite):
                steps.update((row, answer.break_off()) for row, answer in group[place])
            if not are_finite.all():  # no answer changes those beside it
                group = [branches for branches, finite in zip(group, are_finite) if finite]
                main, codec = main[are_finite], None if codec is None else codec[are_finite]
            if not group:
                continue
            positions = [branches[0][1].pending_position() for branches in group]
            for branches, step in zip(group, chosen(main, codec, positions, self.layout)):
                for row, answer in branches:
                    answer.take(step)
                    steps[row] = step
        return steps


Branches = Sequence[tuple[int, Answer]]
"""The rows of one answer in the batch: the model, then the null branch if there is one."""


def _are_numbers(logits: np.ndarray) -> np.ndarray:
    """Returns for each answer whether it has no NaN among its logits."""
    are_numbers: np.ndarray = ~np.isnan(logits.reshape(len(logits), -1)).any(axis=1)
    return are_numbers


def _apply_guidance(
    main: np.ndarray, codec: np.ndarray | None, group: Sequence[Branches]
) -> tuple[np.ndarray, np.ndarray | None]:
    """Returns the logits of each answer, with guidance where it has two branches."""
    if len(main) == len(group):
        return main, codec
    mains, codecs, offset = [], [], 0
    for branches in group:
        part = slice(offset, offset + len(branches))
        offset = part.stop
        scores = Scores(main[part], None if codec is None else codec[part])
        guided_main, guided_codec = apply_guidance(scores, branches[0][1].stream_request.plan.cfg)
        mains.append(guided_main)
        codecs += [] if guided_codec is None else [guided_codec]
    return np.stack(mains), np.stack(codecs) if codecs else None
