"""FSMN-VAD's configuration and its segmentation of synthetic scores.

The recorded results come from the original `FsmnVADStreaming.inference` (FunASR 1.4), with its network replaced by the
same scores.
"""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.audio.spans import Span
from workbench.core.errors import BadInput
from workbench.families.voice_activity.fsmn_vad import (
    DetectorConfig,
    FsmnConfig,
    FsmnVadOptions,
    find_spans,
    frame_decibels,
    is_fsmn_vad,
    read_fsmn_vad,
)

RATE = 16_000
DEFAULT_CONFIG, DEFAULT_OPTIONS = DetectorConfig(), FsmnVadOptions()
TALK = FsmnVadOptions(end_silence_ms=800)

ENCODER = {
    "input_dim": 400,
    "input_affine_dim": 140,
    "fsmn_layers": 4,
    "linear_dim": 250,
    "proj_dim": 128,
    "lorder": 20,
    "rorder": 0,
    "lstride": 1,
    "rstride": 0,
    "output_affine_dim": 140,
    "output_dim": 248,
}
MODEL_CONF = {
    "sample_rate": 16000,
    "detect_mode": 1,
    "window_size_ms": 200,
    "do_extend": 1,
    "max_single_segment_time": 60000,
    "snr_thres": -100.0,
    "sil_pdf_ids": [0],
    "speech_noise_thres": 0.6,
    "frame_in_ms": 10,
}
CONFIG = f"""
model: FsmnVADStreaming
model_conf: {MODEL_CONF}
encoder: FSMN
encoder_conf: {ENCODER}
frontend: WavFrontendOnline
frontend_conf: {{fs: 16000, window: hamming, n_mels: 80, frame_length: 25, frame_shift: 10, lfr_m: 5, lfr_n: 1}}
"""


def samples_of(frames: int) -> int:
    """Returns the samples of a recording with that number of 10 ms frames."""
    return (frames - 1) * 160 + 400


def decide(
    silence: np.ndarray,
    config: DetectorConfig = DEFAULT_CONFIG,
    options: FsmnVadOptions = DEFAULT_OPTIONS,
    decibels: np.ndarray | None = None,
    samples: int | None = None,
) -> list[tuple[int, int]]:
    """Returns the segments in milliseconds."""
    levels = np.full(len(silence), -20.0) if decibels is None else decibels
    spans = find_spans(silence, levels, samples_of(len(silence)) if samples is None else samples, config, options)
    return [(round(span.start * 1000), round(span.end * 1000)) for span in spans]


def silence_except(frames: int, *speech: tuple[int, int]) -> np.ndarray:
    silence = np.ones(frames, dtype=np.float32)
    for first, behind in speech:
        silence[first:behind] = 0
    return silence


def track(seed: int, seconds: int) -> np.ndarray:
    """Returns a slowly varying probability of silence, as noisy as a bad recording's."""
    rng = np.random.default_rng(seed)
    frames = seconds * 100 - 2
    silence, at, speaking = np.empty(frames), 0, False
    while at < frames:
        length = 1 + int(rng.exponential(300 if speaking else 150))
        part = silence[at : at + length]
        part[:] = np.clip((0.1 if speaking else 0.9) + 0.25 * rng.standard_normal(len(part)), 0.001, 0.999)
        at, speaking = at + length, not speaking
    return silence.astype(np.float32)


# --- decisions worked out by hand ---


def test_speech_segment_has_the_expected_start_and_end() -> None:
    # Speech on frames 100-399. The window of 20 holds 15 of them on frame 114; the segment reaches 40 frames back.
    # Speech is gone from the window (15 left) on frame 404; 100 ms of the silence counted from there stay inside.
    silence = silence_except(1000, (100, 400))
    assert decide(silence, options=TALK) == [(740, 4160)]
    assert decide(silence) == [(740, 4160)]


def test_open_segment_ends_at_the_end_of_the_recording() -> None:
    assert decide(silence_except(300, (100, 300))) == [(740, 3000)]
    assert decide(silence_except(430, (100, 400))) == [(740, 4300)]
    assert decide(silence_except(115, (100, 115))) == [(740, 1150)]


def test_speech_shorter_than_the_detection_window_gives_no_segment() -> None:
    assert decide(silence_except(500, (100, 114))) == []
    assert decide(silence_except(500, (100, 115))) == [(740, 1310)]
    assert decide(silence_except(500)) == []
    assert decide(silence_except(1)) == []


def test_pause_ends_a_segment_only_if_longer_than_the_end_silence() -> None:
    # A pause of 1 s: the schedule requires 2 s at first, and a caller may require less.
    silence = silence_except(1500, (100, 400), (500, 800))
    assert decide(silence) == [(740, 8160)]
    assert decide(silence, options=TALK) == [(740, 4160), (4740, 8160)]
    assert decide(silence, options=FsmnVadOptions(end_silence_ms=1300)) == [(740, 8160)]


def test_short_pause_ends_a_segment_after_one_minute() -> None:
    # The same pauses of 300 ms, before and after the minute; the segment has been growing since before it.
    pauses = [(at, at + 30) for at in (3000, 5000, 6500, 8000)]
    silence = 1 - silence_except(9998, (0, 2000), *pauses)
    assert decide(silence) == [(19740, 65100), (65100, 80100), (80100, 99980)]
    assert len(decide(silence[:5998])) == 1
    # With one sample less than the minute, the original does not check its state there.
    assert len(decide(silence[:6900], samples=60 * RATE - 1)) == 1


def test_segment_is_cut_at_the_maximum_length() -> None:
    silence = silence_except(3000, (100, 3000))
    ten_seconds = [(740, 10750), (10750, 20760), (20760, 30000)]
    assert decide(silence, DetectorConfig(max_single_segment_time=10_000)) == ten_seconds
    assert decide(silence, options=FsmnVadOptions(max_segment_seconds=10)) == ten_seconds


def test_segments_have_no_margins_without_do_extend() -> None:
    tight = DetectorConfig(do_extend=False)
    assert decide(silence_except(1000, (100, 400)), tight, TALK) == [(940, 4050)]


def test_single_utterance_mode_returns_only_the_first_segment() -> None:
    single = DetectorConfig(single_utterance=True)
    silence = silence_except(2000, (100, 400), (800, 1200))
    assert decide(silence, single, TALK) == [(740, 4160)]
    assert decide(silence_except(2000, (500, 900)), single, TALK) == []  # starts after the 3 s that it has


def test_speech_threshold_is_lower_with_the_silence_schedule() -> None:
    unsure = np.full(300, 0.22, dtype=np.float32)  # speech outweighs silence by 0.56
    assert decide(unsure) == [(0, 3000)]
    assert decide(unsure, options=TALK) == []
    assert decide(unsure, DetectorConfig(speech_noise_thres=0.55), TALK) == [(0, 3000)]


def test_decibel_and_snr_thresholds_drop_quiet_segments() -> None:
    silence = silence_except(1000, (100, 400))
    quiet = np.full(1000, -20.0)
    quiet[100:400] = -40.0
    assert decide(silence, decibels=quiet) == [(740, 4160)]
    assert decide(silence, DetectorConfig(decibel_thres=-30), decibels=quiet) == []
    assert decide(silence, DetectorConfig(snr_thres=0), decibels=quiet) == []
    loud = np.where(np.arange(1000) < 100, -50.0, quiet)
    assert decide(silence, DetectorConfig(snr_thres=0), decibels=loud) == [(740, 4160)]


def test_frame_decibels_are_computed_per_frame() -> None:
    samples = np.concatenate([np.zeros(400), np.full(400, 0.5)]).astype(np.float32)
    levels = frame_decibels(samples)
    np.testing.assert_allclose(levels, 10 * np.log10(np.array([0, 0.25 * 160, 0.25 * 320]) + 1e-6), rtol=1e-6)
    assert len(frame_decibels(np.zeros(399, dtype=np.float32))) == 0


# --- decisions of the original ---

RECORDED: list[tuple[int, int, DetectorConfig, FsmnVadOptions, int, int, list[tuple[int, int]]]] = [
    # seed, seconds, configuration, options; number of segments, milliseconds in them, the first twelve
    (
        1,
        150,
        DetectorConfig(),
        FsmnVadOptions(),
        108,
        113640,
        [
            (1440, 3070),
            (6530, 39280),
            (43540, 60360),
            (60360, 60900),
            (60900, 61460),
            (61810, 62740),
            (62740, 63020),
            (63020, 63530),
            (63530, 64330),
            (64330, 64610),
            (64610, 65080),
            (65080, 65680),
        ],
    ),
    (
        2,
        60,
        DetectorConfig(),
        FsmnVadOptions(end_silence_ms=400),
        35,
        28290,
        [
            (340, 1140),
            (1140, 1890),
            (5180, 6730),
            (6730, 7590),
            (10860, 12070),
            (12070, 12700),
            (13010, 13660),
            (13660, 15250),
            (15250, 15730),
            (17970, 18970),
            (23250, 23980),
            (24280, 25280),
        ],
    ),
    (
        3,
        100,
        DetectorConfig(max_single_segment_time=15_000),
        FsmnVadOptions(),
        54,
        69980,
        [
            (130, 1160),
            (4720, 7860),
            (9920, 10520),
            (12870, 27880),
            (27880, 42890),
            (47920, 48820),
            (55880, 59970),
            (59970, 60490),
            (61060, 61550),
            (61550, 62230),
            (62230, 62670),
            (62670, 63520),
        ],
    ),
    (
        4,
        40,
        DetectorConfig(do_extend=False),
        TALK,
        6,
        16620,
        [(6200, 9080), (10080, 10490), (19080, 21330), (23620, 27090), (27880, 30400), (34890, 39980)],
    ),
]


@pytest.mark.parametrize(("seed", "seconds", "config", "options", "count", "total", "first"), RECORDED)
def test_segments_match_the_recorded_results_of_funasr(
    seed: int,
    seconds: int,
    config: DetectorConfig,
    options: FsmnVadOptions,
    count: int,
    total: int,
    first: list[tuple[int, int]],
) -> None:
    segments = decide(track(seed, seconds), config, options, samples=seconds * RATE)
    assert segments[:12] == first
    assert len(segments) == count
    assert sum(end - start for start, end in segments) == total


@given(
    seed=st.integers(0, 999),
    frames=st.integers(1, 400),
    end_silence=st.integers(0, 900),
    longest=st.floats(0, 3),
    extend=st.booleans(),
)
def test_spans_are_disjoint_and_inside_the_recording(
    seed: int, frames: int, end_silence: int, longest: float, extend: bool
) -> None:
    silence = np.repeat(np.random.default_rng(seed).uniform(0.001, 0.999, frames), 7)[:frames].astype(np.float32)
    options = FsmnVadOptions(end_silence_ms=end_silence, max_segment_seconds=longest)
    spans = decide(silence, DetectorConfig(do_extend=extend), options)
    for start, end in spans:
        assert 0 <= start < end <= frames * 10 and start % 10 == end % 10 == 0
    assert all(before[1] <= after[0] for before, after in pairwise(spans))


def test_spans_are_given_in_seconds() -> None:
    levels = np.full(300, -20.0)
    assert find_spans(silence_except(300, (100, 300)), levels, samples_of(300)) == [Span(0.74, 3.0)]


# --- configuration ---


def checkpoint(path: Path, config: str = CONFIG, files: tuple[str, ...] = ("model.pt", "am.mvn")) -> Path:
    path.mkdir(exist_ok=True)
    (path / "config.yaml").write_text(config)
    for name in files:
        (path / name).write_bytes(b"x")
    return path


def test_published_checkpoint_directory_is_read(tmp_path: Path) -> None:
    directory = checkpoint(tmp_path / "vad")
    assert is_fsmn_vad(directory)
    model = read_fsmn_vad(directory)
    assert model.network == FsmnConfig.from_yaml(ENCODER)
    assert model.network.lorder == 20 and model.network.output_dim == 248
    assert model.detector == DetectorConfig()
    assert (model.frontend.lfr_m, model.frontend.width, model.frontend.dither) == (5, 400, 0.0)
    assert (model.weights.name, model.cmvn_file.name) == ("model.pt", "am.mvn")


def test_onnx_directory_needs_one_onnx_file_and_am_mvn(tmp_path: Path) -> None:
    assert not is_fsmn_vad(tmp_path)
    (tmp_path / "vad.onnx").touch()
    assert not is_fsmn_vad(tmp_path)
    with pytest.raises(BadInput, match=r"has vad\.onnx and no am\.mvn"):
        read_fsmn_vad(tmp_path)
    (tmp_path / "am.mvn").touch()
    assert is_fsmn_vad(tmp_path)
    model = read_fsmn_vad(tmp_path)
    assert model.network is None and model.weights.name == "vad.onnx" and model.frontend.width == 400
    (tmp_path / "other.onnx").touch()
    with pytest.raises(BadInput, match=r"several ONNX files \(other\.onnx, vad\.onnx\)"):
        read_fsmn_vad(tmp_path)


def test_incomplete_or_other_checkpoints_are_refused(tmp_path: Path) -> None:
    other = checkpoint(tmp_path / "other", CONFIG.replace("FsmnVADStreaming", "Paraformer"))
    assert not is_fsmn_vad(other)
    with pytest.raises(BadInput, match="is for model 'Paraformer'"):
        read_fsmn_vad(other)
    with pytest.raises(BadInput, match=r"has no am\.mvn"):
        read_fsmn_vad(checkpoint(tmp_path / "bare", files=("model.pt",)))
    with pytest.raises(BadInput, match="no weights"):
        read_fsmn_vad(checkpoint(tmp_path / "light", files=("am.mvn",)))
    with pytest.raises(BadInput, match="there is no checkpoint directory"):
        read_fsmn_vad(tmp_path / "missing")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("'proj_dim': 128", "'proj_dim': 0", "encoder_conf.proj_dim"),
        ("'lorder': 20, ", "", "encoder_conf.lorder"),
        ("'rorder': 0", "'rorder': 2", "encoder_conf.rorder"),
        ("'rorder': 0", "'rorder': 0, 'use_softmax': false", "encoder_conf.use_softmax"),
        ("frontend: WavFrontendOnline", "frontend: WhisperFrontend", "frontend in vad/config.yaml is 'WhisperFron"),
        ("'input_dim': 400", "'input_dim': 560", "stacks 5 frames of 80 mel bands, and encoder_conf.input_dim is 560"),
        ("'window_size_ms': 200", "'window_size_ms': 5", "model_conf.window_size_ms"),
        ("'window_size_ms': 200", "'window_size_ms': 'long'", "model_conf.window_size_ms"),
        ("'sil_pdf_ids': [0]", "'sil_pdf_ids': []", "model_conf.sil_pdf_ids"),
        ("'sil_pdf_ids': [0]", "'sil_pdf_ids': 0", "model_conf.sil_pdf_ids"),
        ("'speech_noise_thres': 0.6", "'speech_noise_thres': high", "model_conf.speech_noise_thres"),
        ("'speech_noise_thres': 0.6", "'speech_noise_thres': .nan", "model_conf.speech_noise_thres"),
        ("'frame_in_ms': 10", "'frame_in_ms': 20", "model_conf.frame_in_ms"),
        ("lfr_n: 1", "lfr_n: 3", "frontend_conf.lfr_n"),
        ("fs: 16000", "fs: 8000", "frontend_conf.fs"),
    ],
)
def test_invalid_configuration_value_error_names_the_key(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in CONFIG
    directory = checkpoint(tmp_path / "vad", CONFIG.replace(old, new))
    with pytest.raises(BadInput) as caught:
        read_fsmn_vad(directory)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_yaml_values_are_set_in_the_detector_config() -> None:
    settings: dict[str, Any] = {**MODEL_CONF, "detect_mode": 0, "do_extend": 0, "snr_thres": 5, "sil_pdf_ids": [0, 3]}
    config = DetectorConfig.from_yaml(settings)
    assert config.single_utterance and not config.do_extend
    assert (config.snr_thres, config.sil_pdf_ids) == (5.0, (0, 3))
