"""A SpeechLM checkpoint opened by the registry in a worker: answers in text and audio, and refused calls."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support.tiny_speechlm import tiny_espnet_release, tiny_speechlm
from workbench.core.errors import BadInput
from workbench.core.runtimes import RUNTIMES
from workbench.registry.handle import OpenSession
from workbench.registry.registry import Registry
from workbench.session.conversation import Answer, AudioPiece
from workbench.session.values import Piece

SHORT = {"max_text_tokens": 12, "min_audio_rows": 14, "max_audio_rows": 30}


@pytest.fixture(scope="module", params=["directory", "release"])
def session(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenSession]:
    place = tmp_path_factory.mktemp("speechlm") / "it"
    write = tiny_speechlm if request.param == "directory" else tiny_espnet_release
    with Registry() as registry, registry.open(write(place).directory) as speechlm:
        yield speechlm


def test_speechlm_card_has_family_tasks_and_availability(tmp_path: Path) -> None:
    with Registry() as registry:
        card = registry.card(tiny_speechlm(tmp_path / "it").directory)
        assert (card.family, card.tasks) == ("speechlm", ("converse",))
        assert registry.availability(card, "pytorch").ready
        assert registry.availability(card, "gguf").ready
        assert registry.availability(card, "vllm").ready == (RUNTIMES["vllm"].missing() is None)


def test_text_and_audio_are_streamed_as_generated(session: OpenSession) -> None:
    events = list(session.converse_stream("say three", modalities="text_audio", seed=1, **SHORT))
    answer = events[-1]
    assert isinstance(answer, Answer) and answer.streams is not None and answer.audio is not None
    text = "".join(event.text for event in events if isinstance(event, Piece))
    pieces = [event.samples for event in events if isinstance(event, AudioPiece)]
    assert text == answer.text and np.array_equal(np.concatenate(pieces), answer.audio)
    assert 14 <= len(answer.streams) <= 30
    assert len(answer.audio) == 320 * (len(answer.streams) - answer.streams.shape[1] + 1)
    repeated = session.converse("say three", modalities="text_audio", seed=1, **SHORT)
    assert repeated.token_ids == answer.token_ids and np.array_equal(repeated.audio, answer.audio)


def test_spoken_question_is_answered_and_the_answer_returns_to_the_prompt(session: OpenSession) -> None:
    noise = np.random.default_rng(1).normal(0, 0.1, 8000).astype(np.float32)
    question = {"role": "user", "content": [{"type": "audio", "audio": (noise, 16000)}]}
    answer = session.converse([question], modalities="audio", cfg=3.0, **SHORT)
    assert answer.streams is not None
    reply = {"role": "assistant", "content": [{"type": "audio", "streams": answer.streams}]}
    second = session.converse([question, reply, {"role": "user", "content": "again"}], modalities="text", **SHORT)
    assert second.prompt_rows > answer.prompt_rows + len(answer.streams)
    assert second.audio is None and second.text


def test_transcription_and_invalid_options_are_refused(session: OpenSession) -> None:
    with pytest.raises(BadInput, match="answers conversations; to transcribe, open a speech model"):
        session.transcribe("it.wav")
    with pytest.raises(BadInput, match=r"cfg of .* is 0\.5; expected 1 to 20"):
        session.converse("say one", cfg=0.5)
    with pytest.raises(BadInput, match="positions long; expected fewer than 600"):
        session.converse("say one " * 400)
