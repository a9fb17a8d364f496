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
from workbench.pipelines.conversation_session import ConversationSession
from workbench.runtimes.gguf import speechlm as on_gguf
from workbench.runtimes.pytorch import speechlm as on_pytorch
from workbench.session.conversation import Answer, AnswerSoFar

ROOT = Path(__file__).resolve().parents[3]
Pair = tuple[ConversationSession, ConversationSession]
SAY = {"role": "user", "content": "say three seven one"}
HEARD = {"role": "user", "content": [{"type": "audio", "audio": noise(1.3)}, {"type": "text", "text": "Repeat it."}]}
ASKED = (SAY, HEARD, {"role": "user", "content": "and now?"}, {"role": "user", "content": HEARD["content"][:1]})
LIMITS: dict[str, Any] = {"max_text_tokens": 6, "min_audio_rows": 12, "max_audio_rows": 18}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Pair]]:
    """Sessions of both forms of a checkpoint, on PyTorch and from a GGUF file."""
    root = tmp_path_factory.mktemp("speechlm")
    made = {"directory": tiny_speechlm(root / "directory"), "release": tiny_espnet_release(root / "release", seed=2)}
    found = {}
    for name, tiny in made.items():
        file = speechlm_file(tiny.directory)
        found[name] = (
            on_pytorch.open_session(tiny.directory, name, Settings()),
            on_gguf.open_session(file, name, Settings(threads=1)),
        )
    yield found
    for pair in found.values():
        for session in pair:
            session.close()


@pytest.fixture
def pair(pairs: dict[str, Pair]) -> Pair:
    return pairs["directory"]


def same(ours: Answer, theirs: Answer) -> None:
    assert (ours.token_ids, ours.text, ours.finish, ours.prompt_rows) == (
        theirs.token_ids,
        theirs.text,
        theirs.finish,
        theirs.prompt_rows,
    )
    assert (ours.streams is None, ours.audio is None) == (theirs.streams is None, theirs.audio is None)
    if ours.streams is not None:
        np.testing.assert_array_equal(ours.streams, theirs.streams)
    if ours.audio is not None:
        np.testing.assert_allclose(ours.audio, theirs.audio, atol=1e-4)


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
    for asked in ASKED:
        messages.append(asked)
        theirs, ours = (session.converse(messages, **LIMITS, **options) for session in pairs[form])
        same(ours, theirs)
        messages.append(ours.message())
    assert len(messages) == 8 and ours.runtime == "gguf"


def test_stream_events_add_up_to_the_answer_and_a_stopped_stream_has_no_effect(pair: Pair) -> None:
    session = pair[1]
    options: dict[str, Any] = {"modalities": "text_audio", "min_audio_rows": 60, "max_audio_rows": 60, "cfg": 2.0}
    made = AnswerSoFar("it", "gguf")
    *events, answer = session.converse_stream([HEARD], **options)
    for event in events:
        made.add(event)
    assert isinstance(answer, Answer)
    np.testing.assert_array_equal(made.answer().streams, answer.streams)
    np.testing.assert_allclose(made.answer().audio, answer.audio, atol=1e-6)
    stream = session.converse_stream([HEARD], **options)
    for _ in range(30):
        next(stream)
    stream.close()
    same(session.converse([HEARD], **options), answer)


def test_stages_have_the_names_and_values_of_pytorch(pair: Pair) -> None:
    theirs, ours = (session.trace([SAY, HEARD], temperature=0, modalities="audio", **LIMITS) for session in pair)
    assert list(ours) == list(theirs)
    for stage in theirs:
        if theirs[stage].dtype.kind == "f":
            np.testing.assert_allclose(ours[stage], theirs[stage], atol=2e-3, rtol=1e-3, err_msg=stage)
        else:
            np.testing.assert_array_equal(ours[stage], theirs[stage], err_msg=stage)
    assert {"tower.output", "adaptor.output", "llm.norm", "codec.logits", "codec.rows", "codec.audio"} <= set(ours)


def test_bad_input_raises_one_line_error_and_the_session_stays_usable(pair: Pair) -> None:
    session = pair[1]
    with pytest.raises(BadInput, match="the conversation is "):
        session.converse("x" * 5000)
    silent = {"type": "audio", "audio": (np.zeros(8000, np.float32), 16000)}
    with pytest.raises(BadInput, match=r"message 1, part 1: the recording of 0\.5 s is silent"):
        session.converse([{"role": "user", "content": [silent]}])
    assert session.converse([SAY], modalities="text", max_text_tokens=2).token_ids


def test_closed_session_raises_one_line_error(tmp_path: Path) -> None:
    session = on_gguf.open_session(speechlm_file(tiny_speechlm(tmp_path / "it").directory), "it", Settings(threads=1))
    session.close()
    with pytest.raises(BadInput, match="the session of it is closed"):
        session.converse([SAY])


PROGRAM = """
import sys
from pathlib import Path
import numpy as np
from workbench.core.settings import SessionSpec, Settings
from workbench.isolation.loader import open_here
session = open_here(SessionSpec("it", "speechlm", "gguf", Path(sys.argv[1]), Settings(threads=1)))
heard = {"type": "audio", "audio": (np.sin(np.arange(16000) / 9).astype(np.float32), 16000)}
answer = session.converse([{"role": "user", "content": [heard]}], modalities="text_audio", min_audio_rows=20)
assert answer.streams is not None and answer.audio is not None
session.trace([{"role": "user", "content": [heard]}], modalities="audio", max_audio_rows=9)
print(sorted({"torch", "gguf", "vllm"} & set(sys.modules)))
"""


@pytest.mark.parametrize("write", [tiny_speechlm, tiny_espnet_release])
def test_a_session_runs_without_torch(write: Any, tmp_path: Path) -> None:
    file = speechlm_file(write(tmp_path / "it").directory)
    command = [sys.executable, "-c", PROGRAM, str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr[-2000:]
