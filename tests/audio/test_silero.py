"""Silero VAD: the same probabilities as the package's own loop, plausible spans, and long silence."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("silero_vad", reason="needs the silero-vad package")
torch = pytest.importorskip("torch", reason="the package itself needs PyTorch")

from tests.support.shared_data import shared  # noqa: E402
from workbench.audio import silero  # noqa: E402
from workbench.audio.read import read  # noqa: E402
from workbench.audio.silero import (  # noqa: E402
    SileroOptions,
    probabilities_with_resets,
    silero_probabilities,
    silero_spans,
    spans_with_resets,
)


def noisy_tones(seconds: float) -> np.ndarray:
    """Returns harmonics that start and stop, which change the network's state as speech does."""
    time = np.arange(round(seconds * 16_000)) / 16_000
    voice = sum(np.sin(2 * np.pi * 120 * k * time) / k for k in range(1, 20)) * (np.sin(2 * np.pi * 0.7 * time) > 0)
    return (0.1 * voice + 0.01 * np.random.default_rng(0).standard_normal(len(time))).astype(np.float32)


def by_the_package(samples: np.ndarray) -> np.ndarray:
    import silero_vad

    with torch.inference_mode():
        probabilities = silero_vad.load_silero_vad().audio_forward(torch.from_numpy(samples)[None], 16_000)
    return np.asarray(probabilities[0])


@pytest.mark.parametrize("extra", [0, 1, 511])
def test_silero_probabilities_equal_those_of_the_package(monkeypatch: pytest.MonkeyPatch, extra: int) -> None:
    samples = noisy_tones(20.0)[: 512 * 600 + extra]
    expected = by_the_package(samples)
    assert expected.max() - expected.min() > 0.1
    np.testing.assert_allclose(silero_probabilities(samples), expected, atol=1e-4)
    monkeypatch.setattr(silero, "_BLOCK", 77)  # state and context must pass from block to block
    np.testing.assert_allclose(silero_probabilities(samples), expected, atol=1e-4)


def test_silero_spans_of_real_speech_equal_those_of_the_package() -> None:
    import silero_vad

    samples = read(shared("fsmn-vad/vad_example.wav")).samples
    spans = silero_spans(samples)
    package = silero_vad.get_speech_timestamps(torch.from_numpy(samples), silero_vad.load_silero_vad())
    assert [span.slice for span in spans] == [slice(each["start"], each["end"]) for each in package]
    assert len(spans) > 20


def test_silence_and_padding_options_change_the_spans() -> None:
    samples = read(shared("fsmn-vad/vad_example.wav")).samples
    patient = silero_spans(samples, SileroOptions(min_silence_ms=800))
    assert len(patient) < len(silero_spans(samples)) / 2
    padded = silero_spans(samples, SileroOptions(min_silence_ms=800, pad_ms=200))
    assert sum(span.seconds for span in padded) > sum(span.seconds for span in patient)


@pytest.mark.parametrize(
    "options, slices",
    [
        (SileroOptions(), [slice(31 * 512 - 480, 62 * 512 + 480)]),  # 30 ms at both ends
        (SileroOptions(pad_ms=200), [slice(31 * 512 - 3200, 62 * 512 + 3200)]),
        (SileroOptions(pad_ms=0), [slice(31 * 512, 62 * 512)]),
        (SileroOptions(pad_ms=0, threshold=0.95), []),
        (SileroOptions(pad_ms=0, min_speech_ms=900), [slice(31 * 512, 62 * 512)]),
        (SileroOptions(pad_ms=0, min_speech_ms=1000), []),
    ],
)
def test_each_silero_option_has_its_effect(
    monkeypatch: pytest.MonkeyPatch, options: SileroOptions, slices: list[slice]
) -> None:
    """A second of silence, a second of speech, and silence again, in chunks of 32 ms."""
    monkeypatch.setattr(silero, "silero_probabilities", lambda *_: np.repeat([0.0, 0.9, 0.0], 31))
    assert [span.slice for span in silero_spans(np.zeros(93 * 512, np.float32), options)] == slices


@pytest.mark.parametrize("longest, spans", [(100, 2), (400, 2), (600, 1)])
def test_a_short_silence_does_not_end_speech(monkeypatch: pytest.MonkeyPatch, longest: int, spans: int) -> None:
    """Speech, 0.5 s of silence, speech."""
    monkeypatch.setattr(silero, "silero_probabilities", lambda *_: np.repeat([0.9, 0.0, 0.9, 0.0], [30, 16, 30, 30]))
    assert len(silero_spans(np.zeros(106 * 512, np.float32), SileroOptions(min_silence_ms=longest))) == spans


@given(data=st.data(), pad_ms=st.integers(0, 400), min_silence_ms=st.integers(0, 500))
def test_spans_equal_those_of_the_package_for_any_probabilities(
    data: st.DataObject, pad_ms: int, min_silence_ms: int
) -> None:
    import silero_vad

    levels = st.sampled_from([0.0, 0.2, 0.3, 0.35, 0.4, 0.5, 0.51, 0.9])
    runs = data.draw(st.lists(st.tuples(levels, st.integers(1, 12)), max_size=12))
    probabilities = np.repeat(np.float32([level for level, _ in runs]), [count for _, count in runs])
    samples = max(0, 512 * len(probabilities) - data.draw(st.integers(0, 511)))
    options = SileroOptions(
        threshold=data.draw(st.sampled_from([0.1, 0.3, 0.5, 0.9])),
        min_speech_ms=data.draw(st.integers(0, 400)),
        min_silence_ms=min_silence_ms,
        pad_ms=pad_ms,
    )
    expected = silero_vad.get_speech_timestamps_from_probs(
        probabilities.tolist(),
        threshold=options.threshold,
        min_speech_duration_ms=options.min_speech_ms,
        min_silence_duration_ms=options.min_silence_ms,
        speech_pad_ms=options.pad_ms,
        audio_length_samples=samples,
    )
    spans = silero._decided(probabilities, samples, options)
    assert [span.slice for span in spans] == [slice(each["start"], each["end"]) for each in expected]


def test_concurrent_threads_get_the_same_probabilities() -> None:
    recordings = [noisy_tones(10.0 + n)[n * 100 :] for n in range(4)]
    expected = [silero_probabilities(samples) for samples in recordings]
    with ThreadPoolExecutor(4) as pool:
        for one, other in zip(expected, pool.map(silero_probabilities, recordings), strict=True):
            np.testing.assert_array_equal(one, other)


def test_probabilities_with_resets_are_the_maximum_of_overlapping_fresh_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = noisy_tones(20.0)
    probabilities = probabilities_with_resets(samples)
    first = silero_probabilities(samples[: 125 * 512])
    second = silero_probabilities(
        np.concatenate([samples[62 * 512 - 64 : 62 * 512], samples[62 * 512 : 187 * 512]])[64:]
    )
    np.testing.assert_allclose(probabilities[:62], first[:62], atol=1e-4)
    assert (probabilities[70:124] >= first[70:124] - 1e-4).all()
    np.testing.assert_allclose(probabilities[71:124], np.maximum(first[71:124], second[9:62]), atol=0.02)
    monkeypatch.setattr(silero, "_BLOCK", 77)
    monkeypatch.setattr(silero, "_WINDOWS", 3)
    np.testing.assert_allclose(probabilities_with_resets(samples), probabilities, atol=1e-4)


@pytest.mark.parametrize("chunks", [0, 1, 124, 125, 126, 187, 188])
def test_probabilities_with_resets_cover_every_chunk(chunks: int) -> None:
    probabilities = probabilities_with_resets(noisy_tones(7.0)[: chunks * 512])
    assert len(probabilities) == chunks and (probabilities > 0).all()


def test_spans_with_resets_have_the_total_length_of_plain_silero_spans() -> None:
    samples = read(shared("speech/funasr_sample.wav")).samples
    seconds = sum(span.seconds for span in silero_spans(samples))
    assert sum(span.seconds for span in spans_with_resets(samples)) == pytest.approx(seconds, rel=0.1)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("loudest", [1e4, 1e25, np.inf, np.nan])
def test_sound_that_overflows_gives_no_warning(loudest: float) -> None:
    samples = noisy_tones(3.0) * np.float32(loudest)
    assert len(silero_probabilities(samples)) == len(probabilities_with_resets(samples)) == 94
    assert all(0 <= span.start < span.end <= 3.0 for span in silero_spans(samples))


def test_empty_recording_gives_no_spans() -> None:
    assert spans_with_resets(np.zeros(0, dtype=np.float32)) == []
    assert silero_spans(np.zeros(0, dtype=np.float32)) == []
    assert silero_spans(np.zeros(1, dtype=np.float32)) == []


SCRIPT = """
import sys, time
import numpy as np
from workbench.audio.silero import silero_spans
from workbench.system.memory import peak_resident_bytes
start = time.process_time()
assert silero_spans(np.zeros(1800 * 16000, dtype=np.float32)) == []
assert "torch" not in sys.modules, "its import takes seconds"
print(time.process_time() - start, peak_resident_bytes() >> 20)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak memory of a process the Linux way")
def test_half_an_hour_of_silence_is_processed_within_time_and_memory_limits() -> None:
    root = Path(__file__).resolve().parents[2]
    process = subprocess.run([sys.executable, "-c", SCRIPT], cwd=root, capture_output=True, text=True, check=True)
    seconds, peak_megabytes = map(float, process.stdout.split())
    assert seconds < 15
    assert peak_megabytes < 500
