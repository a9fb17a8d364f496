"""How often the check of a domain is right: on digits of unseen speakers, other speech, music, noise and silence.

    python -m benchmarks.domain --data FSDD [--voices FOLDER] [--speech FOLDER ...] [--music FOLDER] [--strings 100]

Columns are models without confidences, and models with confidences, which the check uses.

Digits are strings of the speaker that no training used, as recorded and under each condition of the model cards, of
synthetic voices with settings that no training used, and of the speakers in `--voices` (files named as in the Free
Spoken Digit Dataset). For them the figure is a false alarm. For everything else it is a hit: synthetic speech in words
and languages that no training used, the two shipped English clips, music, noise, silence, and the recordings below
`--speech` and `--music`. No training decision used these recordings.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.demo_errors import at_16_khz, noises, pieces, silences, synthetic_music, synthetic_speech, unseen_voices
from workbench.audio.constants import SAMPLE_RATE
from workbench.audio.domain import Domain, confidence_in, read_domain
from workbench.audio.read import read
from workbench.core.settings import SessionSpec, Settings
from workbench.families import family_of
from workbench.isolation.loader import open_here
from workbench.registry.sources import assets
from workbench.session.protocols import Transcribes
from workbench.training.data.digits import load_fsdd, split_by_speaker
from workbench.training.data.take_bank import TakeBank
from workbench.training.evaluation import CONDITIONS, evaluation_strings, under

Samples = NDArray[np.float32]
Sessions = Mapping[str, Transcribes | None]  # by name; None for a model that reports no confidence
TELLING = ("demo-sensevoice", "demo-paraformer")


def main() -> None:
    """Prints a line for each kind of recording."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the Free Spoken Digit Dataset, a folder per speaker")
    parser.add_argument("--voices", type=Path, help="digits of further unseen speakers, named as in that dataset")
    parser.add_argument("--speech", type=Path, nargs="*", default=[], help="recordings of people who say other things")
    parser.add_argument("--music", type=Path, help="recordings of music")
    parser.add_argument("--domain", type=Path, default=assets() / "domains" / "english-digits.safetensors")
    parser.add_argument("--strings", type=int, default=100, help="strings of each kind, and at most so many pieces")
    options = parser.parse_args()
    domain = read_domain(options.domain)
    _, held_out = split_by_speaker(load_fsdd(options.data))
    synthetic = unseen_voices()

    sessions: dict[str, Transcribes | None] = {"others": None}
    for name in TELLING:
        place = assets() / name
        session = open_here(SessionSpec(name, family_of(place).name, "pytorch", place, Settings(threads=1)))
        assert isinstance(session, Transcribes)
        sessions[name] = session
    most = options.strings
    print(f"| {domain.name} | recordings |" + "".join(f" {name} |" for name in sessions))
    print("| --- | --- |" + " --- |" * len(sessions))

    def line(name: str, recordings: Sequence[Samples]) -> None:
        _line(domain, sessions, name, recordings)

    strings = evaluation_strings(held_out, count=most)
    for condition in CONDITIONS:
        line(f"digits, unseen speaker: {condition}", [each.samples for each in under(condition, strings)])
    short = evaluation_strings(held_out, seed=1, count=most, lengths=(1, 2))
    line("digits, unseen speaker: one or two", [each.samples for each in short])
    for name, lengths in (("three to seven", (3, 7)), ("one or two", (1, 2))):
        chosen = evaluation_strings(synthetic, count=most, lengths=lengths)
        line(f"digits, unseen synthetic voices: {name}", [each.samples for each in chosen])
        if options.voices:
            chosen = evaluation_strings(load_fsdd(options.voices), count=most, lengths=lengths)
            line(f"digits, other voices: {name}", [each.samples for each in chosen])
    samples = sorted((assets() / "samples").glob("*.wav"))
    digits = [read(path).samples for path in samples if not path.name.startswith("librivox")]
    line("digits: the shipped samples", digits)

    line("other speech, synthetic", synthetic_speech())
    line("LibriVox", [read(path).samples for path in samples if path.name.startswith("librivox")])
    for folder in options.speech:
        line(f"other speech: {folder.name}", pieces(folder, most))
    line("music, synthetic", synthetic_music())
    if options.music:
        line("music: recordings", pieces(options.music, most))
    line("noise", noises(TakeBank.of(synthetic)))
    line("silence", silences())
    _time(domain, at_16_khz(held_out[:1])[0])


def _line(domain: Domain, sessions: Sessions, name: str, recordings: Sequence[Samples]) -> None:
    shares = []
    for session in sessions.values():
        outside = [domain.outside(each, None, _confidence(session, each)) is not None for each in recordings]
        shares.append(f" {np.mean(outside):.1%} |")
    print(f"| {name} | {len(recordings)} |" + "".join(shares), flush=True)


def _confidence(session: Transcribes | None, samples: Samples) -> float | None:
    if session is None:
        return None
    transcript = session.transcribe((samples, SAMPLE_RATE))
    return confidence_in(transcript.text, [token.confidence for part in transcript.segments for token in part.tokens])


def _time(domain: Domain, samples: Samples) -> None:
    """Prints the processor time for a recording of 6 s, and of an hour."""
    for seconds in (6, 3600):
        recording = np.resize(samples, SAMPLE_RATE * seconds)
        started = time.process_time()
        domain.outside(recording)
        print(f"{1000 * (time.process_time() - started):.0f} ms of processor time for {seconds} s")


if __name__ == "__main__":
    main()
