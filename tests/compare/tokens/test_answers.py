"""Comparison of spoken answers (parallel code streams): first difference, near ties, and error rates against slow
definitions.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.speech_layouts import LAYOUT
from workbench.compare import Comparison, compare, judge
from workbench.compare.tokens.answers import name_of
from workbench.compare.tokens.streams import explain_streams, measure_streams
from workbench.speech.delay import delayed
from workbench.speech.evidence import ALTERNATIVES
from workbench.trace.trace import Trace

STEP = 6  # position of the row that differs: marker, four rows, this one
GAP = 1e-4


def answer(changed: int = 0, gap: float = 1.0, **meta: Any) -> Trace:
    """An answer of a marker, rows of audio and the end. Stream 2 of one row takes its second likeliest id if changed;
    the log-probabilities of the two are `gap` apart, in favour of the chosen one.
    """
    codes = np.random.default_rng(5).integers(0, LAYOUT.codes, (6, LAYOUT.streams))
    rows = delayed(codes, LAYOUT)
    first, other = rows[STEP - 1, 2], rows[STEP - 1, 2] + (1 if codes[STEP - 3, 2] + 1 < LAYOUT.codes else -1)
    chosen, rejected = (other, first) if changed else (first, other)
    rows[STEP - 1, 2] = chosen
    tokens = np.array([LAYOUT.audio, *rows[:, 0], LAYOUT.eos])
    ids = np.full((len(tokens), LAYOUT.streams, ALTERNATIVES), -1)
    logprobs = np.full(ids.shape, np.nan, dtype=np.float32)
    ids[1:-1, :, 0], logprobs[1:-1, :, 0] = rows, -0.5
    ids[STEP, 2, :2], logprobs[STEP, 2, :2] = (chosen, rejected), (-0.5, -0.5 - gap)
    stages = {
        "answer.logprobs": logprobs,
        "answer.alternatives": ids,
        "answer.temperatures": np.zeros(ids.shape[:2]),
        "codec.logits": np.random.default_rng(1).normal(0, 3, (2, LAYOUT.streams - 1, LAYOUT.layer_size)),
        "codec.rows": rows,
        "codec.codes": np.maximum(codes + (changed * np.eye(*codes.shape, dtype=int)), 0) % LAYOUT.codes,
        "codec.audio": np.sin(np.arange(20) + changed),
        "tokens": tokens,
        "text": np.array(""),
    }
    return Trace(stages, {"dtype": "float32", "input_digest": "x", "layout": asdict(LAYOUT), **meta})


def compare_answers(reference: Trace, candidate: Trace) -> tuple[Comparison, str]:
    comparison = compare(reference, candidate)
    return comparison, judge(comparison).sentence


def test_answer_that_differs_at_a_near_tie_is_within() -> None:
    comparison, sentence = compare_answers(answer(gap=GAP), answer(1, GAP))
    first = comparison.first_id
    assert first and first.near_tie and (first.position, first.row, first.stream) == (STEP, STEP - 1, 2)
    assert comparison.within and judge(comparison).within
    assert f"The answers differ from row {STEP - 1} of the audio, stream 2 on" in sentence and "a near tie" in sentence
    assert "of stream 2)" in sentence


def test_answer_that_differs_at_a_clear_choice_is_beyond_tolerance() -> None:
    comparison, sentence = compare_answers(answer(gap=1.0), answer(1, 1.0))
    assert comparison.first_id and not comparison.first_id.near_tie and not comparison.within
    assert judge(comparison).faulty_stage == "answer.logprobs" and "not a near tie (margins 1 and 1)" in sentence


def test_cfg_guidance_widens_the_near_tie_margin() -> None:
    gap = 4e-3
    assert not compare_answers(answer(gap=gap), answer(1, gap))[0].within
    guided = {"answer": {"cfg": 3.0}}
    assert compare_answers(answer(gap=gap, **guided), answer(1, gap, **guided))[0].within


def test_different_answer_settings_raise_a_warning() -> None:
    sides = (answer(answer={"cfg": 1.0, "seed": 1}), answer(answer={"cfg": 1.0, "seed": 2}))
    assert "the answers were made with different settings: seed 1 and 2" in compare(*sides).warnings


@pytest.mark.parametrize(
    "layout", [None, {"streams": 5}, {**asdict(LAYOUT), "pad": "0"}, {**asdict(LAYOUT), "pad": True}]
)
def test_invalid_stream_layout_is_not_used(layout: Any) -> None:
    sides = (answer(gap=1.0, layout=layout), answer(1, 1.0, layout=layout))
    assert "code" not in compare_answers(*sides)[1]


def test_codec_rows_without_tokens_are_compared() -> None:
    sides = [Trace({k: v for k, v in each.items() if k == "codec.rows"}, each.meta) for each in (answer(), answer(1))]
    comparison, sentence = compare_answers(*sides)
    assert (
        not comparison.within
        and comparison.first_id is None
        and sentence.startswith("codec.rows is the first stage beyond tolerance")
    )


@given(st.integers(1, 4), st.integers(0, 6), st.integers(0, 6), st.integers(0, 1000))
def test_stream_errors_match_the_slow_definition(streams: int, one: int, other: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    a, b = (draw.integers(0, 2, (rows, streams)) for rows in (one, other))
    cells = [(row, n) for row in range(max(one, other)) for n in range(streams)]
    wrong = [(row, n) for row, n in cells if row >= min(one, other) or a[row, n] != b[row, n]]
    measures = measure_streams(a, b)
    assert measures.errors == len(wrong) and measures.error_rate == len(wrong) / max(len(cells), 1)
    assert (measures.row, measures.stream) == (wrong[0] if wrong else (None, None))


@given(st.lists(st.integers(-3, 3), min_size=3, max_size=3).filter(any), st.integers(0, 99))
def test_delayed_streams_are_named(shifts: list[int], seed: int) -> None:
    ids = np.random.default_rng(seed).integers(0, 1000, (30, 3))
    late = np.stack([np.roll(ids[:, n], shift) for n, shift in enumerate(shifts)], axis=1)[4:-4]
    hint = explain_streams(ids[4:-4], late, None) or ""
    for n, shift in enumerate(shifts):
        if shift:
            assert f"{abs(shift)} row{'s' if abs(shift) > 1 else ''} {'late' if shift > 0 else 'early'}" in hint
            assert str(n) in hint


def test_ids_outside_their_stream_range_are_named() -> None:
    rows = delayed(np.zeros((4, LAYOUT.streams), dtype=np.int64), LAYOUT)
    wrong = rows.copy()
    wrong[3, 2] += LAYOUT.layer_size
    hint = explain_streams(rows, wrong, LAYOUT) or ""
    assert hint == f"1 id does not belong to its stream: {wrong[3, 2]} in row 3, stream 2, which belongs to stream 3"


@pytest.mark.parametrize(
    "number, name",
    [
        (None, "the end"),
        (LAYOUT.assistant, "<|assistant|>"),
        (29, "29"),  # the last id of text
        (30, "the pad of stream 0"),
        (31, "code 0 of stream 0"),
        (35, "code 4 of stream 0"),
        (36, "the pad of stream 1"),
        (59, "code 4 of stream 4"),
        (60, "60"),  # past the vocabulary
    ],
)
def test_ids_are_named_by_their_vocabulary_entry(number: int | None, name: str) -> None:
    assert name_of(number, LAYOUT) == name
    assert name_of(number, None) == ("the end" if number is None else str(number))


def test_a_choice_is_explained_unless_an_earlier_stage_was_wrong() -> None:
    right, lower = answer(), answer()
    lower = Trace({**lower, "answer.logprobs": lower["answer.logprobs"] - np.float32(0.3)}, lower.meta)
    assert compare(right, lower)["answer.logprobs"].hint == "first at row 0 of the audio, stream 0"
    sound = np.random.default_rng(3).standard_normal((9, 4)).astype(np.float32)
    sides = [Trace({"frontend.features": each, **side}, side.meta) for each, side in ((sound, right), (-sound, lower))]
    comparison = compare(*sides)
    assert not comparison.passes(comparison["answer.logprobs"]) and comparison["answer.logprobs"].hint is None
