"""FireRedASR-LLM on PyTorch: checkpoints in the published file format, batches, traces, and damaged files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.tiny_checkpoints import noise
from tests.support.tiny_fireredasr import (
    HIDDEN,
    statistics,
    tiny_fireredasr,
)
from workbench.core.errors import BadInput
from workbench.core.settings import SessionSpec, Settings
from workbench.isolation.loader import open_here
from workbench.pipelines.recognition.speech_session import SpeechSession
from workbench.runtimes.pytorch.fireredasr import open_session
from workbench.session.values import Partial, Transcript

SECONDS = (1.0, 20.0, 3.3, 7.7, 12.34, 0.02, 0.1)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_fireredasr(tmp_path_factory.mktemp("tiny") / "firered")


@pytest.fixture(scope="module")
def session(checkpoint: Path) -> SpeechSession:
    instance = open_here(SessionSpec("tiny", "fireredasr", "pytorch", checkpoint))
    assert isinstance(instance, SpeechSession)
    return instance


# Transcription ----------------------------------------------------------------------------------------------------


def test_transcript_depends_on_the_recording_and_is_repeatable(session: SpeechSession) -> None:
    first, second = (session.transcribe(noise(4, seed=seed)) for seed in (1, 2))
    assert first.text and first.text == first.text.lower()
    assert first.tokens != second.tokens
    assert first.tokens == session.transcribe(noise(4, seed=1)).tokens


def test_partial_texts_are_streamed_before_the_transcript(session: SpeechSession) -> None:
    for options in ({}, {"beam_size": 3}):
        events = list(session.stream(noise(3), **options))
        partial = [event.text for event in events if isinstance(event, Partial)]
        assert isinstance(events[-1], Transcript) and len(partial) >= len(events[-1].tokens) > 3
        assert len(set(partial)) > 3


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{}, {"beam_size": 2}, {"length_rule": "head"}, {"repetition_penalty": 3.0, "max_new_tokens": 9}],
    ids=str,
)
def test_batch_of_mixed_lengths_equals_single_recordings(session: SpeechSession, options: dict[str, Any]) -> None:
    sounds = [noise(seconds, seed=number) for number, seconds in enumerate(SECONDS)]
    batched = session.transcribe_batch(sounds, batch_size=len(sounds), **options)
    single = [session.transcribe(sound, **options) for sound in sounds]
    assert [transcript.tokens for transcript in batched] == [transcript.tokens for transcript in single]
    assert [transcript.text for transcript in batched] == [transcript.text for transcript in single]


def test_default_token_limit_follows_the_length_of_the_speech(session: SpeechSession) -> None:
    transcript = session.transcribe(noise(3, seed=4), min_new_tokens=500)
    assert len(transcript.tokens) == 37 and "cut off" in transcript.notes[0]  # 298 frames, 75 encoder frames
    assert len(session.transcribe(noise(3, seed=4), max_new_tokens=5, min_new_tokens=500).tokens) == 5


def test_trace_stages_have_the_expected_shapes(session: SpeechSession) -> None:
    trace = session.trace(noise(1.0))
    shapes = {stage: value.shape for stage, value in trace.items()}
    assert shapes["frontend.features"] == (98, 80) and shapes["encoder.input"] == (25, 16)
    assert shapes["encoder.layers.1"] == shapes["encoder.output"] == (25, 16)
    assert shapes["adaptor.output"] == (12, HIDDEN)
    assert shapes["llm.embeddings"] == shapes["llm.norm"] == (12 + shapes["prompt.tokens"][0] - 1, HIDDEN)
    position = int(np.flatnonzero(trace["prompt.tokens"] == trace["prompt.tokens"].max())[0])
    np.testing.assert_array_equal(trace["llm.embeddings"][position : position + 12], trace["adaptor.output"])
    assert trace["logits"][-1].argmax() == trace["tokens"][0]


def test_features_are_normalised_with_the_statistics(session: SpeechSession) -> None:
    trace = session.trace(noise(1.0), "frontend.*")
    sums = statistics()
    means = sums[0, :-1] / sums[0, -1]
    deviations = np.sqrt(sums[1, :-1] / sums[0, -1] - means**2)
    np.testing.assert_allclose(
        trace["frontend.features"], (trace["frontend.fbank"] - means) / deviations, rtol=1e-4, atol=1e-5
    )
    off = session.trace(noise(1.0), "frontend.*", cmvn="off")
    np.testing.assert_array_equal(off["frontend.features"], off["frontend.fbank"])


def test_length_rule_comes_from_the_option_or_the_checkpoint(tmp_path: Path, session: SpeechSession) -> None:
    sound = noise(1.0)
    release, head = (session.trace(sound, "encoder.output", length_rule=rule) for rule in ("release", "head"))
    assert not np.allclose(release["encoder.output"], head["encoder.output"], atol=1e-3)
    default = session.trace(sound, "encoder.output")
    np.testing.assert_array_equal(default["encoder.output"], release["encoder.output"])
    with_head_rule = open_session(tiny_fireredasr(tmp_path, length_rule="head"), "tiny", Settings())
    np.testing.assert_array_equal(
        with_head_rule.trace(sound, "encoder.output")["encoder.output"], head["encoder.output"]
    )


@pytest.mark.parametrize("dtype", ["bfloat16", "auto"])
def test_language_model_uses_the_requested_dtype(checkpoint: Path, dtype: str) -> None:
    session = open_session(checkpoint, "tiny", Settings(dtype=dtype))
    assert session.recogniser.dtype == ("float32" if dtype == "auto" else dtype)
    assert session.transcribe(noise(1)).tokens


# Length limits ----------------------------------------------------------------------------------------------------


def test_recording_longer_than_the_positional_encoding_is_refused(tmp_path: Path) -> None:
    session = open_session(tiny_fireredasr(tmp_path, pe_maxlen=100), "tiny", Settings())  # 4 seconds
    words = "is longer than the 4 seconds that the positions"
    for attempt in (session.trace, session.transcribe):
        with pytest.raises(BadInput, match=words):
            attempt(noise(4.2))
    assert session.trace(noise(4.0), "encoder.output")["encoder.output"].shape == (100, 16)
    assert session.transcribe(noise(4.2), vad="none", max_segment_seconds=3.0).tokens


def test_segment_limit_above_30_seconds_is_refused(session: SpeechSession) -> None:
    with pytest.raises(BadInput, match="expected 1 to 30"):
        session.transcribe(noise(1), max_segment_seconds=60.0)
