"""Encoding and decoding of the stream data in a vLLM request, and refusal of invalid client data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.speech_layouts import LAYOUT
from workbench.core.errors import BadInput
from workbench.runtimes.vllm.streams.stream_request import (
    ARGUMENT,
    StreamRequest,
    columns,
    position,
    read,
    spans_of,
    width,
)
from workbench.speech.choosing import PendingPosition, chosen, forced
from workbench.speech.masks import allowed, needed_logits
from workbench.speech.phases import Kind, Phase
from workbench.speech.plan import AnswerPlan


@given(st.lists(st.booleans(), max_size=12), st.integers(0, 3))
def test_prompt_rows_and_options_survive_encoding_and_decoding(is_audio: list[bool], start: int) -> None:
    rows = np.array(
        [LAYOUT.pads + n % 5 if is_audio_row else LAYOUT.row(n) for n, is_audio_row in enumerate(is_audio)]
    ).reshape(-1, 5)
    request = StreamRequest(AnswerPlan("audio", seed=7), spans_of(rows, start, LAYOUT), True, True)
    decoded = read({ARGUMENT: request.extra_entry(), "other": 1}, LAYOUT, start + len(rows))
    assert decoded is not None and decoded.plan == request.plan and decoded.probabilities and decoded.evidence
    decoded_rows = {
        first_position + n: row.tolist() for first_position, span in decoded.spans for n, row in enumerate(span)
    }
    assert decoded_rows == {start + n: row.tolist() for n, row in enumerate(rows) if is_audio[n]}
    assert len(decoded.spans) == sum(
        current and not previous for previous, current in zip([False, *is_audio], is_audio)
    )


@pytest.mark.parametrize(
    "data",
    [
        "text",
        7,
        [],
        {},
        {"plan": {"modalities": "smell"}, "spans": [], "probabilities": False, "evidence": False},
        {"plan": {"modality": "text"}, "spans": [], "probabilities": False, "evidence": False},
        {"plan": {"cfg": 3.0}, "spans": [], "probabilities": False, "evidence": False},
        {"plan": {}, "spans": [], "probabilities": False, "evidence": False, "pair": "alone without guidance"},
        {"plan": {"cfg": 3.0}, "spans": [], "probabilities": False, "evidence": False, "pair": "p", "begun": [1]},
        {"plan": {"cfg": 3.0}, "spans": [], "probabilities": False, "evidence": False, "pair": "p", "begun": "text"},
        {"plan": {}, "spans": [[0, 2, b"short"]], "probabilities": False, "evidence": False},
        {"plan": {}, "spans": [[0, 1, "text"]], "probabilities": False, "evidence": False},
        {"plan": {}, "spans": [[9, 1, bytes(20)]], "probabilities": False, "evidence": False},
        {"plan": {}, "spans": [[-1, 1, bytes(20)]], "probabilities": False, "evidence": False},
        {"plan": {}, "spans": [[0, 1, b"\xff" * 20]], "probabilities": False, "evidence": False},
        {"plan": {}, "spans": [], "probabilities": False},
        {"plan": {}, "spans": 3, "probabilities": False, "evidence": False},
    ],
)
def test_invalid_request_data_is_refused(data: Any) -> None:
    with pytest.raises(BadInput):
        read({ARGUMENT: data}, LAYOUT, 9)
    assert read({}, LAYOUT, 9) is None and read(None, LAYOUT, 9) is None


@pytest.mark.parametrize("evidence", [True, False])
@pytest.mark.parametrize("phase", [Phase(Kind.AUDIO), Phase(Kind.TEXT, closes=True), Phase(Kind.MARKER, 7)])
def test_step_survives_encoding_into_vllm_logprob_columns(phase: Phase, evidence: bool) -> None:
    plan = AnswerPlan(text_temperature=0.5, audio_temperature=0.5, audio_top_k=3)
    if phase.forced is not None:
        step = forced(phase, LAYOUT, True, evidence)
    else:
        draw = np.random.default_rng(0)
        main = draw.normal(size=(1, len(allowed(needed_logits(phase, LAYOUT).main)))).astype(np.float32)
        codec = draw.normal(size=(1, LAYOUT.streams - 1, LAYOUT.layer_size)).astype(np.float32)
        [step] = chosen(
            main, codec if phase.kind is Kind.AUDIO else None, [PendingPosition(phase, plan, 3, True, evidence)], LAYOUT
        )
    ids, numbers = columns(step, LAYOUT)
    assert len(set(ids.tolist())) == len(ids) and ids.min() >= 0
    assert ids[0] == step.id and len(ids) == len(numbers) == width(LAYOUT, evidence)
    decoded = position(ids.astype(np.int32), numbers, step.phase, StreamRequest(plan, (), True, evidence), LAYOUT)
    assert decoded.ids.tolist() == step.ids.tolist() and decoded.phase is step.phase
    np.testing.assert_allclose(decoded.probabilities, step.probabilities, rtol=1e-6)
    assert (decoded.evidence is not None) == evidence
    for name in ("alternatives", "logprobs", "temperatures", "candidates", "rooms") if evidence else ():
        np.testing.assert_allclose(getattr(decoded.evidence, name), getattr(step.evidence, name), rtol=1e-6)
