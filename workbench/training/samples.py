"""Makes the sample recordings in `assets/samples/`, with their reference texts and attribution.

    python -m workbench.training.samples --digits FOLDER --english FOLDER --out assets/samples

The digits folder is the Free Spoken Digit Dataset; the English folder has the two LibriVox clips named in ENGLISH. The
same input gives the same files.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from workbench.audio.constants import SAMPLE_RATE
from workbench.core.errors import BadInput
from workbench.training.data.digit_string import DigitString
from workbench.training.data.digits import load_fsdd, split_by_speaker
from workbench.training.data.take_bank import TakeBank
from workbench.training.evaluation import assemble, in_white_noise

DIGITS_LICENCE = "CC BY-SA 4.0"
DIGITS_SOURCE = (
    "Free Spoken Digit Dataset, Zohar Jackson and contributors, https://github.com/Jakobovski/free-spoken-digit-dataset"
)
ENGLISH_LICENCE = "public domain"
ENGLISH_SOURCE = "LibriVox, Jane Austen, Sense and Sensibility, chapter 1, https://librivox.org"
ENGLISH = {  # files of the English folder and their texts
    "librivox_austen_0880.wav": "he was not an ill disposed young man",
    "librivox_austen_0890.wav": "unless to be rather cold hearted and rather selfish is to be ill disposed",
}


@dataclass(frozen=True)
class Sample:
    """One entry of samples.json."""

    file: str
    text: str  # the text, in lower case
    language: str
    speaker: str
    trained_on: bool  # whether the demo models were trained on other strings of this speaker's takes
    licence: str
    source: str
    seconds: float
    domain: str = ""  # what is said, as the cards of models name it


@dataclass(frozen=True)
class Recipe:
    """A digit string to be made."""

    file: str
    speaker: str | None  # None: the speaker that the demo models were not trained on
    groups: tuple[tuple[int, ...], ...]  # groups of digits without a longer pause
    pause_seconds: tuple[float, float] = (0.8, 1.6)  # between groups
    snr_db: float | None = None  # of added white noise


RECIPES = (
    Recipe("three_seven_one.wav", None, ((3, 7, 1),)),
    Recipe("nine_two_eight_zero_four.wav", "jackson", ((9, 2, 8, 0, 4),)),
    Recipe("six_five_one_three.wav", "george", ((6, 5, 1, 3),)),
    Recipe("seven_digits.wav", None, ((0, 4, 2), (5, 8, 6, 9)), pause_seconds=(0.4, 0.6)),
    Recipe("five_zero_eight_two_noisy.wav", None, ((5, 0, 8, 2),), snr_db=10.0),
    Recipe(
        "long_digits.wav",
        None,
        (
            (1, 2, 3, 4, 5),
            (6, 7, 8, 9, 0),
            (4, 4, 1),
            (7, 0, 3, 5),
            (9, 8, 2, 6, 1, 3),
            (5, 5, 0),
            (2, 7, 9, 4),
            (8, 1, 6, 0, 3),
            (3, 9, 7, 2, 8),
            (0, 6, 4, 1),
            (5, 9, 2, 7, 3, 8),
        ),
    ),
    # A number of `workbench.training.data.telephone`.
    Recipe(
        "telephone_noisy.wav",
        None,
        ((0, 9, 6, 2), (9, 2, 4), (0, 6, 3)),
        pause_seconds=(0.3, 0.5),
        snr_db=-1.0,
    ),
)

README = """# Sample recordings

All are 16 kHz, 16 bit, mono. Their texts, speakers and lengths are in `samples.json`.

- **Digits**: takes of single digits from the [Free Spoken Digit Dataset](https://github.com/Jakobovski/free-spoken-digit-dataset)
  by Zohar Jackson and contributors, licence [CC BY-SA 4.0](https://creativecommons.org/licenses/by-sa/4.0/). Changes:
  resampled from 8 kHz, joined with pauses and a faint room noise, scaled; white noise added where
  the name says "noisy": 10 dB below the speech in `five_zero_eight_two_noisy.wav`, 1 dB above it in
  `telephone_noisy.wav`. The latter is a number of the country in `workbench.training.data.telephone`: `demo/sensevoice`
  alone writes "five" for "nine", and with the language model `assets/decoding/telephone.arpa.gz` it writes every
  digit correctly. These files are under the same licence. The demo models were not trained on the speaker `{held_out}`.
- **English**: two clips of Jane Austen, *Sense and Sensibility*, chapter 1, read for [LibriVox](https://librivox.org),
  public domain.

Made by `python -m workbench.training.samples --digits FOLDER --english FOLDER --out assets/samples`.
"""


def digit_sample(recipe: Recipe, bank: TakeBank, held_out: str, seed: int) -> DigitString:
    """Makes the recording of a recipe, from takes drawn with the seed; raises `BadInput` if the bank lacks the
    speaker.
    """
    speaker = recipe.speaker or held_out
    if (speaker, 1.0) not in bank.index:
        raise BadInput(f"the samples need takes of the speaker {speaker!r}, who is not in the folder of digits")
    rng = np.random.default_rng(seed)
    single_takes, _ = bank.index[speaker, 1.0]
    takes: list[int] = []
    gaps: list[float] = []
    for group in recipe.groups:
        for place, digit in enumerate(group):
            gaps.append(float(rng.uniform(0.12, 0.35) if place else rng.uniform(*recipe.pause_seconds)))
            takes.append(int(rng.choice(single_takes[digit])))
    string = assemble(bank, takes, gaps[1:], (0.3, 0.4), rng)
    return string if recipe.snr_db is None else in_white_noise(string, recipe.snr_db, rng)


def write_samples(digits: Path, english: Path, out: Path) -> list[Sample]:
    """Writes the wav files, `samples.json` and `README.md`; returns the list in samples.json."""
    import soundfile

    takes = load_fsdd(digits)
    held_out = split_by_speaker(takes)[1][0].speaker
    bank = TakeBank.of(takes)
    out.mkdir(parents=True, exist_ok=True)
    samples = []
    for seed, recipe in enumerate(RECIPES):
        string = digit_sample(recipe, bank, held_out, seed)
        _write(out / recipe.file, string.samples)
        samples.append(
            Sample(
                file=recipe.file,
                text=string.text,
                language="en",
                speaker=string.speaker,
                trained_on=string.speaker != held_out,
                licence=DIGITS_LICENCE,
                source=DIGITS_SOURCE,
                seconds=round(len(string.samples) / SAMPLE_RATE, 2),
                domain="english-digits",
            )
        )
    for name, text in ENGLISH.items():
        if not (english / name).is_file():
            raise BadInput(f"{english} has no file {name}; expected the two LibriVox clips there")
        sound = (english / name).read_bytes()  # unchanged
        (out / name).write_bytes(sound)
        seconds = round(soundfile.info(out / name).duration, 2)
        samples.append(Sample(name, text, "en", "LibriVox reader", False, ENGLISH_LICENCE, ENGLISH_SOURCE, seconds))
    (out / "samples.json").write_text(json.dumps([asdict(sample) for sample in samples], indent=2) + "\n")
    (out / "README.md").write_text(README.format(held_out=held_out))
    return samples


def _write(path: Path, samples: NDArray[np.float32]) -> None:
    import soundfile

    limited = samples / max(1.0, float(np.abs(samples).max()))
    soundfile.write(path, np.rint(limited * 32767.0).astype(np.int16), SAMPLE_RATE, subtype="PCM_16")


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command: writes the samples and lists them on standard output."""
    parser = argparse.ArgumentParser(prog="python -m workbench.training.samples", description=__doc__)
    parser.add_argument("--digits", type=Path, required=True, help="folder of the Free Spoken Digit Dataset")
    parser.add_argument("--english", type=Path, required=True, help="folder with the LibriVox clips")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parsed = parser.parse_args(arguments)
    for sample in write_samples(parsed.digits, parsed.english, parsed.out):
        sys.stdout.write(f"{sample.file}: {sample.seconds} s, {sample.text}\n")


if __name__ == "__main__":
    main()
