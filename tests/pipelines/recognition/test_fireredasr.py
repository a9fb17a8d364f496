"""FireRedASR's audio encoder with a fake network: network input, decoding limits and file checks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.tiny_checkpoints import noise
from tests.support.tiny_fireredasr import ARGUMENTS, ENCODER_ARGUMENTS, write_language, write_statistics
from workbench.audio.cmvn import read_cmvn_ark
from workbench.core.errors import BadInput
from workbench.families.speech_llm.fireredasr import (
    CMVN,
    LANGUAGE_DIRECTORY,
    FireRedAsrModel,
    FireRedAsrOptions,
    check_files,
    read_fireredasr,
)
from workbench.pipelines.recognition.fireredasr import FireRedAudioEncoder
from workbench.trace.recorder import Recorder

ELSEWHERE = Path("it.gguf")


class FakeNetwork:
    """Records its arguments."""

    def embed_audio(self, features: Sequence[np.ndarray], valid: Sequence[int], recorder: Recorder | None) -> Any:
        self.features, self.valid = features, valid
        return "speech"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> FireRedAsrModel:
    """The model of a directory without the two torch files."""
    directory = tmp_path_factory.mktemp("tiny")
    write_language(directory / LANGUAGE_DIRECTORY)
    write_statistics(directory / CMVN)
    return read_fireredasr(directory, ARGUMENTS, ENCODER_ARGUMENTS, ELSEWHERE)


@pytest.fixture
def encoder(model: FireRedAsrModel) -> FireRedAudioEncoder:
    return FireRedAudioEncoder(model, read_cmvn_ark(model.cmvn_file), FakeNetwork())


def fake_network(encoder: FireRedAudioEncoder) -> FakeNetwork:
    assert isinstance(encoder.network, FakeNetwork)
    return encoder.network


def test_shortest_recording_gives_one_embedding(encoder: FireRedAudioEncoder) -> None:
    samples = noise(1.0)[0]
    speech, counts = encoder.embeddings([samples[:400], samples], FireRedAsrOptions())
    assert speech == "speech" and counts.tolist() == [1, 12]
    shortest, longest = fake_network(encoder).features
    assert (shortest.shape, longest.shape) == ((8, 80), (98, 80)) and shortest.dtype == np.float32
    assert shortest[0].any() and not shortest[1:].any()
    assert list(fake_network(encoder).valid) == [1, 25]


def test_length_rule_option_overrides_the_checkpoint(encoder: FireRedAudioEncoder) -> None:
    encoder.embeddings([noise(1.0)[0]], FireRedAsrOptions(length_rule="head"))
    assert list(fake_network(encoder).valid) == [23]


def test_max_new_tokens_defaults_to_the_number_of_speech_embeddings(
    encoder: FireRedAudioEncoder, model: FireRedAsrModel
) -> None:
    decoding = encoder.decoding(FireRedAsrOptions(beam_size=3), np.array([4, 7]))
    assert np.asarray(decoding.max_new_tokens).tolist() == [4, 7]
    assert (decoding.stop_ids, decoding.beam_size, decoding.pad_id) == ((model.stop_id,), 3, model.pad_id)
    assert encoder.decoding(FireRedAsrOptions(max_new_tokens=5), np.array([4])).max_new_tokens == 5
    assert encoder.prompt_ids(FireRedAsrOptions()).tolist().count(encoder.placeholder) == 1


def test_error_messages_name_the_file_of_the_arguments(model: FireRedAsrModel) -> None:
    with pytest.raises(BadInput, match=r"args\.n_head in it\.gguf is 0"):
        read_fireredasr(model.directory, ARGUMENTS, {**ENCODER_ARGUMENTS, "n_head": 0}, ELSEWHERE)
    with pytest.raises(BadInput, match=r"args\.encoder_downsample_rate in it\.gguf is 0"):
        read_fireredasr(model.directory, {**ARGUMENTS, "encoder_downsample_rate": 0}, ENCODER_ARGUMENTS, ELSEWHERE)
    with pytest.raises(BadInput, match=r"has no model\.pth\.tar and no asr_encoder\.pth\.tar;"):
        check_files(model.directory)


def test_cmvn_file_is_required_with_weights_elsewhere(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"has no cmvn\.ark; a FireRedASR-LLM checkpoint has cmvn\.ark and a"):
        check_files(tmp_path, ELSEWHERE)
