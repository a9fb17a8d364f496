"""Speaks the ten digits with voices of RHVoice and SVOX Pico, as recordings of more speakers for a demo's training.

    python -m workbench.training.more_voices FOLDER

The files are named as in the Free Spoken Digit Dataset, `DIGIT_SPEAKER_NUMBER.wav`, for `--more-speakers FOLDER`.
Debian has the programs (rhvoice, rhvoice-english, libttspico-utils). Its copyright files put these four voices of
RHVoice under LGPL 2.1 or later, and Pico under Apache 2.0.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import soundfile

from workbench.core.errors import Unavailable
from workbench.training.data.digits import WORDS
from workbench.training.data.voices import trim_silence

RHVOICE = ("alan", "bdl", "clb", "slt")  # two other English voices of Debian's package forbid derived works
PICO = ("en-US", "en-GB")
TAKES = 8  # of each digit and voice
PROGRAMS = {"RHVoice-test": "rhvoice and rhvoice-english", "pico2wave": "libttspico-utils"}
ENDINGS = ("", ".", "?", ",", "!")


def speak_digits(folder: Path) -> int:
    """Writes the recordings below a folder and returns their number; pitch, speed and ending vary with each.

    Raises `Unavailable` if a program is not installed.
    """
    missing = [package for program, package in PROGRAMS.items() if shutil.which(program) is None]
    if missing:
        raise Unavailable(f"the voices need the Debian packages {', '.join(missing)}, of its section non-free too")
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    for voice in (*RHVOICE, *PICO):
        for digit, word in enumerate(WORDS):
            for number in range(TAKES):
                pitch, speed = rng.uniform(-15, 15), rng.uniform(-25, 30)  # percent above the voice's own
                path = folder / f"{digit}_{voice}_{number}.wav"
                _say(voice, word + str(rng.choice(ENDINGS)), pitch, speed, path)
                samples, rate = soundfile.read(path, dtype="float32")
                soundfile.write(path, trim_silence(samples, rate), rate, subtype="PCM_16")
                count += 1
    return count


def _say(voice: str, text: str, pitch: float, speed: float, path: Path) -> None:
    if voice in RHVOICE:
        command = ["RHVoice-test", "-p", voice, "-t", f"{100 + pitch:.0f}", "-r", f"{100 + speed:.0f}", "-o", str(path)]
        subprocess.run(command, input=text.encode(), check=True, capture_output=True)
    else:
        marked = f'<pitch level="{100 + pitch:.0f}"><speed level="{100 + speed:.0f}">{text}</speed></pitch>'
        subprocess.run(["pico2wave", "-l", voice, "-w", str(path), marked], check=True, capture_output=True)


def main(arguments: list[str] | None = None) -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where the recordings are written")
    try:
        count = speak_digits(parser.parse_args(arguments).folder)
    except Unavailable as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{count} recordings\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
