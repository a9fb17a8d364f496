"""Fun-ASR-Nano's audio encoder with a fake network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.support.tiny_checkpoints import noise
from tests.support.tiny_funasr_nano import tiny_funasr_nano
from workbench.families.language.causal_lm import read_causal_lm
from workbench.families.speech_llm.funasr_nano import SPEECH, FunasrNanoModel, FunasrNanoOptions, read_funasr_nano
from workbench.pipelines.recognition.funasr_nano import NanoAudioEncoder
from workbench.trace.recorder import Recorder
from workbench.trace.trace import StageFilter

ELSEWHERE = Path("it.gguf")


class FakeNetwork:
    """The embedding of a frame is its first two values."""

    def embed_audio(self, features: Sequence[np.ndarray], recorder: Recorder | None) -> tuple[np.ndarray, np.ndarray]:
        counts = np.array([len(rows) for rows in features])
        speech = np.zeros((len(features), counts.max(), 2), np.float32)
        for row, rows in zip(speech, features, strict=True):
            row[: len(rows)] = rows[:, :2]
        return speech, counts


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> FunasrNanoModel:
    """The model of a directory without weights."""
    directory = tiny_funasr_nano(tmp_path_factory.mktemp("tiny") / "it")
    (directory / "model.pt").unlink()
    return read_funasr_nano(directory, ELSEWHERE)


def test_every_chunk_is_encoded_and_the_first_is_traced(model: FunasrNanoModel) -> None:
    encoder = NanoAudioEncoder(model, None, FakeNetwork())
    recorder = Recorder(StageFilter("frontend.*"))
    chunks = [noise(seconds)[0] for seconds in (0.5, 1.0)]
    speech, counts = encoder.embeddings(chunks, FunasrNanoOptions(), recorder)
    assert speech.shape == (2, 17, 2) and counts.tolist() == [8, 17]
    assert list(recorder.stages) == ["frontend.fbank", "frontend.lfr", "frontend.features"]
    np.testing.assert_array_equal(recorder.stages["frontend.features"][:, :2], speech[0, :8])


def test_prompt_and_stop_tokens_match_the_family(model: FunasrNanoModel) -> None:
    encoder = NanoAudioEncoder(model, None, FakeNetwork())
    assert (
        encoder.prompt_ids(FunasrNanoOptions()).tolist().count(encoder.placeholder) == 1
        and encoder.placeholder == SPEECH
    )
    decoding = encoder.decoding(FunasrNanoOptions(max_new_tokens=7), np.array([3]))
    assert (decoding.stop_ids, decoding.max_new_tokens) == (model.stop_ids, 7)
    assert encoder.text(" a/sil  b ") == "a b"


def test_language_model_is_read_with_weights_elsewhere(model: FunasrNanoModel) -> None:
    assert model.checkpoint.weights == ELSEWHERE
    language_model = read_causal_lm(model.checkpoint.directory, ELSEWHERE)
    assert language_model.speech is not None and language_model.speech.checkpoint.weights == ELSEWHERE
