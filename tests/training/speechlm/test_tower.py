"""Training of the audio tower: number of positions, labels and features."""

import numpy as np
import pytest
import torch

from tests.training.tones import tone_takes
from workbench.training.data.corpus import CorpusOptions, frames_of, log_mel, whisper_log_mel
from workbench.training.data.pool import generate_pool
from workbench.training.recognisers.speech_language import IGNORED
from workbench.training.speechlm.tower import TowerLoss, make_tower, position_labels, positions_of, read_recordings


@pytest.fixture(scope="module")
def loss():
    torch.manual_seed(0)
    return TowerLoss(make_tower()).eval()


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    takes = [*tone_takes("a", "b"), *tone_takes("c", human=False)]
    return generate_pool(
        takes, tmp_path_factory.mktemp("pool"), 12, options=CorpusOptions(front_end="whisper"), workers=0
    )


@pytest.mark.parametrize("frames", [1, 7, 8, 9, 99, 100, 101, 333, 1500])
def test_position_count_equals_the_network_output_length(loss, frames):
    with torch.no_grad():
        output = loss.network(torch.randn(80, frames), torch.tensor([frames])).last_hidden_state
    assert len(output) == positions_of([frames])[0]


def test_position_label_is_the_digit_at_the_middle_of_the_position():
    spans = [(1600, 6400, (3,)), (9600, 20000, (4, 5)), (25600, 26000, (0,))]
    labels = position_labels(spans, 200)
    for place, label in enumerate(labels):
        middle = place * 8 * 160
        inside = [digits for start, end, digits in spans if start <= middle < end]
        expected = 0 if not inside else IGNORED if len(inside[0]) > 1 else inside[0][0] + 1
        assert label == expected
    assert set(labels.tolist()) == {0, 4, IGNORED, 1}


def test_whisper_log_mel_is_independent_of_the_level():
    samples = np.random.default_rng(0).normal(0, 0.1, 16_050).astype(np.float32)
    features = whisper_log_mel(samples)
    assert features.shape == (100, 80)
    assert np.allclose(features, whisper_log_mel(samples * np.float32(0.1)), atol=1e-3)
    assert np.array_equal(frames_of(samples, CorpusOptions(front_end="whisper")), features)
    assert np.array_equal(frames_of(samples, CorpusOptions()), log_mel(samples))


def test_feature_pool_stores_the_digit_spans(pool):
    for number, digits in enumerate(pool.digits):
        spans = pool.spans[number]
        assert tuple(digit for _, _, part in spans for digit in part) == digits
        assert all(0 <= start < end <= (pool.frames[number] + 1) * 160 for start, end, _ in spans)


def test_audio_tower_output_of_a_batch_equals_that_of_each_recording_alone(loss, pool):
    """Recordings in one batch do not affect each other."""
    with torch.no_grad():
        batched = loss.network(*_inputs(read_recordings(pool, [0, 1])))
        separate = [loss.network(*_inputs(read_recordings(pool, [number]))) for number in (0, 1)]
    first = len(separate[0].last_hidden_state)
    # The convolutions see zeros after the end of a recording, padded or not; only the bias of padding reaches its edge.
    assert torch.allclose(batched.last_hidden_state[: first - 1], separate[0].last_hidden_state[:-1], atol=0.1)
    batch = read_recordings(pool, [0, 1])
    parts = loss(batch, np.random.default_rng(0))
    assert len(batch.labels) == positions_of(batch.frames.numpy()).sum()
    assert set(parts) == {"places", "order"}
    assert all(torch.isfinite(part) for part in parts.values())


def _inputs(batch):
    return batch.mels, batch.frames
