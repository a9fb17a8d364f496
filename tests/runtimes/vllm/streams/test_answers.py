"""SpeechLM answers inside an engine do not depend on how the scheduler batches, preempts or cancels requests."""

from __future__ import annotations

import random
from collections.abc import Generator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runtimes.vllm.streams.scheduled import Request, Scheduler
from tests.support.speech_layouts import LAYOUT, FakeNetwork
from workbench.core.errors import BadInput, WorkbenchError
from workbench.runtimes.vllm.streams.answers import Answers
from workbench.runtimes.vllm.streams.network import _Answer, _read_steps
from workbench.runtimes.vllm.streams.stream_request import ARGUMENT, BROKEN, StreamRequest, columns
from workbench.speech.choosing import Step
from workbench.speech.generate import answer_steps
from workbench.speech.phases import Kind
from workbench.speech.plan import AnswerPlan

TEXT = np.array([LAYOUT.row(number) for number in (1, 5, 7, 14, 2, 6)])
SPEECH = np.concatenate([TEXT[:2], LAYOUT.pads + [[1, 0, 0, 0, 0], [2, 3, 0, 0, 0], [0, 1, 2, 4, 5]], TEXT[-2:]])
PLANS = [
    AnswerPlan(
        modalities,
        max_text_tokens=5,
        max_audio_rows=6,
        text_temperature=temperature,
        audio_temperature=temperature,
        audio_top_k=3,
        seed=seed,
    )
    for seed, (modalities, temperature) in enumerate(
        [("text", 0.0), ("audio", 0.8), ("text_audio", 0.0), ("auto", 1.2), ("text_audio", 0.7), ("auto", 0.0)]
    )
]


def steps_alone(network: FakeNetwork, rows: np.ndarray, plan: AnswerPlan) -> list[list[int]]:
    return [step.ids.tolist() for step in answer_steps(network, [rows], plan)]


def streams(request: Request) -> list[list[int]]:
    return [step.ids.tolist() for step in request.steps]


@given(
    chance=st.randoms(use_true_random=False), parks=st.booleans(), plans=st.lists(st.sampled_from(PLANS), max_size=5)
)
@settings(max_examples=60)
def test_an_answer_does_not_depend_on_the_scheduler(
    chance: random.Random, parks: bool, plans: list[AnswerPlan]
) -> None:
    network = FakeNetwork(ends=1.0)
    scheduler = Scheduler(network, chance, parks)
    requests = [scheduler.add(f"r{n}", chance.choice([TEXT, SPEECH]), plan) for n, plan in enumerate(plans)]
    expected = {
        item.name: steps_alone(network, TEXT if len(item.prompt) == len(TEXT) else SPEECH, plan)
        for item, plan in zip(requests, plans)
    }
    cancelled = {item.name for item in requests if chance.random() < 0.2}
    for _ in range(3000):
        for request in list(scheduler.running):
            if chance.random() < 0.05:
                scheduler.preempt(request, drops=chance.random() < 0.5)
            ends_early = request.name in cancelled and len(request.ids) > 2
            if ends_early or (request.steps and request.steps[-1].phase is Kind.END):
                scheduler.end(request)
        if not scheduler.running:
            break
        scheduler.step()
    assert not scheduler.running
    for request in requests:
        if request.name in cancelled:
            assert streams(request) == expected[request.name][: len(request.steps)]
        else:
            assert request.ids[-1] == LAYOUT.pad and streams(request)[:-1] == expected[request.name]
    if not parks:
        assert scheduler.answers.known_requests == 0


@given(
    seed=st.integers(0, 1 << 32),
    parks=st.booleans(),
    plans=st.lists(st.tuples(st.sampled_from(PLANS[1:]), st.sampled_from([1.0, 2.0, 3.5])), min_size=1, max_size=4),
)
@settings(max_examples=30)
def test_guidance_pairs_stay_synchronised_under_any_scheduling(
    seed: int, parks: bool, plans: list[tuple[AnswerPlan, float]]
) -> None:
    """Both requests receive the row that guidance chooses; requests without guidance run beside them."""
    chance = random.Random(seed)
    network = FakeNetwork(ends=1.0)
    scheduler = Scheduler(network, chance, parks)
    expected: dict[str, list[list[int]]] = {}
    requests: list[Request] = []
    for n, (plan, cfg) in enumerate(plans):
        plan, rows = replace(plan, cfg=cfg), chance.choice([TEXT, SPEECH])
        steps = steps_alone(network, rows, plan)
        ids = [row[0] for row in steps]
        if cfg == 1:
            requests.append(scheduler.add(f"r{n} 0", rows, plan))
            expected[f"r{n} 0"] = steps
        elif LAYOUT.audio in ids:
            start = ids.index(LAYOUT.audio) + 1
            requests += scheduler.add_pair(f"r{n}", rows, plan, ids[:start])
            end = next(index for index in range(start, len(ids)) if ids[index] in (LAYOUT.eos, LAYOUT.eot)) + 1
            expected |= {f"r{n} 0": steps[start:], f"r{n} 1": steps[start:end]}
    for _ in range(6000):
        for request in list(scheduler.running):
            if chance.random() < 0.05:
                scheduler.preempt(request, drops=chance.random() < 0.5)
            null_ended = (
                bool(request.ids) and request.name.endswith("1") and request.ids[-1] in (LAYOUT.eos, LAYOUT.eot)
            )
            if null_ended or (request.steps and request.steps[-1].phase is Kind.END):
                scheduler.end(request)
        if not scheduler.running:
            break
        scheduler.step()
    assert not scheduler.running
    for request in requests:
        actual = [step.ids.tolist() for step in request.steps if step.phase is not Kind.END]
        assert actual == expected[request.name]
    if not parks:
        assert scheduler.answers.known_requests == 0


def test_guidance_pair_is_refused_by_a_scheduler_without_parking() -> None:
    answers = Answers(LAYOUT)
    request = StreamRequest(AnswerPlan("audio", cfg=3.0), prefix_ids=[LAYOUT.audio], pair="p")
    error = answers.begin("it", {ARGUMENT: request.extra_entry()}, 4, 4)
    assert error == "it is one of a pair, and this engine's scheduler lets no request wait for another"
    [step] = answers.choose(["it"], [4], lambda *_: pytest.fail("nothing is to be chosen")).values()
    assert step is not None and step.id == LAYOUT.pad


def begin(answers: Answers, name: str, plan: AnswerPlan = PLANS[2]) -> None:
    assert answers.begin(name, {ARGUMENT: StreamRequest(plan).extra_entry()}, 4, 4) == ""


def test_ended_requests_are_evicted_before_parked_requests() -> None:
    answers = Answers(LAYOUT, max_parked=2)
    begin(answers, "waits")
    answers.park("waits")
    for number in range(5):
        begin(answers, f"ends {number}", AnswerPlan("text", max_text_tokens=1))
        for length in range(4, 8):
            answers.choose([f"ends {number}"], [length], lambda rows, needed: (np.zeros((1, 18), np.float32), None))
        answers.park(f"ends {number}")
        assert answers.known_requests <= 2
    begin(answers, "waits")
    assert "waits" in answers
    for number in range(4):
        begin(answers, f"also waits {number}")
    for number in range(4):
        answers.park(f"also waits {number}")
    assert answers.known_requests == 3, "the running request and two parked ones"


def test_request_with_lost_rows_ends_immediately() -> None:
    answers = Answers(LAYOUT)
    error = answers.begin("it", {ARGUMENT: StreamRequest(PLANS[0]).extra_entry()}, 4, 9)
    assert error == "the streams of the 5 rows so far are no longer known"
    [step] = answers.choose(["it"], [9], lambda *_: pytest.fail("nothing is to be chosen")).values()
    assert step.id == LAYOUT.pad and answers.rows(["it"], [0], [9]) == ([], [])


def test_requests_without_streams_are_left_to_vllm() -> None:
    answers = Answers(LAYOUT)
    assert answers.begin("it", None, 4, 4) == "" and "it" not in answers
    assert answers.choose(["it"], [4], lambda *_: pytest.fail("nothing is to be chosen")) == {}
    answers.end("it")
    answers.park("it")
    assert answers.known_requests == 0


def test_position_beyond_the_answer_raises_an_error() -> None:
    answers = Answers(LAYOUT)
    begin(answers, "it")
    with pytest.raises(ValueError, match="asks for position 3 of an answer that has 0 so far"):
        answers.choose(["it"], [7], lambda *_: pytest.fail("nothing is to be chosen"))


class DamagedNetwork(FakeNetwork):
    """A network whose logits are NaN after one prompt: for text, or from the first row of audio on."""

    def __init__(self, first: int, audio: bool = False):
        super().__init__(ends=1.0)
        self.first, self.audio = first, audio

    def logits(self, history: Sequence[Sequence[int]]) -> np.ndarray:
        """See `FakeNetwork.logits`."""
        logits = super().logits(history)
        if history[1][0] == self.first and (not self.audio or history[-1][0] == LAYOUT.audio):
            logits[1 if self.audio else 0] = np.nan
        return logits


@pytest.mark.parametrize("audio", [False, True])
def test_nan_logits_end_only_their_own_answer(audio: bool) -> None:
    other_rows = TEXT.copy()
    other_rows[1, 0] = 4
    network, plan = DamagedNetwork(int(TEXT[1, 0]), audio), PLANS[1 if audio else 0]
    with pytest.raises(BadInput, match="the network's logits are NaN"):
        steps_alone(network, TEXT, plan)
    scheduler = Scheduler(network, random.Random(1), parks=True)
    requests = [scheduler.add("damaged", TEXT, plan), scheduler.add("sound", other_rows, plan)]
    for _ in range(300):
        scheduler.step()
        for request in [
            candidate for candidate in scheduler.running if candidate.steps and candidate.steps[-1].phase is Kind.END
        ]:
            scheduler.end(request)
        if not scheduler.running:
            break
    damaged, sound = requests
    assert streams(sound)[:-1] == steps_alone(network, other_rows, plan)
    end = damaged.steps[-1]
    assert end.id == LAYOUT.pad and columns(end, LAYOUT)[1][0] == BROKEN
    assert streams(damaged)[:-1] == streams_before_the_nan(network, plan)


def streams_before_the_nan(network: FakeNetwork, plan: AnswerPlan) -> list[list[int]]:
    """The rows before the error."""
    rows: list[list[int]] = []
    with pytest.raises(BadInput):
        rows.extend(step.ids.tolist() for step in answer_steps(network, [TEXT], plan))
    return rows


class FlatLogprobs:
    """vLLM's flat log-probabilities of one position."""

    def __init__(self, step: Step):
        ids, numbers = columns(step, LAYOUT)
        self.token_ids, self.logprobs = ids.tolist(), numbers.tolist()
        self.start_indices, self.end_indices = [0], [len(ids)]


@pytest.mark.parametrize(
    ("probabilities", "error", "message"),
    [
        (np.full(LAYOUT.streams, BROKEN), BadInput, "the network's logits are NaN: values overflow in it"),
        (None, WorkbenchError, "the engine broke an answer off"),
    ],
)
def test_session_distinguishes_nan_logits_from_an_aborted_answer(
    probabilities: Any, error: type[Exception], message: str
) -> None:
    end = Step(LAYOUT.row(LAYOUT.pad), Kind.END, probabilities)
    network: Any = SimpleNamespace(
        engine=SimpleNamespace(where="its log: it.log", follow=lambda *arguments: engine_events(end))
    )
    with pytest.raises(error, match=message):
        list(_read_steps(network, [(None, None)], _Answer(StreamRequest(PLANS[0]), LAYOUT)))  # type: ignore[list-item]


def engine_events(step: Step) -> Generator[Any, None, list[Any]]:
    """The events that an engine yields for one position."""
    yield 0, [step.id], FlatLogprobs(step)
    return []
