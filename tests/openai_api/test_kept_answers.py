"""The store of earlier audio answers: expiry times and the memory limit."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.openai_api.kept_answers import OVERHEAD, KeptAnswers, new_audio_id

ROWS = np.arange(40).reshape(10, 4)


def test_stored_answer_is_available_until_it_expires() -> None:
    now = [1000.7]
    answers = KeptAnswers(60, 10_000, lambda: now[0])
    assert answers.keep("a", "one", ROWS) == 1060
    now[0] = 1059.9
    answer = answers.get("a")
    assert answer is not None and answer.text == "one" and answer.expires_at == 1060
    np.testing.assert_array_equal(answer.streams, ROWS)
    now[0] = 1060.0
    assert answers.get("a") is None and len(answers) == 0


def test_answer_without_room_is_not_stored() -> None:
    """Answers that have an expiry time keep their place."""
    now = [0.0]
    answers = KeptAnswers(60, 3 * (OVERHEAD + 160) + 100, lambda: now[0])
    assert [answers.keep(name, "", ROWS) for name in "abcd"] == [60, 60, 60, 0]
    assert [answers.get(name) is not None for name in "abcd"] == [True, True, True, False]
    assert answers.keep("e", "text", None) == 0
    now[0] = 61.0
    assert answers.keep("d", "", ROWS) == 121 and len(answers) == 1


@pytest.mark.parametrize("rows", [None, ROWS[:0]])
def test_answer_without_speech_keeps_its_text(rows: np.ndarray | None) -> None:
    answers = KeptAnswers(60, clock=lambda: 0.0)
    assert answers.keep("a", "one", rows) == 60
    answer = answers.get("a")
    assert answer is not None and (answer.text, answer.streams) == ("one", None)


def test_audio_ids_are_unique() -> None:
    assert len({new_audio_id() for _ in range(100)}) == 100
