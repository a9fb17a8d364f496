"""Explanations of fbank features computed with other options, found by recomputing them from the recording."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from workbench.audio.fbank import FbankOptions, fbank
from workbench.audio.whisper_mel import WhisperMel
from workbench.compare import compare, judge
from workbench.compare.explain import explain, with_hints
from workbench.compare.guesses.guess import Hint, Scene
from workbench.compare.guesses.mel_bank import LIBRARY, SPEECH_FEATURES, Bank
from workbench.trace.trace import Trace


@cache
def sound() -> np.ndarray:
    """Returns a second of vowel-like sound in noise with a mean other than zero."""
    draw, time = np.random.default_rng(0), np.arange(16000) / 16000
    voice = sum(np.sin(2 * np.pi * 120 * n * time) / n for n in range(1, 40))
    loud = 0.3 + 0.7 * np.sin(7 * time) ** 2
    return np.asarray(0.1 * loud * voice + 0.01 * draw.standard_normal(16000) + 0.02, np.float32)


def hint_and_sentence(candidate: np.ndarray, samples: np.ndarray | None = None) -> tuple[Hint | None, str]:
    samples = sound() if samples is None else samples
    reference, changed = (
        Trace({"frontend.fbank": each.astype(np.float32)}, {}) for each in (fbank(samples), candidate)
    )
    comparison = with_hints(compare(reference, changed), None, reference, changed, lambda: samples)
    verdict = judge(comparison)
    return verdict.explanation, verdict.sentence


def filter_bank(**choices: Any) -> np.ndarray:
    bank = replace(Bank(), **choices)
    frames = 1 + (len(sound()) - bank.length - bank.start) // bank.shift
    return bank(sound(), np.arange(frames), 80)


@pytest.mark.parametrize(
    "candidate, expected",
    [
        ({"window": "povey"}, "the filter bank has a povey window, where the reference has a hamming window"),
        ({"preemphasis": 0.0}, "the filter bank has the pre-emphasis 0, where the reference has the pre-emphasis 0.97"),
        (
            {"low_hz": 0.0},
            "the filter bank has its lowest band from 0 Hz on, where the reference has its lowest band f",
        ),
        ({"remove_dc": False}, "the filter bank has frames with their mean, where the reference has frames without"),
        ({"snip_edges": False}, "98×80 and 100×80: the filter bank has frames from sample -120 on with the mirrored s"),
    ],
)
def test_different_fbank_options_are_named(candidate: Any, expected: str) -> None:
    hint, sentence = hint_and_sentence(fbank(sound(), FbankOptions(**candidate)))
    assert hint is not None and hint.kind == "filter bank" and expected.casefold() in sentence.casefold()


@pytest.mark.parametrize(
    "choices, expected",
    [
        ({"mel": "slaney"}, "has the mel scale of Slaney, where the reference has the mel scale of HTK;"),
        ({"mel": "bark"}, "has the Bark scale of Traunmüller, where the reference has the mel scale of HTK;"),
        ({"mel": "erb"}, "has the scale of equivalent rectangular bandwidths (ERB), where the reference has the mel"),
        (
            {"mel": "bark_zwicker", "straight": True, "low": 0.0},
            "has its lowest band from 0 Hz on, the Bark scale of Zwicker and triangles over Hz, where the reference",
        ),
        (
            {"mel": "bark_schroeder", "straight": True, "low": 0.0},
            "has its lowest band from 0 Hz on, the Bark scale of Schroeder, 6 asinh(f / 600) and triangles over Hz, wh",
        ),
        ({"log": "log10", "window": "povey"}, "has a povey window and the logarithm to base 10, where the reference"),
        (
            {"log": "dB", "scale": 1.0, "floor": 1e-10},
            "has samples of full scale 1 and decibels, where the reference has samples of full scale 32768 and the nat",
        ),
        ({"floor": 1e5}, "has energies of at least 1e+05, where the reference has energies of at least 1.192e-07;"),
        ({"power": 1}, "has magnitudes, where the reference has powers;"),
        ({"first_kept": True}, "has the first sample of a frame without pre-emphasis, where the reference has the fir"),
        ({"dc_last": True}, "has the mean removed after pre-emphasis, where the reference has the mean removed bef"),
        ({"low": 80.0, "high": 7600.0}, "has its lowest band from 80 Hz on and its highest band up to 7600 Hz, wher"),
        (
            {"scale": 1.0, "floor": 0.0, "added": 1e-6},
            "has samples of full scale 1 and energies plus 1e-06, where the reference has samples of full scale 32768 ",
        ),
        ({"length": 368}, "has a window of 368 samples, where the reference has a window of 400 samples;"),
        (
            {"length": 320, "shift": 128},
            "has a window of 320 samples and a frame every 128 samples, where the reference",
        ),
        ({"length": 256, "points": 256}, "has a window of 256 samples and a Fourier transform of 256 points, where"),
        ({"start": 3}, "has frames from sample 3 on, where the reference has frames from sample 0 on;"),
        ({"start": -5}, "has frames from sample -5 on with zeros beyond the ends, where the reference has frames from"),
        ({"preemphasis": 0.96, "window": "povey"}, "has a povey window and the pre-emphasis 0.96, where the reference"),
        ({"divided": True}, "has energies divided by the points of the Fourier transform, where the reference has"),
        ({"corners": "nearest"}, "has triangles with corners rounded to whole bins, where the reference has triangle"),
        ({"corners": "floor", "low": 0.0}, "has its lowest band from 0 Hz on and triangles with corners rounded down"),
        ({"times": 2}, "has pre-emphasis twice, where the reference has pre-emphasis once;"),
        ({"whole": True}, "has pre-emphasis of the whole sound, where the reference has pre-emphasis of each frame;"),
        (
            {"periodic": True, "window": "hanning", "straight": True},
            "has a hanning window, a periodic window and triangles over Hz, where the reference has a hamming window, ",
        ),
    ],
)
def test_options_that_kaldi_lacks_are_named(choices: Any, expected: str) -> None:
    hint, sentence = hint_and_sentence(filter_bank(**choices))
    assert hint is not None and hint.kind == "filter bank" and expected.casefold() in sentence.casefold()


def test_filter_bank_of_python_speech_features_is_named() -> None:
    hint, _ = hint_and_sentence(SPEECH_FEATURES(sound(), np.arange(98), 80))
    assert hint is not None and "as python_speech_features has, energies divided by the points" in hint.sentence
    assert "a rectangular window, frames with their mean, pre-emphasis of the whole sound" in hint.sentence


def with_silence() -> np.ndarray:
    """Returns the sound with silence in the middle, so that floors matter."""
    samples = sound().copy()
    samples[6000:9000] = 0.0
    return samples


@pytest.mark.parametrize("padding", [0, 8000])
def test_whispers_front_end_is_named(padding: int) -> None:
    samples = with_silence()
    whisper = WhisperMel(80, 160, 400, False)(np.pad(samples, (0, padding)))
    hint, _ = hint_and_sentence(whisper, samples)
    assert hint is not None and "a hanning window, a periodic window, a Fourier transform of 400 points" in str(hint)
    assert "and zeros behind it beyond the ends" in str(hint) or not padding
    assert "energies of at least 1e-8 of the loudest and Whisper's (log10 + 4) / 4, where the reference" in str(hint)


def test_whispers_normalisation_of_kaldis_energies_is_named() -> None:
    samples = with_silence()
    logs = fbank(samples) / np.log(10)
    hint, _ = hint_and_sentence((np.maximum(logs, logs.max() - 8) + 4) / 4, samples)
    assert hint is not None and hint.sentence.startswith(
        "the filter bank has energies of at least 1e-8 of the loudest and Whisper's (log10 + 4) / 4, where the "
        "reference has energies of at least 1.192e-07 and the natural logarithm;"
    )
    hint, _ = hint_and_sentence((logs + 4) / 4, samples)
    assert hint is not None and hint.sentence.startswith(
        "the filter bank has Whisper's (log10 + 4) / 4, where the reference has the natural logarithm;"
    ), "without the clamp"


def test_choices_that_make_no_difference_are_not_named() -> None:
    bank = replace(LIBRARY, log="log10", decades=0.0, floor=1e-30)
    hint, _ = hint_and_sentence(bank(sound(), np.arange(101), 80))
    assert hint is not None and "energies" not in hint.sentence


def test_header_that_is_read_as_sound_is_named() -> None:
    header = np.random.default_rng(2).integers(-20000, 20000, 22) / np.float32(32768)
    hint, _ = hint_and_sentence(fbank(np.concatenate([header.astype(np.float32), sound()]))[:98])
    assert hint is not None and hint.sentence.startswith("from row 1 on the filter bank has frames from sample -22 on")
    assert "as when the 44 bytes of a WAV file's header are read as sound;" in hint.sentence


@pytest.mark.parametrize("allowed", [1e-6, 4e-7])
def test_full_scale_of_32767_is_named(allowed: float) -> None:
    """The difference is within tolerance, and float64 finds it."""
    scene = Scene(
        "frontend.fbank", fbank(sound()), filter_bank(scale=32767.0).astype(np.float32), allowed, samples=sound()
    )
    hint = explain(scene, 6e-6)
    assert hint is not None and hint.sentence.startswith("the filter bank has samples of full scale 32767, where the")


def test_unknown_changes_of_fbank_features_get_no_hint() -> None:
    noisy = fbank(sound()) * (1 + 1e-3 * np.random.default_rng(1).standard_normal((98, 80)))
    assert hint_and_sentence(noisy)[0] is None
    assert hint_and_sentence(fbank(sound()[::-1].copy()))[0] is None
    assert hint_and_sentence(np.maximum(filter_bank(), 0.3 * filter_bank()[:, :1]))[0] is None


def test_fbank_options_are_not_guessed_without_the_recording() -> None:
    reference, candidate = (
        Trace({"frontend.fbank": each}, {}) for each in (fbank(sound()), filter_bank(window="povey"))
    )
    assert judge(with_hints(compare(reference, candidate), None, reference, candidate)).explanation is None
