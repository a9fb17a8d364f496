"""The published FSMN-VAD: its dimensions, its scores, and the segments of the original package."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("onnx", reason="needs the onnx package")

from tests.families.voice_activity.test_fsmn_vad import ENCODER
from tests.runtimes.pytorch.test_fsmn_vad import inner
from tests.support.shared_data import SHARED, shared
from workbench.audio.read import read
from workbench.families.voice_activity.fsmn_vad import FsmnVadOptions
from workbench.pipelines.detection.fsmn_vad import FsmnVad
from workbench.runtimes.pytorch.fsmn_vad import open_fsmn_vad


def milliseconds(detector: FsmnVad, samples: np.ndarray, **options: Any) -> list[tuple[int, int]]:
    spans = detector.spans(samples, options=FsmnVadOptions(**options))
    return [(round(span.start * 1000), round(span.end * 1000)) for span in spans]


@pytest.fixture(scope="module")
def published() -> FsmnVad:
    return open_fsmn_vad(shared("fsmn-vad"))


def test_published_weights_have_the_published_dimensions(published: FsmnVad) -> None:
    expected = {name: value for name, value in ENCODER.items() if name not in ("rorder", "rstride")}
    network = inner(published)
    assert vars(network.config) == expected
    assert sum(parameter.numel() for parameter in network.parameters()) == 428_738


def test_published_weights_give_the_scores_of_the_onnx_file(published: FsmnVad) -> None:
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(str(shared("fsmn-vad/fsmnvad-offline.onnx")))
    samples = read(shared("speech/funasr_sample.wav")).samples
    features = published.frontend(samples).features
    (expected,) = evaluator.run(None, {"speech": features[None]})
    assert expected.shape == (1, 598, 248)
    assert np.abs(published.scores(samples) - expected[0]).max() <= 1e-4


def test_published_sample_has_one_speech_segment_and_silence_has_none(published: FsmnVad) -> None:
    # 770-5980 ms is what the original's own runtime records for this file.
    samples = read(shared("speech/funasr_sample.wav")).samples
    assert milliseconds(published, samples) == [(770, 5980)]
    assert milliseconds(published, np.zeros(30 * 16_000, dtype=np.float32)) == []


def test_segments_of_the_example_equal_those_of_the_original_package(published: FsmnVad) -> None:
    # Of the original package with the same weights, with its schedule and with max_end_silence_time=800.
    samples = read(shared("fsmn-vad/vad_example.wav")).samples
    assert milliseconds(published, samples)[:3] == [(70, 59970), (59970, 60950), (60950, 62250)]
    talk = milliseconds(published, samples, end_silence_ms=800)
    assert talk[:6] == [(70, 2340), (2620, 6200), (6480, 23670), (23950, 26250), (26780, 28990), (29950, 31430)]
    assert talk[6:] == [(31750, 37600), (38210, 46900), (47310, 49630), (49910, 56460), (56740, 59540), (59820, 70450)]


def test_segments_of_short_recordings_equal_those_of_the_original_package(published: FsmnVad) -> None:
    expected = {
        "BAC009S0764W0121.wav": [(150, 4180)],
        "IT0011W0001.wav": [(40, 1970)],
        "librivox_austen_0880.wav": [(0, 2970)],
        "librivox_austen_0890.wav": [(0, 5280)],
    }
    shared("speech")
    for name, spans in expected.items():
        assert milliseconds(published, read(SHARED / "speech" / name).samples) == spans
