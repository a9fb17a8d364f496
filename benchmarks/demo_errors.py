"""Where the demo recognisers err: on unseen voices, on short strings, and on recordings without digits.

    python -m benchmarks.demo_errors --data FSDD [--voices FOLDER] [--speech FOLDER] [--music FOLDER] [--model FOLDER]

Word error rates are of the speaker that no demo was trained on, of synthetic voices with settings, pitches and speeds
that no training used, and of each speaker in `--voices` (files named as in the Free Spoken Digit Dataset). The other
figures are shares of recordings for which a model writes anything: silence, noises, synthetic music, synthetic speech
in words and languages that no training used, the two shipped English clips, and the recordings below `--speech` and
`--music`. No training decision used these recordings. `--model` measures checkpoint directories instead of the shipped
demos.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from workbench.audio.constants import SAMPLE_RATE
from workbench.core.settings import SessionSpec
from workbench.families import family_of
from workbench.isolation.loader import open_here
from workbench.registry.sources import assets
from workbench.session.protocols import Transcribes
from workbench.training.data.augment import bursts, noise
from workbench.training.data.digits import Take, load_fsdd, split_by_speaker
from workbench.training.data.music import music, tones
from workbench.training.data.other_speech import recorded_speech
from workbench.training.data.take_bank import TakeBank
from workbench.training.data.voices import VoiceSetting, espeak_variants, say, speak
from workbench.training.data.without_digits import babble
from workbench.training.evaluation import DigitString, evaluation_strings, measure

DEMOS = ("demo-sensevoice", "demo-paraformer", "demo-funasr-nano", "demo-fireredasr")
SEED = 1900
Samples = NDArray[np.float32]

ACCENTS = ("en-gb", "en-us", "en-gb-scotland", "en-us-nyc")
SENTENCES = (
    "the museum opens after lunch",
    "bring a warm coat and a map",
    "nobody believed the old captain",
    "my sister plays the violin",
    "wash your hands before dinner",
    "the library is closed on Sundays",
    "a strange noise woke the dog",
    "orange juice or apple juice",
    "we have run out of paper",
    "play some music in the kitchen",
    "absolutely not",
    "perhaps",
    "Thursday",
    "sheila",
    "backward",
    "follow me",
    "visual learning",
    "the answer was hidden in plain sight",
)
LANGUAGES = {
    "cs": "dobrý den, kde je nádraží",
    "da": "godmorgen, hvor ligger stationen",
    "hu": "jó reggelt kívánok, hol van az állomás",
    "el": "καλημέρα, πού είναι ο σταθμός",
    "ro": "bună ziua, unde este gara",
    "id": "selamat pagi, di mana stasiun kereta api",
    "vi": "chào buổi sáng, nhà ga ở đâu",
    "ko": "안녕하세요 역이 어디에 있습니까",
    "sw": "habari za asubuhi, kituo kiko wapi",
    "uk": "доброго ранку, де знаходиться вокзал",
}


def unseen_voices(count: int = 20) -> list[Take]:
    """Returns the ten digits, three times each, of synthetic voices with pitches and speeds that no training used."""
    rng = np.random.default_rng(SEED)
    variants = espeak_variants()
    takes = []
    for number in range(count):
        pitch, speed = int(rng.integers(5, 96)), int(rng.integers(110, 221))
        setting = VoiceSetting("espeak-ng", f"{ACCENTS[number % 4]}+{rng.choice(variants)}", pitch, speed)
        if number % 5 == 4:
            voice, low, high = (("slt", 150, 240), ("rms", 80, 150), ("awb", 90, 180), ("kal16", 80, 170))[
                number // 5 % 4
            ]
            setting = VoiceSetting("flite", voice, int(rng.integers(low, high)), int(rng.integers(70, 140)))
        for ending in ("", ".", ";"):
            for digit in range(10):
                samples, rate = speak(setting, (digit,), ending)
                takes.append(Take(f"unseen {number}", (digit,), samples, rate, human=False, number=len(takes)))
    return takes


def silences(count: int = 30) -> list[Samples]:
    """Returns digital silence, and noise near the smallest step of 16 bits."""
    rng = np.random.default_rng([SEED, 1])
    lengths = rng.uniform(0.5, 8.0, count)
    quiet = [10.0 ** (rng.uniform(-90.0, -55.0) / 20.0) * (number % 4 > 0) for number in range(count)]
    return [
        noise(int(seconds * SAMPLE_RATE), "pink" if number % 2 else "white", rng) * np.float32(level)
        for number, (seconds, level) in enumerate(zip(lengths, quiet, strict=True))
    ]


def noises(bank: TakeBank, count: int = 80) -> list[Samples]:
    """Returns noise of every colour at -50 to -6 dB, clicks and knocks, and the crowd's babble."""
    rng = np.random.default_rng([SEED, 2])
    kinds = ("white", "pink", "brown", "hum", "band", "fluctuating", "clicks", "babble")
    sounds = []
    for number in range(count):
        length, kind = int(rng.uniform(0.5, 6.0) * SAMPLE_RATE), kinds[number % len(kinds)]
        level = np.float32(10.0 ** (rng.uniform(-50.0, -6.0) / 20.0))
        if kind == "clicks":
            sound = bursts(length, rng) + noise(length, "pink", rng) * np.float32(1e-3)
        elif kind == "babble":
            sound = babble(bank, length, rng)
        else:
            sound = noise(length, kind, rng)
        sounds.append((sound * level / np.float32(np.abs(sound).max() + 1e-9)).astype(np.float32))
    return sounds


def synthetic_music(count: int = 60) -> list[Samples]:
    """Returns chords, melodies, drums and tones at -30 to -3 dB."""
    rng = np.random.default_rng([SEED, 3])
    return [
        (tones if number % 5 == 4 else music)(rng, float(rng.uniform(1.0, 8.0)))
        * np.float32(10.0 ** (rng.uniform(-30.0, -3.0) / 20.0))
        for number in range(count)
    ]


def synthetic_speech() -> list[Samples]:
    """Returns SENTENCES and LANGUAGES, each by four voices."""
    rng = np.random.default_rng([SEED, 4])
    variants = espeak_variants()
    takes = []
    for accent in ACCENTS:
        for language, text in [*((accent, text) for text in SENTENCES), *LANGUAGES.items()]:
            pitch, speed = int(rng.integers(15, 86)), int(rng.integers(120, 211))
            setting = VoiceSetting("espeak-ng", f"{language}+{rng.choice(variants)}", pitch, speed)
            if language == "en-us-nyc":
                setting = VoiceSetting("flite", str(rng.choice(["slt", "rms", "awb", "kal16"])), 120 + pitch // 2, 100)
            samples, rate = say(setting, text)
            takes.append(Take("", (), samples, rate, human=False))
    return at_16_khz(takes)


def at_16_khz(takes: Sequence[Take]) -> list[Samples]:
    """Returns the takes resampled, with half of full scale as their peak."""
    bank = TakeBank.of(takes)
    return [bank.sound(number) * np.float32(0.5) for number in range(len(takes))]


def pieces(folder: Path, most: int = 120) -> list[Samples]:
    """Returns evenly spread pieces, of six seconds at most, of the recordings in a folder."""
    takes = recorded_speech(folder)
    chosen = np.unique(np.linspace(0, len(takes) - 1, most).astype(int))
    return at_16_khz([takes[number] for number in chosen])


def main() -> None:
    """Prints a table with a row for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the Free Spoken Digit Dataset, a folder per speaker")
    parser.add_argument("--voices", type=Path, help="digits of further unseen speakers, named as in that dataset")
    parser.add_argument("--speech", type=Path, help="recordings of people who say no English digits")
    parser.add_argument("--music", type=Path, help="recordings of music")
    parser.add_argument("--model", type=Path, nargs="*", help="checkpoint directories (default: the shipped demos)")
    options = parser.parse_args()
    _, held_out = split_by_speaker(load_fsdd(options.data))
    synthetic = unseen_voices()

    strings = {
        "held-out, 3-7": evaluation_strings(held_out),
        "held-out, 1-2": evaluation_strings(held_out, seed=1, count=200, lengths=(1, 2)),
        "synthetic, 3-7": evaluation_strings(synthetic, count=120),
        "synthetic, 1-2": evaluation_strings(synthetic, seed=1, count=120, lengths=(1, 2)),
    }
    if options.voices:
        others = load_fsdd(options.voices)
        for speaker in sorted({take.speaker for take in others}):
            takes = [take for take in others if take.speaker == speaker]
            strings[f"{speaker}, 3-7"] = evaluation_strings(takes, count=80)
            strings[f"{speaker}, 1-2"] = evaluation_strings(takes, seed=1, count=80, lengths=(1, 2))
    clips = [Take("", (), *_read(path), human=True) for path in sorted((assets() / "samples").glob("librivox*.wav"))]
    nothing: dict[str, list[Samples]] = {
        "silence": silences(),
        "noise": noises(TakeBank.of(synthetic)),
        "music": synthetic_music(),
        "speech": synthetic_speech(),
        "LibriVox": at_16_khz(clips),
    }
    for name, folder in (("real speech", options.speech), ("real music", options.music)):
        if folder:
            nothing[name] = pieces(folder)

    counts = {name: len(recordings) for name, recordings in [*strings.items(), *nothing.items()]}
    print("| model |" + "".join(f" {name} ({count}) |" for name, count in counts.items()))
    print("| --- |" + " --- |" * len(counts))
    for directory in options.model or [assets() / name for name in DEMOS]:
        session = open_here(SessionSpec(directory.name, family_of(directory).name, "pytorch", directory))
        assert isinstance(session, Transcribes)
        print(
            f"| {directory.name} |" + "".join(f" {rate:.1%} |" for rate in rates(session, strings, nothing)), flush=True
        )


def rates(
    session: Transcribes, strings: Mapping[str, Sequence[DigitString]], nothing: Mapping[str, Sequence[Samples]]
) -> list[float]:
    """Returns the word error rates and the shares of recordings with an answer."""

    def write(samples: Samples) -> str:
        return session.transcribe((samples, SAMPLE_RATE)).text

    def rate(each: Sequence[DigitString]) -> float:
        word_error_rate = measure(write, each).wer
        assert word_error_rate is not None  # the references are not empty
        return word_error_rate

    def answered(sounds: Sequence[Samples]) -> float:
        return float(np.mean([write(sound) != "" for sound in sounds]))

    return [*map(rate, strings.values()), *map(answered, nothing.values())]


def _read(path: Path) -> tuple[Samples, int]:
    import soundfile

    samples, rate = soundfile.read(path, dtype="float32")
    return samples, int(rate)


if __name__ == "__main__":
    main()
