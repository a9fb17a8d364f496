"""Evidence for chosen ids against plain definitions: likeliest ids, log-probabilities, temperatures and margins."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.support.speech_layouts import LAYOUT, FakeNetwork
from workbench.speech.evidence import ALTERNATIVES, Evidence
from workbench.speech.generate import Step, answer_steps
from workbench.speech.phases import Kind
from workbench.speech.plan import AnswerPlan
from workbench.speech.sampling import draw

ROWS = st.lists(st.lists(st.floats(-4, 4, width=32), min_size=6, max_size=6, unique=True), min_size=1, max_size=4)


def answer_of(plan: AnswerPlan) -> list[Step]:
    return list(answer_steps(FakeNetwork(), [np.array([LAYOUT.row(LAYOUT.assistant)])], plan, evidence=True))


@given(ROWS, st.floats(0.05, 8), st.integers(0, 6), st.floats(0, 0.999))
def test_temperature_and_candidate_count_are_recovered_from_the_draw(
    rows: list[list[float]], temperature: float, top_k: int, number: float
) -> None:
    drawing = draw(np.array(rows, dtype=np.float32), temperature, top_k, np.full(len(rows), number))
    assert drawing.candidates.tolist() == [top_k or 6] * len(rows)
    for row, recovered in zip(rows, drawing.temperatures):
        if top_k == 1:
            assert math.isnan(recovered)
        else:
            gap = np.float64(max(row)) - sorted(row)[-2]
            assert math.isnan(recovered) or recovered == pytest.approx(temperature, rel=1e-3 if gap < 1e-6 else 1e-6)


@given(ROWS, st.floats(0.3, 3), st.integers(2, 6), st.floats(0.001, 0.999))
def test_draw_margin_is_the_exact_range_with_the_same_choice(
    rows: list[list[float]], temperature: float, top_k: int, number: float
) -> None:
    logits = np.array(rows, dtype=np.float32)
    drawing = draw(logits, temperature, top_k, np.full(len(rows), number))
    for row, room in enumerate(drawing.rooms):
        assume(room > 1e-6)
        inside, outside = room * (1 - 1e-6), room + 1e-9
        at = [
            draw(logits, temperature, top_k, np.full(len(rows), number + by)).columns[row] for by in (-inside, inside)
        ]
        assert at == [drawing.columns[row]] * 2
        beyond = [number + by for by in (-outside, outside) if 0 < number + by < 1]
        if beyond and room < 1:
            others = {int(draw(logits, temperature, top_k, np.full(len(rows), each)).columns[row]) for each in beyond}
            assert others - {int(drawing.columns[row])}


def test_greedy_choice_has_no_draw_evidence() -> None:
    drawing = draw(np.array([[0.0, 1.0]], dtype=np.float32), 0.0, 0, None)
    assert (drawing.temperatures.tolist(), drawing.candidates.tolist()) == ([0.0], [1]) and np.isnan(
        drawing.rooms
    ).all()


@pytest.mark.parametrize("cfg", [1.0, 3.0])
@pytest.mark.parametrize("seed", range(3))
def test_alternatives_are_the_likeliest_allowed_ids(seed: int, cfg: float) -> None:
    plan = AnswerPlan(
        "text_audio",
        max_text_tokens=6,
        max_audio_rows=12,
        text_temperature=0.7,
        audio_temperature=1.3,
        audio_top_k=4,
        cfg=cfg,
        seed=seed,
    )
    network, steps = FakeNetwork(), answer_of(plan)
    fed = [tuple(LAYOUT.row(LAYOUT.assistant).tolist())]
    null: list[tuple[int, ...]] = []
    for step in steps:
        evidence = step.evidence
        assert evidence is not None
        if step.phase is Kind.TEXT:
            allowed = {0: [*range(LAYOUT.text_first, LAYOUT.text_end), LAYOUT.eos, LAYOUT.eot]}
            allowed = allowed if len(fed) > 2 else {0: allowed[0][:-2]}
        elif step.phase is Kind.AUDIO:
            allowed = {stream: list(range(*LAYOUT.interval(stream))) for stream in range(LAYOUT.streams)}
            allowed[0] += [LAYOUT.eos, LAYOUT.eot] if np.isin(fed[-1][0], range(*LAYOUT.interval(0))) else []
        else:
            allowed = {}
        logits = network.logits(fed)
        if step.phase is Kind.AUDIO:
            logits = np.float32(cfg) * logits + np.float32(1 - cfg) * network.logits(null) if cfg > 1 else logits
        for stream in range(LAYOUT.streams):
            if step.phase is Kind.CLOSE:
                continue
            if stream not in allowed:
                assert (evidence.alternatives[stream] == -1).all() and np.isnan(evidence.logprobs[stream]).all()
                assert evidence.temperatures[stream] == evidence.candidates[stream] == 0
                continue
            scores = {number: float(logits[stream, number]) for number in allowed[stream]}
            total = math.log(sum(map(math.exp, scores.values())))
            order = sorted(scores, key=lambda number: (-scores[number], number))[:ALTERNATIVES]
            assert evidence.alternatives[stream, : len(order)].tolist() == order
            expected = [scores[number] - total for number in order]
            np.testing.assert_allclose(evidence.logprobs[stream, : len(order)], expected, atol=1e-4)
            audio = step.phase is Kind.AUDIO
            assert evidence.temperatures[stream] == pytest.approx(1.3 if audio else 0.7)
            assert evidence.candidates[stream] == (4 if audio else len(scores))
        fed.append(tuple(step.ids.tolist()))
        null.append(fed[-1])
        if step.phase is Kind.MARKER and step.id == LAYOUT.audio:
            null = [*([(0,) * LAYOUT.streams] * (len(fed) - 1)), fed[-1]]


def test_evidence_does_not_change_answers_and_is_given_only_on_request() -> None:
    plan = AnswerPlan("text_audio", max_text_tokens=5, max_audio_rows=9, text_temperature=1.0, audio_temperature=1.0)
    prompt = [np.array([LAYOUT.row(LAYOUT.assistant)])]
    plain = list(answer_steps(FakeNetwork(), prompt, plan))
    assert [step.ids.tolist() for step in plain] == [step.ids.tolist() for step in answer_of(plan)]
    assert all(step.evidence is None for step in plain)
    assert Evidence.nothing(3).alternatives.shape == (3, ALTERNATIVES)
