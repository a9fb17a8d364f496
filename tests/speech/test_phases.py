"""Phases of an answer: the incremental cursor against a reader of whole answers, and the single rules."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.speech_layouts import LAYOUT, layouts
from workbench.core.errors import BadInput
from workbench.core.options import MODALITIES
from workbench.speech.layout import SpeechLayout
from workbench.speech.masks import allowed, needed_logits
from workbench.speech.phases import Cursor, Kind, Phase, phase_after
from workbench.speech.plan import AnswerPlan

TEXT, CODE = LAYOUT.text_first, LAYOUT.codec_first + 1


def read(ids: list[int], plan: AnswerPlan, layout: SpeechLayout) -> Phase:
    """Returns the next phase, computed from the whole answer."""
    phase = read_segments(ids, plan, layout)
    full = len(ids) == plan.max_tokens and phase.kind is not Kind.END
    return Phase(Kind.END, finish="length") if full else phase


def read_segments(ids: list[int], plan: AnswerPlan, layout: SpeechLayout) -> Phase:
    """Returns the next phase by the limits of the segments, from the answer's last segment."""
    segments: list[list[int]] = [[]]
    for number in ids:
        if number == layout.assistant:
            segments.append([])
        else:
            segments[-1].append(number)
    written_markers = [segment[0] for segment in segments[:-1]]
    last = segments[-1]
    both = [layout.text, layout.audio]
    due = {"text": both[:1], "audio": both[1:], "text_audio": both, "auto": both}[plan.modalities]
    remaining = [marker for marker in due if marker not in written_markers]
    if not last:
        return Phase(Kind.MARKER, None if plan.modalities == "auto" and len(remaining) == 2 else remaining[0])
    marker, body = last[0], last[1:]
    text = marker == layout.text
    least, most = (plan.min_text_tokens, plan.max_text_tokens) if text else (plan.min_audio_rows, plan.max_audio_rows)
    after = [each for each in remaining if each != marker]
    certain = plan.modalities == "text_audio" and bool(after)
    if body and body[-1] in (layout.eos, layout.eot):
        if certain or (plan.modalities == "auto" and body[-1] == layout.eot and after):
            return Phase(Kind.MARKER, layout.assistant)
        return Phase(Kind.END, finish="length" if len(body) - 1 == most else "stop")
    if len(body) == most:
        return Phase(Kind.CLOSE, layout.eot if certain else layout.eos)
    return Phase(Kind.TEXT if text else Kind.AUDIO, closes=len(body) >= least)


@st.composite
def plans(draw: st.DrawFn) -> AnswerPlan:
    most_text, most_audio = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    return AnswerPlan(
        draw(st.sampled_from(MODALITIES)),
        most_text,
        draw(st.integers(0, most_text)),
        draw(st.integers(0, most_audio)),
        most_audio,
        max_tokens=draw(st.none() | st.integers(1, 14)),
    )


@given(layouts(), plans(), st.randoms(use_true_random=False))
def test_cursor_phase_equals_the_phase_from_reading_the_whole_answer(
    layout: SpeechLayout, plan: AnswerPlan, choices: random.Random
) -> None:
    cursor, ids = Cursor(plan, layout), list[int]()
    while True:
        expected = read(ids, plan, layout)
        assert cursor.phase == expected == phase_after(ids, plan, layout)
        if expected.kind is Kind.END:
            break
        options = (
            [expected.forced] if expected.forced is not None else list(allowed(needed_logits(expected, layout).main))
        )
        ids.append(int(choices.choice(options)))
        cursor.advance(ids[-1])
    assert ids.count(layout.text) <= 1 and ids.count(layout.audio) <= 1
    text = sum(layout.text_first <= number < layout.text_end for number in ids)
    rows = sum(layout.codec_first <= number < layout.codec_end for number in ids)
    assert text <= plan.max_text_tokens and rows <= plan.max_audio_rows
    assert len(ids) <= (plan.max_tokens or len(ids))
    if plan.modalities == "text_audio" and len(ids) != plan.max_tokens:
        assert layout.text in ids and layout.audio in ids and ids[-1] in (layout.eos, layout.eot)


@given(layouts(), plans(), st.data())
def test_illegal_next_id_is_refused(layout: SpeechLayout, plan: AnswerPlan, data: st.DataObject) -> None:
    cursor = Cursor(plan, layout)
    phase = cursor.phase
    legal = {phase.forced} if phase.forced is not None else set(allowed(needed_logits(phase, layout).main))
    wrong = data.draw(st.integers(0, layout.vocabulary - 1).filter(lambda number: number not in legal))
    with pytest.raises(ValueError, match="follows in an answer"):
        cursor.advance(wrong)


def forced_ids(plan: AnswerPlan, *chosen: int) -> tuple[list[int], Phase]:
    """Returns the answer and the next phase if the model chooses these ids at each free choice."""
    cursor, ids, remaining = Cursor(plan, LAYOUT), list[int](), list(chosen)
    while cursor.phase.kind is not Kind.END:
        forced = cursor.phase.forced
        if forced is None:
            if not remaining:
                break
            forced = remaining.pop(0)
        ids.append(forced)
        cursor.advance(forced)
    assert not remaining
    return ids, cursor.phase


def test_text_and_audio_answer_has_both_phases_in_order() -> None:
    plan = AnswerPlan("text_audio")
    for closing in (3, 2):  # after text, <|eos|> also goes on to audio
        ids, phase = forced_ids(plan, TEXT, closing, CODE, CODE, 2)
        assert ids == [7, TEXT, closing, 6, 8, CODE, CODE, 2]
        assert phase == Phase(Kind.END, finish="stop")


def test_text_at_its_limit_is_closed_by_eot_before_audio_and_otherwise_by_eos() -> None:
    assert forced_ids(AnswerPlan("text_audio", max_text_tokens=2), TEXT, TEXT)[0] == [7, TEXT, TEXT, 3, 6, 8]
    ids, phase = forced_ids(AnswerPlan("text", max_text_tokens=2), TEXT, TEXT)
    assert (ids, phase.finish) == ([7, TEXT, TEXT, 2], "length")
    ids, phase = forced_ids(AnswerPlan("auto", max_text_tokens=1), 7, TEXT)
    assert (ids, phase.finish) == ([7, TEXT, 2], "length")


def test_audio_at_its_limit_is_closed_by_eos() -> None:
    ids, phase = forced_ids(AnswerPlan("audio", max_audio_rows=3), CODE, CODE, CODE)
    assert (ids, phase.finish) == ([8, CODE, CODE, CODE, 2], "length")
    ids, phase = forced_ids(AnswerPlan("text_audio", max_audio_rows=1), TEXT, 3, CODE)
    assert (ids[-1], phase.finish) == (2, "length")


def test_a_segment_may_close_once_it_has_reached_its_minimum() -> None:
    plan = AnswerPlan("audio", min_audio_rows=2)
    assert [forced_ids(plan, *[CODE] * count)[1].closes for count in range(4)] == [False, False, True, True]
    assert [forced_ids(AnswerPlan("text"), *[TEXT] * count)[1].closes for count in range(3)] == [False, True, True]


def test_auto_plan_lets_the_model_choose_modality_and_continuation() -> None:
    plan = AnswerPlan("auto")
    assert forced_ids(plan)[1] == Phase(Kind.MARKER)
    assert forced_ids(plan, 7, TEXT, 2)[1].finish == "stop"
    assert forced_ids(plan, 7, TEXT, 3)[0] == [7, TEXT, 3, 6, 8]  # after <|eot|> only audio remains
    assert forced_ids(plan, 8, CODE, 3)[0] == [8, CODE, 3, 6, 7]
    assert forced_ids(plan, 8, CODE, 3, TEXT, 3)[1].finish == "stop"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"modalities": "speech"}, "modalities is 'speech'; expected one of auto, text, audio, text_audio"),
        ({"cfg": 0.5}, "cfg is 0.5; expected at least 1"),
        ({"cfg": float("nan")}, "cfg is nan; expected at least 1"),
        ({"min_audio_rows": 9, "max_audio_rows": 8}, "min_audio_rows is 9 and max_audio_rows 8"),
        ({"max_tokens": 0}, "max_tokens is 0; expected at least 1"),
        ({"max_text_tokens": 0}, "max_text_tokens is 0 and min_text_tokens 1; expected at least 1 and 0"),
    ],
)
def test_invalid_answer_plan_is_refused(changes: dict[str, float], message: str) -> None:
    with pytest.raises(BadInput) as caught:
        AnswerPlan(**changes)  # type: ignore[arg-type]
    assert message in str(caught.value)
