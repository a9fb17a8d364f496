"""Conversations with a model that reads and writes text: pieces, answers, and what is refused."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from workbench.core.errors import BadInput
from workbench.core.options import ConversingOptions, build_options, conversation_options_class, option_specs
from workbench.families import FAMILIES
from workbench.families.language.causal_lm import CausalLmOptions
from workbench.pipelines.text.text_conversation import text_answer, text_messages
from workbench.session.conversation import Answer, AnswerStart
from workbench.session.messages import check_messages
from workbench.session.values import Generation, Piece

OPTIONS: Any = conversation_options_class(CausalLmOptions)
SOUND = {"role": "user", "content": [{"type": "text", "text": "what?"}, {"type": "audio", "audio": "a.wav"}]}


def test_conversation_options_extend_the_family_options() -> None:
    assert conversation_options_class(CausalLmOptions) is OPTIONS and conversation_options_class(OPTIONS) is OPTIONS
    names = {spec.name for spec in option_specs(OPTIONS)}
    assert names == {spec.name for spec in option_specs(CausalLmOptions)} | {"modalities"}
    options = build_options(OPTIONS, {"modalities": "text", "top_k": 3}, "m")
    assert isinstance(options, CausalLmOptions) and isinstance(options, ConversingOptions)
    assert {name for name, family in FAMILIES.items() if family.chat_options_class} >= {
        "causal_lm",
        "funasr_nano",
        "fireredasr",
    }
    assert FAMILIES["sensevoice"].chat_options_class is None


def test_message_parts_are_joined_to_one_text_per_role() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    messages = [{"role": "system", "content": "brief"}, {"role": "user", "content": parts}]
    expected = [{"role": "system", "content": "brief"}, {"role": "user", "content": "one\ntwo"}]
    assert text_messages(messages, OPTIONS(), "m") == expected
    assert text_messages(check_messages(messages), OPTIONS(modalities="text"), "m") == expected


@pytest.mark.parametrize("modalities", ["audio", "text_audio"])
def test_audio_answer_is_refused(modalities: str) -> None:
    with pytest.raises(BadInput) as raised:
        text_messages("hello", OPTIONS(modalities=modalities), "m")
    assert str(raised.value) == f"option modalities is {modalities}, and m answers in text; expected text or auto"


def test_audio_in_a_message_is_refused() -> None:
    with pytest.raises(BadInput) as raised:
        text_messages([{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}, SOUND], OPTIONS(), "m")
    assert str(raised.value) == ("message 3, part 2: it is sound, and m reads text only; expected a part of type text")


def test_answer_is_the_last_event_and_has_the_settings() -> None:
    closed = False

    def generate() -> Generator[Piece | Generation, None, None]:
        nonlocal closed
        try:
            yield Piece("two", (5,))
            yield Generation("m", "r", "two", (5, 0), 7, "stop", 1.0, 0.5, 0.25, notes=("a note",))
        finally:
            closed = True

    start_event, piece, answer = text_answer(generate(), OPTIONS(top_k=3))
    assert isinstance(start_event, AnswerStart) and start_event.settings["top_k"] == 3
    assert piece == Piece("two", (5,)) and isinstance(answer, Answer) and answer.audio is None
    assert (answer.text, answer.token_ids, answer.prompt_rows, answer.finish) == ("two", (5, 0), 7, "stop")
    assert (answer.compute_seconds, answer.first_text_seconds, answer.notes) == (0.5, 0.25, ("a note",))
    assert answer.settings["top_k"] == 3 and answer.settings["modalities"] == "auto"
    stream = text_answer(generate(), OPTIONS())
    next(stream)
    next(stream)
    closed = False
    stream.close()
    assert closed
