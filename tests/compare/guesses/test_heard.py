"""Explanations of a filter bank of another sound: resampled otherwise, at another rate, of another channel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest

from workbench.audio.fbank import fbank
from workbench.audio.read import read
from workbench.compare.explain import explain
from workbench.compare.guesses import resamplers
from workbench.compare.guesses.guess import Scene
from workbench.compare.guesses.heard import other_sounds
from workbench.compare.guesses.resamplers import FILTERED, SIMPLE, by_kaiser, by_lines, by_soxr
from workbench.parity_lab.judgement.judging import Judge
from workbench.parity_lab.judgement.sources import Sources
from workbench.parity_lab.outcome import Computed
from workbench.registry.sources import assets
from workbench.trace.trace import Trace

Recorded = tuple[np.ndarray, int]


@cache
def speech() -> np.ndarray:
    """Returns two seconds of read speech at 16 kHz."""
    return read(assets() / "samples" / "librivox_austen_0880.wav").samples[8000:40000]


@cache
def stereo(rate: int) -> np.ndarray:
    """Returns the speech at another rate, as two channels that differ."""
    left = by_kaiser(speech(), 16000, rate)
    return np.stack([left, 0.5 * np.roll(left, 7)], axis=1).astype(np.float32)


def hint_on(heard: np.ndarray, samples: np.ndarray | None = None, recorded: Recorded | None = None) -> str:
    """Returns the sentence of the guess about a filter bank of `heard`, where the reference heard `samples`."""
    samples = speech() if samples is None else samples
    scene = Scene(
        "frontend.fbank", fbank(samples), fbank(heard.astype(np.float32)), 1e-6, samples=samples, recorded=recorded
    )
    return next((guess.words for guess in other_sounds(scene)), "")


@pytest.mark.parametrize("method", [*FILTERED, *SIMPLE])
def test_sound_that_went_through_8_khz_is_named_with_its_resampler(method: str) -> None:
    resampled = (FILTERED | SIMPLE)[method]
    heard = resampled(resampled(speech(), 16000, 8000), 8000, 16000)
    expected = "it is the filter bank of the sound resampled to 8000 Hz and back to 16000 Hz, "
    assert hint_on(heard).startswith(expected + method)
    as_file = np.round(resampled(speech(), 16000, 8000) * 32767) / 32768
    assert hint_on(resampled(as_file, 8000, 16000)).startswith(expected), "also through a file of 16 bits"


def test_unknown_resampler_is_named_by_the_bands_that_lost_their_power() -> None:
    low = by_soxr("LQ")
    sentence = hint_on(low(low(speech(), 16000, 8000), 8000, 16000))
    assert sentence.startswith("the bands above 4000 Hz have lost their power and those below agree, as when the sound")
    zeroed = fbank(speech()).copy()
    zeroed[:, 58:] = 0.0  # no sound has such bands
    scene = Scene("frontend.fbank", fbank(speech()), zeroed, 1e-6, samples=speech())
    assert not list(other_sounds(scene))


@pytest.mark.parametrize(
    "old, new, expected",
    [
        (16000, 8000, "the sound at 8000 Hz, read as if it were at 16000 Hz (as by scipy's resample_poly)"),
        (16000, 48000, "the sound at 48000 Hz, read as if it were at 16000 Hz (as by scipy's resample_poly)"),
        (48000, 16000, "the sound resampled from 48000 to 16000 Hz, though it is at the latter (as by scipy's resampl"),
    ],
)
def test_sound_at_another_rate_is_named(old: int, new: int, expected: str) -> None:
    assert hint_on(by_kaiser(speech(), old, new)).startswith("it is the filter bank of " + expected)


@pytest.mark.parametrize(
    "change, expected",
    [
        (lambda x: x.mean(axis=1), "the samples at 8000 Hz, read as if they were at 16000 Hz, without resampling"),
        (lambda x: by_lines(x.mean(axis=1), 8000, 16000), "the sound resampled from 8000 to 16000 Hz by straight line"),
        (lambda x: by_soxr("VHQ")(x[:, 1], 8000, 16000), "channel 1 alone, where the reference has the mean of 2 chan"),
        (lambda x: by_soxr("VHQ")(x.sum(axis=1), 8000, 16000), "the sum of the channels, where the reference has the "),
        (lambda x: x.reshape(-1), "the samples of 2 channels one after another, read as those of one channel at 16000"),
    ],
)
def test_recording_read_otherwise_is_named(change: Callable[[np.ndarray], np.ndarray], expected: str) -> None:
    recorded = stereo(8000), 8000
    heard = change(recorded[0].astype(np.float64))
    assert hint_on(heard, read(recorded).samples, recorded).startswith("it is the filter bank of " + expected)


def test_the_right_sound_and_other_faults_get_no_hint() -> None:
    recorded = stereo(48000), 48000
    samples = read(recorded).samples
    draw = np.random.default_rng(0)
    right = fbank(samples)
    for candidate in (
        right * (1 + 3e-7 * draw.standard_normal(right.shape)),
        right * (1 + 1e-3 * draw.standard_normal(right.shape)),
        right[::-1],
        np.maximum(right, 5.0),
        fbank(samples[::-1].copy()),
    ):
        scene = Scene("frontend.fbank", right, candidate.astype(np.float32), 1e-6, samples=samples, recorded=recorded)
        assert not list(other_sounds(scene))
        shorter = replace(scene, candidate=scene.candidate[:-2])
        assert not list(other_sounds(shorter)), "some versions of the sound are the sound itself"


def test_verdict_of_a_run_reads_the_recording_at_its_own_rate(tmp_path: Path) -> None:
    import soundfile

    path = tmp_path / "talk.wav"
    soundfile.write(path, stereo(8000), 8000)
    recorded = soundfile.read(path)[0].mean(axis=1)
    reference, candidate = (
        Computed(name, Trace({"frontend.fbank": fbank(each.astype(np.float32))}, {}))
        for name, each in (("right", read(path).samples), ("wrong", recorded))
    )
    sources = Sources(reference, (None, ""), (None, ""))
    outcome = Judge("*", None, (), False, False, path).outcome(sources, candidate)
    assert (
        "It is the filter bank of the samples at 8000 Hz, read as if they were at 16000 Hz"
        in outcome.sentence.replace(": it is", ": It is")
    )


def test_resamplers_equal_those_that_they_are_named_after() -> None:
    signal = pytest.importorskip("scipy.signal")
    x = np.random.default_rng(0).standard_normal(4001)
    for rate, new_rate in ((16000, 8000), (8000, 16000), (44100, 16000), (16000, 11025)):
        expected = signal.resample_poly(x, *resamplers._reduced(rate, new_rate))
        np.testing.assert_allclose(by_kaiser(x, rate, new_rate), expected, atol=1e-12)
        expected = signal.resample(x, len(x) * new_rate // rate)
        np.testing.assert_allclose(resamplers.by_fourier(x, rate, new_rate), expected, atol=1e-12)


def test_hint_is_part_of_the_search_for_an_explanation() -> None:
    heard = fbank(partial(by_lines, rate=16000, new_rate=8000)(speech()).astype(np.float32))
    hint = explain(Scene("frontend.fbank", fbank(speech()), heard, 1e-6, samples=speech()), np.inf)
    assert hint is not None and hint.kind == "other sound"
