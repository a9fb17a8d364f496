"""SenseVoice and Paraformer with several chunks in one pass give the same results as one chunk at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.inner_stages import opened
from tests.support.tiny_checkpoints import noise
from workbench.audio.read import read
from workbench.core.errors import BadInput
from workbench.pipelines.recognition import speech_session
from workbench.pipelines.recognition.padding import MAX_PADDED, padded_batches
from workbench.session.values import Transcript

MODELS = ("demo sensevoice", "demo paraformer", "tiny sensevoice", "tiny paraformer")
SECONDS = (1.3, 0.25, 2.0, 1.3, 0.6)
SAMPLE = Path(__file__).parents[4] / "assets" / "samples" / "three_seven_one.wav"


@pytest.fixture(scope="module", params=MODELS)
def session(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    instance = opened(request.param, tmp_path_factory.mktemp("batches"))
    yield instance
    instance.close()


def is_close(actual: np.ndarray | None, expected: np.ndarray | None) -> bool:
    if actual is None or expected is None:
        return actual is expected
    return actual.shape == expected.shape and np.abs(actual - expected).max() < 1e-4 * max(1, np.abs(expected).max())


def test_batched_chunks_equal_single_chunks(session: Any) -> None:
    pipeline = session.recogniser
    options = pipeline.options_class()
    features = [
        pipeline.features(noise(seconds, seed=number)[0], options, None) for number, seconds in enumerate(SECONDS)
    ]
    network = pipeline.network
    if hasattr(network, "batch_logits"):
        queries = (0, 1, 2, 15)
        single = [np.concatenate([*network.logits(row, queries, None)]) for row in features]
        assert all(map(is_close, network.batch_logits(features, queries), single))
        return
    single = [network.decode(row, None) for row in features]
    batched = network.decode_batch(features)
    for actual, expected in zip(batched, single, strict=True):
        assert is_close(actual.logits, expected.logits) and is_close(actual.alphas, expected.alphas)
        assert is_close(actual.encoded.numpy(), expected.encoded.numpy())
        if pipeline.model.predictor.upsample and actual.logits is not None:
            count = len(actual.logits)
            assert is_close(network.fine_alphas(actual.encoded, count), network.fine_alphas(expected.encoded, count))


def test_chunks_of_equal_length_may_have_different_numbers_of_tokens(session: Any) -> None:
    pipeline = session.recogniser
    spoken = read(SAMPLE).samples
    quiet = np.concatenate([spoken[: len(spoken) // 2], np.zeros(len(spoken) - len(spoken) // 2, np.float32)])
    chunks, options = [quiet, spoken, 0 * spoken], pipeline.options_class()
    single = [pipeline.recognise(chunk, options) for chunk in chunks]
    assert pipeline.recognise_batch(chunks, options) == single
    if session.model == "demo paraformer":
        assert len({len(each.ids) for each in single}) == len(chunks)


def test_batched_transcripts_equal_single_transcripts_beside_an_unreadable_recording(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compares ids, times and texts; some recordings have several chunks, and one cannot be read."""
    sounds = [noise(seconds, seed=number) for number, seconds in enumerate(SECONDS)]
    options = {"vad": "none", "max_segment_seconds": 1.0}
    bad = (np.zeros(0, dtype=np.float32), 16000)
    results = {
        number: event
        for number, event in session.stream_batch([*sounds, bad], **options)
        if isinstance(event, (Transcript, BadInput))
    }
    assert isinstance(results[len(sounds)], BadInput)
    for number, sound in enumerate(sounds):
        monkeypatch.setattr(speech_session, "MAX_CHUNKS", 1)
        single = session.transcribe(sound, **options)
        event = results[number]
        assert isinstance(event, Transcript)
        assert (event.tokens, event.text) == (single.tokens, single.text)
        times = [[(token.id, token.start, token.end) for token in segment.tokens] for segment in (*event.segments,)]
        assert times == [
            [(token.id, token.start, token.end) for token in segment.tokens] for segment in single.segments
        ]


LENGTHS = st.lists(st.floats(0.1, 40.0), max_size=40)


@given(LENGTHS, st.integers(1, 9), st.sampled_from([0.0, 5.0, 60.0]))
def test_batches_hold_every_chunk_once_and_little_padding(
    seconds: list[float], maximum: int, max_seconds: float
) -> None:
    ends = padded_batches(seconds, maximum, max_seconds)
    batches = [seconds[first:end] for first, end in zip([0, *ends], ends, strict=False)]
    assert [length for batch in batches for length in batch] == seconds and all(batches)
    for batch in batches:
        padded = len(batch) * max(batch)
        assert len(batch) == 1 or (
            len(batch) <= maximum and padded <= max_seconds and padded <= MAX_PADDED * sum(batch)
        )


@given(st.lists(st.floats(1.0, 2.0), min_size=30, max_size=60))
def test_sorted_chunks_fill_batches(seconds: list[float]) -> None:
    assert len(padded_batches(sorted(seconds), 8, 60.0)) <= len(seconds) / 3 + 6
