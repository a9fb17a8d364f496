"""FSMN-VAD with a fake network: blocks, the memory carried between them, and the spans found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from workbench.audio.cmvn import Cmvn
from workbench.audio.frontend import Frontend, FrontendConfig
from workbench.core.errors import BadInput
from workbench.families.voice_activity.fsmn_vad import DetectorConfig, FsmnVadOptions
from workbench.pipelines.detection import fsmn_vad
from workbench.pipelines.detection.fsmn_vad import FsmnVad

RATE = 16000
USUAL = DetectorConfig()
CONFIG = FrontendConfig(lfr_m=5, lfr_n=1)


class FakeNetwork:
    """Classifies frames with low features as silence; its memory is the number of previous frames."""

    dtype = "f32"
    classes = 2

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []
        self.closed = False

    def start(self) -> Any:
        return 0

    def score(self, features: np.ndarray, past: Any) -> tuple[np.ndarray, Any]:
        self.calls.append((past, len(features)))
        silent = (features.mean(axis=1) < 0).astype(np.float32)
        return np.stack([silent, 1 - silent], axis=1), past + len(features)

    def close(self) -> None:
        self.closed = True


def detector(network: FakeNetwork, config: DetectorConfig = USUAL) -> FsmnVad:
    return FsmnVad(network, Frontend(CONFIG, Cmvn(np.full(400, 3.0, np.float32), np.ones(400, np.float32))), config)


def recording() -> np.ndarray:
    """Two seconds of silence, two of noise, three of silence."""
    noise = 0.1 * np.random.default_rng(0).standard_normal(2 * RATE)
    return np.concatenate([np.zeros(2 * RATE), noise, np.zeros(3 * RATE)]).astype(np.float32)


def test_span_matches_the_loud_part_of_the_recording() -> None:
    [span] = detector(FakeNetwork()).spans(recording(), options=FsmnVadOptions(end_silence_ms=500))
    assert (span.start, span.end) == (pytest.approx(2.0, abs=0.3), pytest.approx(4.0, abs=0.3))


@pytest.mark.parametrize("size", [1, 99, 250, 698])
def test_blocks_carry_the_fsmn_memory_to_the_next_block(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    expected = detector(FakeNetwork()).scores(recording())
    monkeypatch.setattr(fsmn_vad, "_BLOCK_FRAMES", size)
    network, progress = FakeNetwork(), []
    actual = detector(network).scores(recording(), progress.append)
    np.testing.assert_array_equal(actual, expected)
    assert len(actual) == 698 and network.calls == [(first, min(size, 698 - first)) for first in range(0, 698, size)]
    assert progress == sorted(progress) and len(progress) == len(network.calls) and progress[-1] == 1.0


def test_progress_is_reported_and_a_callback_exception_stops_the_run() -> None:
    fractions: list[float] = []
    samples = np.tile(recording(), 10)
    detector(FakeNetwork()).spans(samples, fractions.append)
    assert fractions == sorted(fractions) and len(fractions) == 3 and fractions[-1] == 1.0

    def stop(fraction: float) -> None:
        raise KeyboardInterrupt

    network = FakeNetwork()
    with pytest.raises(KeyboardInterrupt):
        detector(network).spans(samples, stop)
    assert len(network.calls) == 1


def test_recording_shorter_than_a_window_gives_no_span() -> None:
    network = FakeNetwork()
    assert detector(network).spans(recording()[:399]) == [] and network.calls == []


def test_silence_class_outside_the_network_is_refused() -> None:
    with pytest.raises(BadInput, match=r"^model_conf.sil_pdf_ids is \[0, 2\]; the network has 2 classes$"):
        detector(FakeNetwork(), DetectorConfig(sil_pdf_ids=(0, 2)))


def test_closing_closes_the_network() -> None:
    network = FakeNetwork()
    detector(network).close()
    assert network.closed
