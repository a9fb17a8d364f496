"""A candidate of another recording is told from one whose front end is wrong."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from workbench.audio.fbank import fbank
from workbench.audio.read import read
from workbench.compare import compare, judge
from workbench.compare.guesses.mel_bank import Bank
from workbench.compare.guesses.other_sound import of_another_recording
from workbench.trace.trace import Trace

SAMPLES = Path("assets/samples")
NAMES = ("three_seven_one", "seven_digits", "six_five_one_three", "librivox_austen_0880", "long_digits")


def sound(name: str) -> np.ndarray:
    return read(SAMPLES / f"{name}.wav").samples


@pytest.mark.parametrize("pair", list(combinations(NAMES, 2)))
def test_two_recordings_are_told_apart(pair: tuple[str, str]) -> None:
    first, second = (fbank(sound(name)) for name in pair)
    assert "another recording" in (of_another_recording(first, second) or "")
    length = min(map(len, (first, second)))
    assert of_another_recording(first[:length], second[-length:])


@pytest.mark.parametrize("name", NAMES)
def test_faults_of_a_front_end_are_no_other_recording(name: str) -> None:
    samples, right = sound(name), fbank(sound(name))
    wrong = [
        fbank(samples[4000:]),
        fbank(np.pad(samples, (9000, 0))),
        fbank(samples[::2]),
        fbank(np.repeat(samples, 2)),
    ]
    wrong += [np.exp(right / 4), -right, right[:, :20], right[: len(right) // 2], right * np.linspace(0.2, 2, 80)]
    for bank in (
        Bank(shift=128),
        Bank(preemphasis=0.0, scale=1.0, remove_dc=False),
        Bank(length=512, window="povey"),
        Bank(mel="slaney", low=80.0, power=1),
        Bank(floor=0.0, added=1.0),
    ):
        frames = 1 + (len(samples) - bank.length) // bank.shift
        wrong.append(bank(samples, np.arange(frames), 80))
    for candidate in wrong:
        assert of_another_recording(right, candidate) is None


def test_verdict_names_the_other_recording() -> None:
    reference = Trace({"frontend.fbank": fbank(sound(NAMES[0]))}, {"input_digest": "a1"})
    for other in (fbank(sound(NAMES[1])), fbank(sound(NAMES[1]))[: len(reference["frontend.fbank"])]):
        sentence = judge(compare(reference, Trace({"frontend.fbank": other}, {}))).sentence
        assert sentence.count("as if it was computed on another recording.") == 1
        said = Trace({"frontend.fbank": other}, {"input_digest": "a1"})
        assert "another recording" not in judge(compare(reference, said)).sentence
    right = np.random.default_rng(0).standard_normal((35, 9))
    layers = [Trace({"encoder.output": np.random.default_rng(n).standard_normal((n, 9))}, {}) for n in (35, 87)]
    assert "87 along axis 0; a dump of another recording would differ so." in judge(compare(*layers)).sentence
    # A stage before it agrees.
    layers = [Trace({"encoder.input": right, "encoder.output": each["encoder.output"]}, {}) for each in layers]
    assert "87 along axis 0." in judge(compare(*layers)).sentence
