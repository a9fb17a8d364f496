"""Choosing ids for several answers in one batch gives each answer the ids it gets alone."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.speech_layouts import LAYOUT
from workbench.speech.choosing import PendingPosition, chosen
from workbench.speech.masks import allowed, needed_logits
from workbench.speech.phases import Kind, Phase
from workbench.speech.plan import AnswerPlan


@pytest.mark.parametrize("temperature, top_k", [(0.0, 0), (0.9, 0), (0.9, 3)])
@pytest.mark.parametrize("phase", [Phase(Kind.MARKER), Phase(Kind.TEXT, closes=True), Phase(Kind.AUDIO, closes=True)])
def test_batched_choice_equals_the_choice_for_each_answer_alone(phase: Phase, temperature: float, top_k: int) -> None:
    draw = np.random.default_rng(5)
    count = 40
    main = draw.normal(size=(count, len(allowed(needed_logits(phase, LAYOUT).main)))).astype(np.float32)
    shape = count, LAYOUT.streams - 1, LAYOUT.layer_size
    codec = draw.normal(size=shape).astype(np.float32) if phase.kind is Kind.AUDIO else None
    due = [
        PendingPosition(
            phase,
            AnswerPlan(
                text_temperature=temperature,
                audio_temperature=temperature,
                text_top_k=top_k,
                audio_top_k=top_k,
                seed=n // 3,
            ),
            n % 7,
            probabilities=bool(n % 2),
        )
        for n in range(count)
    ]
    assert len({each.manner for each in due}) == 1
    batched = chosen(main, codec, due, LAYOUT)
    for n, step in enumerate(batched):
        [own] = chosen(main[n : n + 1], None if codec is None else codec[n : n + 1], [due[n]], LAYOUT)
        assert step.ids.tolist() == own.ids.tolist() and step.phase is own.phase
        assert (step.probabilities is not None) == due[n].probabilities
        if step.probabilities is not None and own.probabilities is not None:
            np.testing.assert_array_equal(step.probabilities, own.probabilities)
    assert len({tuple(step.ids.tolist()) for step in batched}) > 1
