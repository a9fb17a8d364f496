"""Answers of a fake network with hashed logits, against a loop that recomputes everything."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.speech.test_phases import read
from tests.speech.test_sampling import slow_choice
from tests.support.speech_layouts import LAYOUT, FakeNetwork
from workbench.core.errors import BadInput
from workbench.speech.generate import AnswerPlan, Step, answer_steps
from workbench.speech.phases import Kind
from workbench.speech.sampling import uniforms

PROMPT = [np.array([[1, 0, 0, 0, 0], [5, 0, 0, 0, 0]]), np.array([[6, 0, 0, 0, 0]])]


def answer(network: FakeNetwork, plan: AnswerPlan, **options: Any) -> tuple[list[Step], str]:
    """Returns all steps, and the finish reason."""
    steps, generator = [], answer_steps(network, PROMPT, plan, **options)
    while True:
        try:
            steps.append(next(generator))
        except StopIteration as stop:
            return steps, stop.value


def slow_answer(network: FakeNetwork, plan: AnswerPlan) -> tuple[list[list[int]], str]:
    """Returns the answer by the definition: full logits at every step, masks as sets of ids."""
    layout = network.layout
    prompt = [tuple(map(int, row)) for part in PROMPT for row in part]
    rows: list[list[int]] = []
    audio_from: int | None = None
    while True:
        ids = [row[0] for row in rows]
        phase = read(ids, plan, layout)
        if phase.kind is Kind.END:
            return rows, phase.finish
        row = [layout.pad] * layout.streams
        if phase.forced is not None:
            row[0] = phase.forced
        else:
            if len(prompt) + len(rows) > network.context:
                return rows, "length"
            history = prompt + [tuple(each) for each in rows]
            logits = network.logits(history)
            if phase.kind is Kind.AUDIO and plan.cfg != 1:
                assert audio_from is not None
                before = len(prompt) + audio_from
                null = [(0,) * layout.streams] * before + history[before:]
                logits = np.float32(plan.cfg) * logits + np.float32(1 - plan.cfg) * network.logits(null)
            draws = uniforms(plan.seed, len(rows), layout.streams)
            temperature, top_k = {
                Kind.TEXT: (plan.text_temperature, plan.text_top_k),
                Kind.AUDIO: (plan.audio_temperature, plan.audio_top_k),
            }.get(phase.kind, (0.0, 0))
            for stream in range(layout.streams if phase.kind is Kind.AUDIO else 1):
                legal = set(range(*layout.interval(stream)))
                if phase.kind is Kind.TEXT:
                    legal = set(range(layout.text_first, layout.text_end))
                if phase.kind is Kind.MARKER:
                    legal = {layout.text, layout.audio}
                if stream == 0 and phase.closes:
                    legal |= {layout.eos, layout.eot}
                masked = [float(z) if n in legal else -math.inf for n, z in enumerate(logits[stream])]
                row[stream] = slow_choice(masked, temperature, top_k, float(draws[stream]))
            if row[0] in (layout.eos, layout.eot):
                row[1:] = [layout.pad] * (layout.streams - 1)
        if row[0] == layout.audio:
            audio_from = len(rows)
        rows.append(row)


@pytest.mark.parametrize("modalities", ["text", "audio", "text_audio", "auto"])
@pytest.mark.parametrize("cfg", [1.0, 3.0])
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_generated_answers_match_the_slow_definition(modalities: str, cfg: float, temperature: float) -> None:
    for seed in range(4):
        plan = AnswerPlan(
            modalities,
            max_text_tokens=9,
            min_audio_rows=3,
            max_audio_rows=14,
            text_temperature=temperature,
            audio_temperature=temperature,
            text_top_k=4,
            audio_top_k=3,
            cfg=cfg,
            seed=seed,
        )
        network = FakeNetwork(ends=1.0 + seed)
        steps, finish = answer(network, plan)
        assert ([step.ids.tolist() for step in steps], finish) == slow_answer(network, plan)


@pytest.mark.parametrize("context", range(3, 40))
@pytest.mark.parametrize("cfg", [1.0, 2.0])
def test_answer_ends_when_the_context_is_full(context: int, cfg: float) -> None:
    plan = AnswerPlan("text_audio", max_text_tokens=8, min_audio_rows=60, max_audio_rows=60, cfg=cfg)
    network = FakeNetwork(context=context)
    steps, finish = answer(network, plan)
    assert finish == "length"
    assert [step.ids.tolist() for step in steps] == slow_answer(network, plan)[0][: len(steps)]
    assert len(PROMPT[0]) + len(PROMPT[1]) + len(steps) >= context  # the last one is not fed


def test_guidance_null_branch_starts_before_the_marker_and_ends_after_the_audio() -> None:
    network = FakeNetwork(ends=-50.0)
    answer(network, AnswerPlan("text_audio", max_text_tokens=2, max_audio_rows=2, min_audio_rows=2, cfg=3.0))
    # The null branch begins once <|eot|> and <|assistant|> are fed, and <|audio|> goes to both branches.
    assert network.calls == ["feed 2", "feed 1", "feed 3", "split", "feed 1", "feed 1", "join"]


def test_guidance_null_branch_is_dropped_when_text_follows() -> None:
    network = FakeNetwork()
    plan = AnswerPlan("auto", max_text_tokens=1, max_audio_rows=8, cfg=3.0)
    logits = network.logits

    def audio_first(history: Any) -> np.ndarray:
        changed = logits(history)
        changed[0, LAYOUT.audio], changed[0, LAYOUT.eot] = 90, 50 if len(history) > 5 else -90
        return changed

    network.logits = audio_first  # type: ignore[method-assign]
    steps, finish = answer(network, plan)
    assert [step.phase for step in steps] == [
        *("marker", "audio", "audio", "close"),
        *("marker", "marker", "text", "close"),
    ]
    assert network.calls == ["feed 1", "split", "feed 1", "feed 1", "feed 1", "join", "feed 3"]
    assert finish == "length"


def test_nothing_is_computed_after_the_generator_is_closed() -> None:
    network = FakeNetwork(ends=-50.0)
    generator = answer_steps(network, PROMPT, AnswerPlan("audio"))
    for _ in range(5):
        next(generator)
    count = len(network.calls)
    generator.close()
    assert len(network.calls) == count == 4


def test_probabilities_are_given_for_the_ids_chosen_by_the_model() -> None:
    plan = AnswerPlan("text_audio", max_text_tokens=3, min_audio_rows=4, max_audio_rows=9, audio_temperature=1.0)
    steps, _ = answer(FakeNetwork(ends=2.0), plan, probabilities=True)
    for step in steps:
        assert step.probabilities is not None
        stated = ~np.isnan(step.probabilities)
        assert (step.probabilities[stated] > 0).all() and (step.probabilities[stated] <= 1).all()
        chosen = {Kind.AUDIO: LAYOUT.streams, Kind.TEXT: 1}.get(step.phase, int(stated[0]))
        assert stated.tolist() == [True] * chosen + [False] * (LAYOUT.streams - chosen)
    assert answer(FakeNetwork(), plan)[0][0].probabilities is None


def test_same_seed_gives_the_same_answer() -> None:
    def ids(seed: int) -> list[list[int]]:
        plan = AnswerPlan("audio", max_audio_rows=20, min_audio_rows=20, audio_temperature=1.0, seed=seed)
        return [step.ids.tolist() for step in answer(FakeNetwork(), plan)[0]]

    assert ids(1) == ids(1) != ids(2)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nan_logits_raise_an_error(temperature: float, monkeypatch: pytest.MonkeyPatch) -> None:
    network = FakeNetwork()
    nothing = np.full((LAYOUT.streams, LAYOUT.vocabulary), np.nan, np.float32)
    monkeypatch.setattr(network, "logits", lambda history: nothing)
    with pytest.raises(BadInput, match="logits are NaN: values overflow"):
        answer(network, AnswerPlan("audio", audio_temperature=temperature))
