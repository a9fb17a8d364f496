"""Conversations with a speech recogniser about one recording: the instruction reaches the prompt; one-line errors."""

from __future__ import annotations

import base64
import io
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from tests.support.tiny_checkpoints import noise
from workbench.core.errors import BadInput
from workbench.core.options import ListeningOptions
from workbench.families.speech_llm.instruction import DEFAULT_INSTRUCTION, Instruction
from workbench.pipelines.conversation.instructed_session import MAY_IGNORE, InstructedSession
from workbench.pipelines.recognition.recogniser import Recognition
from workbench.session.conversation import Answer, AnswerStart
from workbench.session.values import Piece

SOUND = {"type": "audio", "audio": noise(2.0)}
FIVE_MINUTES = {"type": "audio", "audio": (np.ones(5 * 60 * 16000, np.int16), 16000)}


class FakeRecogniser:
    """Writes its instruction and the number of samples letter by letter."""

    dtype = "float32"
    options_class = ListeningOptions

    def __init__(self, ended: bool = True):
        self.ended = ended
        self.instruction = DEFAULT_INSTRUCTION
        self.steps = 0
        self.closed = False

    def instructed(self, instruction: Instruction) -> FakeRecogniser:
        self.instruction = instruction
        return self

    def recognise_stream(
        self, chunks: Sequence[np.ndarray], options: Any
    ) -> Generator[list[str], None, list[Recognition]]:
        [samples] = chunks
        text = f"{self.instruction.system}|{self.instruction.text}|{len(samples)}"
        try:
            for self.steps in range(1, len(text)):
                yield [text[: self.steps]]
        finally:
            self.closed = True
        return [Recognition(text, None, {}, (), (1, 2), ("heard",), self.ended)]

    def recognise(self, samples: np.ndarray, options: Any) -> Recognition:
        raise AssertionError

    def text_of(self, ids: Sequence[int]) -> str:
        raise AssertionError

    def trace(self, *arguments: Any) -> dict[str, np.ndarray]:
        raise AssertionError


def messages_with(*parts: Any, system: str = "") -> list[dict[str, Any]]:
    system_messages = [{"role": "system", "content": system}] if system else []
    return [*system_messages, {"role": "user", "content": list(parts)}]


def test_answer_uses_the_instruction_and_the_recording() -> None:
    session = InstructedSession("m", "r", FakeRecogniser())
    text = {"type": "text", "text": "say it backwards"}
    *pieces, answer = session.converse_stream(messages_with(SOUND, text, system="be brief"))
    assert isinstance(answer, Answer) and answer.text == "be brief|say it backwards|32000"
    assert "".join(piece.text for piece in pieces if isinstance(piece, Piece)) == answer.text
    assert answer.token_ids == (1, 2) and answer.finish == "stop" and answer.audio is None
    assert answer.notes == (MAY_IGNORE, "heard") and answer.settings["modalities"] == "auto"
    assert answer.first_text_seconds is not None and answer.first_text_seconds <= answer.compute_seconds
    assert session.converse(messages_with(SOUND)).notes == ("heard",)
    assert InstructedSession("m", "r", FakeRecogniser(ended=False)).converse(messages_with(SOUND)).finish == "length"


def test_base64_recording_inside_the_message_is_accepted(tmp_path: Path) -> None:
    file = io.BytesIO()
    soundfile.write(file, noise(1.0)[0], 16000, format="WAV", subtype="FLOAT")
    part = {"data": base64.b64encode(file.getvalue()).decode(), "format": "wav"}
    answer = InstructedSession("m", "r", FakeRecogniser()).converse(
        messages_with({"type": "input_audio", "input_audio": part})
    )
    assert answer.text == "||16000"


def test_closing_the_stream_stops_generation_within_one_token() -> None:
    recogniser = FakeRecogniser()
    stream = InstructedSession("m", "r", recogniser).converse_stream(messages_with(SOUND))
    assert isinstance(next(stream), AnswerStart) and recogniser.steps == 0
    next(stream)
    next(stream)
    stream.close()
    assert recogniser.steps == 2 and recogniser.closed


EXPECTED = "expected one message of the user with one recording"
INVALID = {"data": base64.b64encode(b"no sound at all").decode(), "format": "wav"}


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ("hello", f"message 1 has no recordings; {EXPECTED}"),
        (messages_with(SOUND, SOUND), f"message 1 has 2 recordings; {EXPECTED}"),
        (
            [*messages_with(SOUND), {"role": "assistant", "content": "x"}, *messages_with(SOUND)],
            f"the conversation has 3 messages, and m answers about one; {EXPECTED}",
        ),
        (
            messages_with({"type": "audio", "audio": (np.zeros(16000, np.float32), 16000)}, system="x"),
            "message 2, part 1: the recording of 1.0 s is silent; expected sound",
        ),
        (
            messages_with(
                {"type": "text", "text": "x"}, {"type": "audio", "audio": (np.ones(5 * 60 * 16000, np.int16), 16000)}
            ),
            "message 1, part 2: the recording is 300.0 s long; expected at most 30 s",
        ),
        (messages_with({"type": "audio", "audio": "none.wav"}), "message 1, part 1: there is no file none.wav"),
        (
            messages_with({"type": "input_audio", "input_audio": INVALID}),
            "message 1, part 1: recording.wav is not a sound file",
        ),
        (
            messages_with({"type": "audio", "audio": (np.full(100, np.nan, np.float32), 16000)}),
            "message 1, part 1: the array has 100 samples that are not sound",
        ),
    ],
)
def test_invalid_conversation_raises_one_line_error(messages: Any, message: str) -> None:
    with pytest.raises(BadInput) as raised:
        InstructedSession("m", "r", FakeRecogniser()).converse(messages)
    assert str(raised.value).startswith(message) and "\n" not in str(raised.value)


def test_audio_answer_is_refused() -> None:
    with pytest.raises(BadInput, match="modalities is text_audio, and m answers in text"):
        InstructedSession("m", "r", FakeRecogniser()).converse(messages_with(SOUND), modalities="text_audio")
