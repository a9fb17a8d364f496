"""Words that voice activity detection loses, and words that a model writes in recordings without speech.

    python -m benchmarks.voice_activity --data FSDD [--vad V ...] [--levels DB ...] [--kinds K ...] [--speakers S ...]

Long recordings are made of takes of single digits with the pauses of each kind; each level makes them quieter before
they are rounded to 16 bits. It prints the word error rate per kind, level and detector, beside the rate without a
detector, for which long recordings are cut at their quietest positions. A second table has recordings without speech.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from workbench.audio.constants import SAMPLE_RATE
from workbench.core.settings import SessionSpec, Settings
from workbench.isolation.loader import open_here
from workbench.registry.registry import Registry
from workbench.registry.sources import local_checkpoint
from workbench.session.protocols import Session
from workbench.text.rates import Score, pool_scores, score
from workbench.training.data.augment import (
    filtered,
    mu_law,
    noise,
    passband,
    power,
    quantised,
    reverberated,
    with_noise,
)
from workbench.training.data.digits import Take, load_fsdd, words_of
from workbench.training.data.take_bank import TakeBank
from workbench.training.data.voices import VoiceSetting, speak

NOISES = ("silence", "white", "pink", "hum", "fluctuating", "tones")
NOISE_LEVELS = (-20.0, -40.0, -60.0)  # mean power, dB of full scale
NOISE_SECONDS = 45.0
PEAK = 0.5  # of full scale, at level 0
UNSEEN = (VoiceSetting("espeak-ng", "en-gb-x-rp+Denis", 50, 150), VoiceSetting("flite", "slt", 190, 100))


@dataclass(frozen=True)
class Kind:
    """The rules that make a recording from takes."""

    pauses: tuple[float, float]  # seconds between groups of takes
    group: tuple[int, int] = (1, 1)  # takes in a group
    gaps: tuple[float, float] = (0.05, 0.3)  # seconds between takes of a group
    # Level of pink noise, in dB below the speech; None: digital silence.
    floor: float | None = None
    change: str = ""  # of the recording: telephone or room


KINDS = {
    "tight": Kind((0.5, 1.5)),
    "tight, faint noise": Kind((0.5, 1.5), floor=50.0),
    "tight, noise": Kind((0.5, 1.5), floor=20.0),
    "tight, loud noise": Kind((0.5, 1.5), floor=10.0),
    "roomy": Kind((2.0, 5.0)),
    "roomy, faint noise": Kind((2.0, 5.0), floor=50.0),
    "without pauses": Kind((0.05, 0.3)),
    "strings": Kind((0.6, 3.0), (3, 7), floor=50.0),
    "strings, long pauses": Kind((4.0, 10.0), (1, 4), floor=40.0),
    "telephone": Kind((0.5, 2.5), (1, 3), floor=50.0, change="telephone"),
    "room": Kind((0.5, 2.5), (1, 3), floor=50.0, change="room"),
}


def takes_by_speaker(speakers: Sequence[str], data: Path) -> Iterator[tuple[str, list[Take]]]:
    """Yields speakers and their takes of single digits; synthetic voices have the program's name."""
    takes = load_fsdd(data)
    for name in speakers or sorted({take.speaker for take in takes}):
        voices = [voice for voice in UNSEEN if voice.program == name]
        if voices:
            yield name, [Take(name, (digit,), *speak(voices[0], [digit]), human=False) for digit in range(10)]
        else:
            yield name, [take for take in takes if take.speaker == name]


def recording(takes: Sequence[Take], kind: Kind, seconds: float, seed: Sequence[int]) -> tuple[np.ndarray, str]:
    """Returns samples of at least that length with a peak of `PEAK`, and the words in them."""
    rng = np.random.default_rng(list(seed))
    bank = TakeBank.of(takes)
    parts, digits, active, length = [np.zeros(SAMPLE_RATE // 2, np.float32)], [], 0.0, SAMPLE_RATE // 2
    while length < seconds * SAMPLE_RATE:
        count = int(rng.integers(kind.group[0], kind.group[1] + 1))
        for place in range(count):
            take = int(rng.integers(len(bank.digits)))
            sound = bank.sound(take)
            pause = rng.uniform(*(kind.gaps if place < count - 1 else kind.pauses))
            parts += [sound, np.zeros(round(pause * SAMPLE_RATE), np.float32)]
            digits += bank.digits[take]
            active += len(sound)
            length += len(sound) + len(parts[-1])
    samples = np.concatenate(parts)
    if kind.change == "room":
        samples = reverberated(samples, rng)
    if kind.floor is not None:
        loud = power(samples) * len(samples) / active
        samples = with_noise(samples, noise(len(samples), "pink", rng), loud, kind.floor)
    if kind.change == "telephone":
        samples = mu_law(filtered(samples / np.abs(samples).max(), passband(300.0, 3400.0, edge=200.0)))
    return samples * np.float32(PEAK / np.abs(samples).max()), words_of(digits)


def without_speech(name: str, level: float) -> np.ndarray:
    """Returns samples of `NOISE_SECONDS` with that mean power in dB of full scale."""
    count = round(NOISE_SECONDS * SAMPLE_RATE)
    rng = np.random.default_rng(len(name))
    if name == "silence":
        return np.zeros(count, np.float32)
    if name == "tones":  # a chord that changes twice per second
        time = np.arange(count) / SAMPLE_RATE
        notes = rng.choice(220.0 * 2 ** (np.arange(25) / 12), (3, int(2 * NOISE_SECONDS)))
        phases = 2 * np.pi * np.cumsum(np.repeat(notes, SAMPLE_RATE // 2, axis=1), axis=1) / SAMPLE_RATE
        voice = sum(np.sin(phases * harmonic).sum(axis=0) / harmonic for harmonic in (1, 2, 3))
        samples = (voice * np.exp(-4 * (2 * time % 1))).astype(np.float32)
        samples /= np.float32(np.sqrt(power(samples)))
    else:
        samples = noise(count, name, rng)
    return samples * np.float32(10 ** (level / 20))


def transcript_of(session: Session, samples: np.ndarray, vad: str) -> str:
    """Returns the transcript with that detector."""
    return session.transcribe((quantised(samples), SAMPLE_RATE), vad=vad).text


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the Free Spoken Digit Dataset, a folder per speaker")
    parser.add_argument("--model", default="demo/sensevoice", help="a model that writes digits (default: %(default)s)")
    parser.add_argument(
        "--vad", nargs="+", default=["none", "auto"], help="detectors, as transcribe takes them (default: none auto)"
    )
    parser.add_argument("--levels", nargs="+", type=float, default=[0.0, -10.0, -20.0, -30.0, -40.0], help="in dB")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), metavar="KIND")
    parser.add_argument(
        "--speakers", nargs="+", default=[], help="names of the dataset, espeak-ng, flite (default: the dataset's)"
    )
    parser.add_argument("--seconds", type=float, default=90.0, help="of each recording (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    registry = Registry()
    card = registry.card(options.model)
    directory = local_checkpoint(card)
    assert directory is not None
    session = open_here(SessionSpec(card.id, card.family, "pytorch", directory, Settings(threads=1)))

    speakers = list(takes_by_speaker(options.speakers, options.data))
    head = " | ".join(options.vad)
    rule = " | ".join("---" for _ in options.vad)
    print(f"| recording | level, dB | words | {head} |\n| --- | --- | --- | {rule} |")
    sums: dict[str, list[Score]] = {vad: [] for vad in options.vad}
    for name in options.kinds:
        recorded = [
            recording(takes, KINDS[name], options.seconds, (options.seed, place))
            for place, (_, takes) in enumerate(speakers)
        ]
        for level in options.levels:
            cells = []
            for vad in options.vad:
                scores = [
                    score(text, transcript_of(session, samples * np.float32(10 ** (level / 20)), vad))
                    for samples, text in recorded
                ]
                sums[vad] += scores
                rates = pool_scores(scores)
                cells.append(f"{rates.wer:.1%}")
            words = sum(len(text.split()) for _, text in recorded)
            print(f"| {name} | {level:g} | {words} | {' | '.join(cells)} |", flush=True)
    cells = [f"{pool_scores(scores).wer:.1%}" for scores in sums.values()]
    print(f"| all | | | {' | '.join(cells)} |")

    print(f"\n| {NOISE_SECONDS:g} s without speech | power, dB | words written: {head} |\n| --- | --- | {rule} |")
    for name in NOISES:
        for level in NOISE_LEVELS if name != "silence" else (-100.0,):
            written = [
                str(len(transcript_of(session, without_speech(name, level), vad).split())) for vad in options.vad
            ]
            print(f"| {name} | {level:g} | {' | '.join(written)} |", flush=True)


if __name__ == "__main__":
    main()
