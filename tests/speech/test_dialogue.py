"""Conversation prompts against an independent implementation with plain lists."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.speech_layouts import LAYOUT
from workbench.core.errors import BadInput
from workbench.speech.delay import delayed
from workbench.speech.dialogue import PromptPart, Recording, Turn, prompt_parts


def text_ids(text: str) -> list[int]:
    return [LAYOUT.text_first + ord(letter) - ord("a") for letter in text]


def row_count(samples: int) -> int:
    return samples // 100


def encode(samples: np.ndarray) -> np.ndarray:
    return np.full((len(samples) // 10, LAYOUT.streams), int(samples[0]))


def expected_positions(turns: list[Turn]) -> list[object]:
    """Returns one entry for each position: its ids, or the recording that covers it."""
    special = {"system": 4, "user": 5, "assistant": 6}
    positions: list[object] = [[1, 0, 0, 0, 0]]
    for number, turn in enumerate(turns):
        marker = 8 if turn.text is None else 7
        positions += [[special[turn.role], 0, 0, 0, 0], [marker, 0, 0, 0, 0]]
        if turn.text is not None:
            positions += [[LAYOUT.text_first + ord(letter) - ord("a"), 0, 0, 0, 0] for letter in turn.text]
        elif turn.rows is not None:
            positions += turn.rows.tolist()
        elif turn.samples is not None and turn.role == "assistant":
            positions += delayed(encode(turn.samples), LAYOUT).tolist()
        elif turn.samples is not None:
            positions += [id(turn.samples)] * (len(turn.samples) // 100)
        same = number + 1 < len(turns) and turns[number + 1].role == turn.role
        positions.append([3 if same else 2, 0, 0, 0, 0])
    return [*positions, [6, 0, 0, 0, 0]]


def flat(parts: list[PromptPart]) -> list[object]:
    items: list[object] = []
    for part in parts:
        items += [id(part.samples)] * part.rows if isinstance(part, Recording) else part.tolist()
    return items


@st.composite
def turns(draw: st.DrawFn) -> Turn:
    role = draw(st.sampled_from(["system", "user", "assistant"]))
    kind = draw(st.sampled_from(["text", "samples", "rows"]))
    if role == "system" or kind == "text":
        return Turn(role, text=draw(st.text("abcdef", max_size=5)))
    if role == "assistant" and kind == "rows":
        frames = draw(st.integers(1, 4))
        return Turn(role, rows=delayed(np.full((frames, LAYOUT.streams), 2), LAYOUT))
    return Turn(role, samples=np.full(draw(st.integers(100, 400)), 3, dtype=np.float32))


@given(st.lists(turns(), max_size=6))
def test_conversation_prompt_matches_the_format_definition(dialogue: list[Turn]) -> None:
    parts = prompt_parts(dialogue, LAYOUT, text_ids, 10**6, row_count, encode)
    assert flat(parts) == expected_positions(dialogue)
    kinds = [isinstance(part, Recording) for part in parts]
    assert all(one or two for one, two in pairwise(kinds))  # adjacent ids form one array
    assert all(part.dtype == np.int64 for part in parts if isinstance(part, np.ndarray))
    length = len(flat(parts))
    prompt_parts(dialogue, LAYOUT, text_ids, length + 1, row_count, encode)
    with pytest.raises(BadInput, match=f"is {length} positions long; expected fewer than {length}"):
        prompt_parts(dialogue, LAYOUT, text_ids, length, row_count, encode)


def test_consecutive_parts_of_one_role_are_separated_by_eot() -> None:
    dialogue = [Turn("user", text="a"), Turn("user", text="b"), Turn("assistant", text="c")]
    ids = [row[0] for row in flat(prompt_parts(dialogue, LAYOUT, text_ids, 99))]  # type: ignore[index]
    assert ids == [1, 5, 7, 12, 3, 5, 7, 13, 2, 6, 7, 14, 2, 6]


def test_earlier_answer_is_inserted_with_its_generated_rows() -> None:
    rows = delayed(np.full((3, LAYOUT.streams), 1), LAYOUT)
    dialogue = [Turn("assistant", text="a"), Turn("assistant", rows=rows)]
    [ids] = prompt_parts(dialogue, LAYOUT, text_ids, 99)
    assert isinstance(ids, np.ndarray)
    assert ids[:, 0].tolist() == [1, 6, 7, 12, 3, 6, 8, *rows[:, 0], 2, 6]
    assert np.array_equal(ids[7:14], rows)


@pytest.mark.parametrize(
    ("turn", "message"),
    [
        (Turn("user", samples=np.zeros(99, np.float32), where="message 1, part 2"), "message 1, part 2 has 99 samples"),
        (Turn("user"), "has neither text nor audio"),
        (Turn("assistant", rows=np.zeros((2, 5), int)), "the streams of the audio have the id 0 in row 1, stream 0"),
        (Turn("tool", text="a"), "the role is 'tool'; expected one of system, user, assistant"),
    ],
)
def test_invalid_message_parts_are_refused(turn: Turn, message: str) -> None:
    with pytest.raises(BadInput, match=re.escape(message)):
        prompt_parts([turn], LAYOUT, text_ids, 99, row_count, encode)


def test_audio_without_encoder_or_codec_is_refused() -> None:
    samples = np.zeros(400, np.float32)
    with pytest.raises(BadInput, match="the model has no audio encoder"):
        prompt_parts([Turn("user", samples=samples)], LAYOUT, text_ids, 99)
    with pytest.raises(BadInput, match="the model has no codec"):
        prompt_parts([Turn("assistant", samples=samples)], LAYOUT, text_ids, 99, row_count)
