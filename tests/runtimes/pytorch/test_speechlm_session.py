"""SpeechLM sessions on PyTorch: answers in text and speech, dialogues, traces and invalid input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.tiny_checkpoints import noise
from tests.support.tiny_speechlm import tiny_espnet_release, tiny_speechlm
from workbench.core.errors import BadInput
from workbench.core.settings import Settings
from workbench.pipelines.conversation.conversation_session import ConversationSession
from workbench.runtimes.pytorch.speechlm import open_session
from workbench.session.conversation import Answer, AnswerSoFar

ASK = [{"role": "user", "content": "say three seven one"}]
HUM = {"type": "audio", "audio": (np.full(16000, 0.1, np.float32), 16000)}
SHORT_RECORDING = {"type": "audio", "audio": (np.full(16, 0.1, np.float32), 16000)}
RECORDING = {
    "role": "user",
    "content": [{"type": "audio", "audio": noise(1.3)}, {"type": "text", "text": "Repeat it."}],
}
LONG_OPTIONS: dict[str, Any] = {
    "modalities": "text_audio",
    "max_text_tokens": 6,
    "min_audio_rows": 80,
    "max_audio_rows": 90,
}


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ConversationSession]:
    root = tmp_path_factory.mktemp("speechlm")
    checkpoints = {
        "directory": tiny_speechlm(root / "directory"),
        "release": tiny_espnet_release(root / "release", seed=2),
    }
    return {name: open_session(tiny.directory, name, Settings()) for name, tiny in checkpoints.items()}


@pytest.fixture
def session(sessions: dict[str, ConversationSession]) -> ConversationSession:
    return sessions["directory"]


@pytest.mark.parametrize("form", ["directory", "release"])
@pytest.mark.parametrize("options", [{}, {"cfg": 3.0, "seed": 5}, {"temperature": 0.0}])
def test_streamed_answer_has_repeatable_tokens_and_the_decoded_audio_of_all_rows(
    form: str, options: dict[str, Any], sessions: dict[str, ConversationSession]
) -> None:
    session = sessions[form]
    so_far = AnswerSoFar(form, "pytorch")
    *events, answer = session.converse_stream(
        [*ASK, {"role": "assistant", "content": "x"}, RECORDING], **LONG_OPTIONS, **options
    )
    for event in events:
        so_far.add(event)
    layout = session.network.layout
    assert isinstance(answer, Answer) and answer.streams is not None and len(answer.streams) >= 80
    assert answer.audio is not None and session._codec is not None
    np.testing.assert_array_equal(so_far.answer().streams, answer.streams)
    frames = len(answer.streams) - layout.streams + 1
    first = layout.codec_first + layout.layer_size * np.arange(layout.streams)
    codes = np.stack([answer.streams[n : n + frames, n] - first[n] - 1 for n in range(layout.streams)], axis=1)
    audio = session._codec.decode(np.maximum(codes, 0))
    np.testing.assert_allclose(answer.audio, audio, atol=1e-5)
    assert so_far.answer().token_ids == answer.token_ids
    settings = answer.settings
    repeated = session.converse([*ASK, {"role": "assistant", "content": "x"}, RECORDING], **settings)
    assert repeated.token_ids == answer.token_ids
    np.testing.assert_array_equal(repeated.streams, answer.streams)


def test_dialogue_prompt_contains_the_token_rows_of_the_earlier_answer(session: ConversationSession) -> None:
    first = session.converse(ASK, **LONG_OPTIONS)
    assert first.streams is not None
    second = session.converse([*ASK, first.message(), RECORDING], modalities="text", max_text_tokens=3)
    without = session.converse([*ASK, {"role": "assistant", "content": first.text}, RECORDING], modalities="text")
    assert second.prompt_rows == without.prompt_rows + 3 + len(first.streams)


def test_conversation_trace_agrees_with_the_answer(session: ConversationSession, tmp_path: Path) -> None:
    trace = session.trace([RECORDING], out=tmp_path / "t.safetensors", **LONG_OPTIONS)
    answer = session.converse([RECORDING], **LONG_OPTIONS)
    for stage in ("tower.output", "adaptor.output", "llm.embeddings", "llm.norm", "logits", "codec.logits"):
        assert len(trace[stage])
    assert len(trace["logits"]) == answer.prompt_rows
    np.testing.assert_array_equal(trace["codec.rows"], answer.streams)
    np.testing.assert_allclose(trace["codec.audio"], answer.audio, atol=1e-5)
    assert trace["codec.latents"].shape[0] == trace["codec.codes"].shape[0] == len(trace["codec.rows"]) - 4
    assert tuple(trace["tokens"].tolist()) == answer.token_ids and str(trace["text"]) == answer.text
    assert list(session.trace("hello", stages="llm.norm")) == ["llm.norm"]


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ("x" * 5000, "the conversation is "),
        (
            [{"role": "user", "content": [{"type": "audio", "audio": (np.zeros(8000, np.float32), 16000)}]}],
            "message 1, part 1: the recording of 0.5 s is silent",
        ),
        (
            [{"role": "user", "content": [{"type": "audio", "audio": noise(300.0)}]}],
            "message 1, part 1, a recording of 300.0 s, needs 3750 positions, and the context of the model has 600 for",
        ),
        (
            [{"role": "user", "content": [SHORT_RECORDING]}],
            "message 1, part 1 has 16 samples",
        ),
        (
            [{"role": "assistant", "content": [{"type": "audio", "audio": noise(0.01)}]}, *ASK],
            "message 1, part 1: the speech has 160 samples at 16000 Hz; expected at least 320",
        ),
        (
            [*ASK, {"role": "user", "content": [{"type": "text", "text": "x"}, HUM]}],
            "message 2, part 2: the recording is silent: all its samples are equal",
        ),
        (
            [{"role": "user", "content": [{"type": "audio", "audio": noise(0.0125)}]}],
            "message 1, part 1: the recording has 200 samples at 16000 Hz; expected mono and at least 201",
        ),
    ],
)
def test_invalid_messages_raise_an_error_and_the_session_stays_usable(
    messages: Any, message: str, session: ConversationSession
) -> None:
    with pytest.raises(BadInput) as raised:
        session.converse(messages)
    assert str(raised.value).startswith(message)
    assert session.converse(ASK, modalities="text", max_text_tokens=2).token_ids
