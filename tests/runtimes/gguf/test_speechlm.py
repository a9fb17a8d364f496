"""A SpeechLM session of one GGUF file against PyTorch: dialogues in text and speech, events, stages, bad files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.speechlm_gguf import speechlm_file
from tests.support.tiny_checkpoints import noise
from tests.support.tiny_speechlm import tiny_espnet_release, tiny_speechlm
from workbench.core.errors import BadInput
from workbench.core.settings import Settings
from workbench.pipelines.conversation.conversation_session import ConversationSession
from workbench.runtimes.gguf import speechlm as on_gguf
from workbench.runtimes.pytorch import speechlm as on_pytorch
from workbench.session.conversation import Answer, AnswerSoFar

ROOT = Path(__file__).resolve().parents[3]
Pair = tuple[ConversationSession, ConversationSession]
TEXT_MESSAGE = {"role": "user", "content": "say three seven one"}
AUDIO_MESSAGE = {
    "role": "user",
    "content": [{"type": "audio", "audio": noise(1.3)}, {"type": "text", "text": "Repeat it."}],
}
USER_MESSAGES = (
    TEXT_MESSAGE,
    AUDIO_MESSAGE,
    {"role": "user", "content": "and now?"},
    {"role": "user", "content": AUDIO_MESSAGE["content"][:1]},
)
LIMITS: dict[str, Any] = {"max_text_tokens": 6, "min_audio_rows": 12, "max_audio_rows": 18}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Pair]]:
    """Sessions of both forms of a checkpoint, on PyTorch and from a GGUF file."""
    root = tmp_path_factory.mktemp("speechlm")
    checkpoints = {
        "directory": tiny_speechlm(root / "directory"),
        "release": tiny_espnet_release(root / "release", seed=2),
    }
    sessions = {}
    for name, checkpoint in checkpoints.items():
        file = speechlm_file(checkpoint.directory)
        sessions[name] = (
            on_pytorch.open_session(checkpoint.directory, name, Settings()),
            on_gguf.open_session(file, name, Settings(threads=1)),
        )
    yield sessions
    for pair in sessions.values():
        for session in pair:
            session.close()


@pytest.fixture
def pair(pairs: dict[str, Pair]) -> Pair:
    return pairs["directory"]


def assert_same(answer: Answer, expected: Answer) -> None:
    assert (answer.token_ids, answer.text, answer.finish, answer.prompt_rows) == (
        expected.token_ids,
        expected.text,
        expected.finish,
        expected.prompt_rows,
    )
    assert (answer.streams is None, answer.audio is None) == (expected.streams is None, expected.audio is None)
    if answer.streams is not None:
        np.testing.assert_array_equal(answer.streams, expected.streams)
    if answer.audio is not None:
        np.testing.assert_allclose(answer.audio, expected.audio, atol=1e-4)


@pytest.mark.parametrize("form", ["directory", "release"])
@pytest.mark.parametrize(
    "options",
    [
        {"modalities": "text_audio", "temperature": 0.0},
        {"modalities": "audio", "temperature": 0.0, "cfg": 3.0},
        {"modalities": "auto", "temperature": 0.0},
        {"modalities": "text_audio", "temperature": 0.8, "cfg": 2.0, "seed": 7},
    ],
)
def test_dialogues_of_one_to_four_turns_equal_pytorch(
    form: str, options: dict[str, Any], pairs: dict[str, Pair]
) -> None:
    messages: list[Any] = []
    for message in USER_MESSAGES:
        messages.append(message)
        expected, answer = (session.converse(messages, **LIMITS, **options) for session in pairs[form])
        assert_same(answer, expected)
        messages.append(answer.message())
    assert len(messages) == 8 and answer.runtime == "gguf"


def test_stream_events_add_up_to_the_answer_and_a_stopped_stream_has_no_effect(pair: Pair) -> None:
    session = pair[1]
    options: dict[str, Any] = {"modalities": "text_audio", "min_audio_rows": 60, "max_audio_rows": 60, "cfg": 2.0}
    partial_answer = AnswerSoFar("it", "gguf")
    *events, answer = session.converse_stream([AUDIO_MESSAGE], **options)
    for event in events:
        partial_answer.add(event)
    assert isinstance(answer, Answer)
    np.testing.assert_array_equal(partial_answer.answer().streams, answer.streams)
    np.testing.assert_allclose(partial_answer.answer().audio, answer.audio, atol=1e-6)
    stream = session.converse_stream([AUDIO_MESSAGE], **options)
    for _ in range(30):
        next(stream)
    stream.close()
    assert_same(session.converse([AUDIO_MESSAGE], **options), answer)


def test_stages_have_the_names_and_values_of_pytorch(pair: Pair) -> None:
    expected, trace = (
        session.trace([TEXT_MESSAGE, AUDIO_MESSAGE], temperature=0, modalities="audio", **LIMITS) for session in pair
    )
    assert list(trace) == list(expected)
    for stage in expected:
        if expected[stage].dtype.kind == "f":
            np.testing.assert_allclose(trace[stage], expected[stage], atol=2e-3, rtol=1e-3, err_msg=stage)
        else:
            np.testing.assert_array_equal(trace[stage], expected[stage], err_msg=stage)
    assert {"tower.output", "adaptor.output", "llm.norm", "codec.logits", "codec.rows", "codec.audio"} <= set(trace)


def test_bad_input_raises_one_line_error_and_the_session_stays_usable(pair: Pair) -> None:
    session = pair[1]
    with pytest.raises(BadInput, match="the conversation is "):
        session.converse("x" * 5000)
    silent = {"type": "audio", "audio": (np.zeros(8000, np.float32), 16000)}
    with pytest.raises(BadInput, match=r"message 1, part 1: the recording of 0\.5 s is silent"):
        session.converse([{"role": "user", "content": [silent]}])
    assert session.converse([TEXT_MESSAGE], modalities="text", max_text_tokens=2).token_ids


def test_closed_session_raises_one_line_error(tmp_path: Path) -> None:
    session = on_gguf.open_session(speechlm_file(tiny_speechlm(tmp_path / "it").directory), "it", Settings(threads=1))
    session.close()
    with pytest.raises(BadInput, match="the session of it is closed"):
        session.converse([TEXT_MESSAGE])


PROGRAM = """
import sys
from pathlib import Path
import numpy as np
from workbench.core.settings import SessionSpec, Settings
from workbench.isolation.loader import open_here
session = open_here(SessionSpec("it", "speechlm", "gguf", Path(sys.argv[1]), Settings(threads=1)))
audio = {"type": "audio", "audio": (np.sin(np.arange(16000) / 9).astype(np.float32), 16000)}
answer = session.converse([{"role": "user", "content": [audio]}], modalities="text_audio", min_audio_rows=20)
assert answer.streams is not None and answer.audio is not None
session.trace([{"role": "user", "content": [audio]}], modalities="audio", max_audio_rows=9)
print(sorted({"torch", "gguf", "vllm"} & set(sys.modules)))
"""


@pytest.mark.parametrize("write", [tiny_speechlm, tiny_espnet_release])
def test_a_session_runs_without_torch(write: Any, tmp_path: Path) -> None:
    file = speechlm_file(write(tmp_path / "it").directory)
    command = [sys.executable, "-c", PROGRAM, str(file)]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert process.stdout.strip() == "[]", process.stderr[-2000:]
