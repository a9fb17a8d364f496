"""The four voices of the demo SpeechLM: one take of each digit per voice, as clips and as codes.

One take per digit makes an answer deterministic. The codec sees only 80 samples beyond a frame, so the codes of a
string are the codes of its digits, one after another: strings need no encoding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.audio.constants import SAMPLE_RATE
from workbench.core.errors import BadInput
from workbench.training.data.digits import Take
from workbench.training.data.voices import VoiceSetting, speak
from workbench.training.speechlm.codec import FRAME, encode

Samples = NDArray[np.float32]
Clips = Mapping[tuple[str, int], Samples]  # by voice and digit

# Takes of human speakers, by digit. demo/sensevoice and PocketSphinx understand them, as far as they understand any
# take of that speaker's word.
HUMAN = {
    "george": (34, 11, 9, 22, 49, 46, 13, 42, 20, 49),
    "lucas": (45, 14, 22, 3, 6, 4, 27, 1, 46, 22),
}
SYNTHETIC = {
    "slt": VoiceSetting("flite", "slt", 170, 100),
    "rms": VoiceSetting("flite", "rms", 100, 90),
}
SLOW_EIGHT = 145  # duration in per cent: flite's eight is so short that recognisers hear six through the codec
VOICES = (*HUMAN, *SYNTHETIC)
DEFAULT_VOICE = VOICES[0]

LEVEL = 0.08  # root mean square of each clip
PEAK = 0.9  # at most
EDGE = 80  # samples of fading in and out
MARGIN = 2  # frames of silence before and after a digit; the nearer one may depend on the digit
OUTER = 1  # more frames of silence before and after a string


def voice_clips(takes: Sequence[Take]) -> dict[tuple[str, int], Samples]:
    """Returns a clip of whole frames at 16 kHz for each voice and digit, human takes first.

    Raises `BadInput` if the takes lack one of the human voices', `Unavailable` if flite is missing.
    """
    import soxr

    voices_of_takes: dict[tuple[str, tuple[int, ...], int], tuple[str, int]] = {
        (name, (digit,), number): (name, digit) for name, row in HUMAN.items() for digit, number in enumerate(row)
    }
    clips: dict[tuple[str, int], Samples] = {}
    for take in takes:
        key = voices_of_takes.get((take.speaker, take.digits, take.number)) if take.human else None
        if key is not None:
            clips[key] = clip_of(soxr.resample(take.samples, take.sample_rate, SAMPLE_RATE, "HQ"))
    missing = [f"{digit} of {name}" for name, digit in voices_of_takes.values() if (name, digit) not in clips]
    if missing:
        raise BadInput(f"the recordings lack takes of the demo's voices: {', '.join(missing)}")
    for name, setting in SYNTHETIC.items():
        for digit in range(10):
            spoken_as = replace(setting, speed=SLOW_EIGHT) if digit == 8 else setting
            samples, rate = speak(spoken_as, (digit,))
            clips[name, digit] = clip_of(soxr.resample(samples, rate, SAMPLE_RATE, "HQ"))
    return {(name, digit): clips[name, digit] for name in VOICES for digit in range(10)}


def clip_of(samples: Samples) -> Samples:
    """Returns the samples at the common level, faded at both ends, padded to whole frames."""
    gain = min(LEVEL / np.sqrt(np.mean(np.square(samples)) + 1e-12), PEAK / (np.abs(samples).max() + 1e-9))
    clip = samples.astype(np.float32) * np.float32(gain)
    ramp = np.linspace(0.0, 1.0, EDGE, dtype=np.float32)
    clip[:EDGE] *= ramp
    clip[-EDGE:] *= ramp[::-1]
    return np.pad(clip, (0, -len(clip) % FRAME))


@dataclass(frozen=True)
class Speaker:
    """Speaks strings of digits as codes."""

    units: Mapping[tuple[str, int], NDArray[np.int64]]  # codes [frames, 8] of each digit and its margins
    silence: NDArray[np.int64]  # codes [8] of a frame of silence

    @staticmethod
    def of(codec: Any, clips: Clips) -> Speaker:
        """Encodes the clips, each in its margins of silence."""
        units = {key: encode(codec, np.pad(clip, MARGIN * FRAME)) for key, clip in clips.items()}
        return Speaker(units, encode(codec, np.zeros(8 * FRAME, np.float32))[4])

    def shortened(self, frames: int = 5) -> Speaker:
        """Returns a speaker whose digits are cut to a few frames and one of silence, to practise their order."""
        return Speaker(
            {key: np.concatenate([codes[:frames], codes[-1:]]) for key, codes in self.units.items()}, self.silence
        )

    def say(self, voice: str, digits: Sequence[int]) -> NDArray[np.int64]:
        """Returns the codes [frames, 8] of the digits."""
        return np.concatenate([self.quiet(OUTER), *(self.units[voice, digit] for digit in digits), self.quiet(OUTER)])

    def quiet(self, frames: int) -> NDArray[np.int64]:
        """Returns the codes of silence [frames, 8]."""
        return np.tile(self.silence, (frames, 1))


def general_clips(takes: Sequence[Take], share: float, seed: int = 0) -> Iterator[Samples]:
    """Yields clips of a share of the takes, for the codec's fit."""
    import soxr

    rng = np.random.default_rng(seed)
    for take in takes:
        if rng.random() < share:
            yield clip_of(soxr.resample(take.samples, take.sample_rate, SAMPLE_RATE, "HQ"))
