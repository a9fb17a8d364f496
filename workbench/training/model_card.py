"""Measures a demo checkpoint on speakers it was not trained on, and writes its model card."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.core.errors import BadInput
from workbench.core.settings import SessionSpec
from workbench.families import FAMILIES
from workbench.isolation.loader import open_here
from workbench.session.protocols import Transcribes
from workbench.training.data.corpus import CorpusOptions
from workbench.training.data.digits import Take
from workbench.training.evaluation import CONDITIONS, DigitString, evaluation_strings, measure, under
from workbench.training.training_run import Phase

STRINGS = 300
COMMON = """Half of the strings are of human speakers
({speakers}), half of synthetic voices that espeak-ng and flite speak at training time. Speed,
pitch, loudness, bandwidth, noise, rooms and telephone lines vary. The tight cuts were added because of the errors
of a first model on the unseen speaker: most of them were in one word whose consonants were cut off. No model was
trained on that speaker."""


GOING_ON = """## Continued training

Made from the checkpoint of the section above by

    workbench train-demo {command} --data FSDD --continue assets/demo-{command}{options} --out assets/demo-{command}

in {minutes:.0f} minutes on {machine}.

{phases}

Of these strings, {empty:.0%} have no digits, and an empty text: silence and noises, synthetic music and tones, speech
of the synthetic voices in made-up words, English and 14 other languages, human digits played backwards{recorded}.
{more}The strings with digits are shorter than before. Of the takes of "six", {six:.0%} are cut to their voiced part,
and 8 to 15 % of the others: most errors on the unseen speaker were in that word. The masks also stretch the frequency
axis by up to 10 %.

"""
MORE_RATES = """The rates at the top are those of this checkpoint; `python -m benchmarks.demo_errors` prints more rates,
also for recordings without digits.

"""
RECORDED = """, and
recordings of people who speak other languages ({speakers})"""
MORE_SPEAKERS = """More speakers say the digits ({speakers}). Three quarters of the strings are of people or of them.
"""
MORE_SPEAKERS_OPTION = " --more-speakers FOLDER"
FIGURES_HEAD = "| condition | digits in a string | strings | word error rate |"
DATA_HEAD = "## Data and licence\n"


@dataclass(frozen=True)
class Measured:
    """A word error rate and its conditions."""

    condition: str
    digits: str  # number of digits in a string
    strings: int
    word_error_rate: float


@dataclass(frozen=True)
class CardFacts:
    """The card's facts about the checkpoint's training."""

    family: str
    parameters: int
    speakers: Sequence[str]
    held_out: Sequence[str]
    phases: Sequence[Phase]
    seed: int
    minutes: float
    machine: str
    about: str = ""
    scale: float = 1.0  # of the numbers of updates, `--scale`
    more_speakers: Sequence[str] = ()  # of `--more-speakers`


def measure_checkpoint(directory: Path, family: str, held_out: Sequence[Take]) -> list[Measured]:
    """Returns the word error rates of the checkpoint on strings of the held-out speakers, under every condition."""
    session = open_here(SessionSpec(directory.name, family, "pytorch", directory))
    assert isinstance(session, Transcribes)
    transcribe = session.transcribe

    def rate(strings: Sequence[DigitString]) -> float:
        rates = measure(lambda samples: transcribe((samples, 16000)).text, strings)
        assert rates.wer is not None  # the references are not empty
        return rates.wer

    usual = evaluation_strings(held_out, count=STRINGS)
    measured = [Measured(name, "3 to 7", STRINGS, rate(under(name, usual))) for name in CONDITIONS]
    for shortest, longest in ((1, 2), (8, 16)):
        strings = evaluation_strings(held_out, seed=1, count=STRINGS // 3, lengths=(shortest, longest))
        measured.append(Measured("as recorded", f"{shortest} to {longest}", len(strings), rate(strings)))
    return measured


def write_card(path: Path, facts: CardFacts, measured: Sequence[Measured]) -> None:
    """Writes the model card: results, data and its licence, and the command that makes the checkpoint."""
    title = FAMILIES[facts.family].title
    command = facts.family.replace("_", "-")
    path.write_text(
        f"""---
license: cc-by-sa-4.0
language: en
tags: [automatic-speech-recognition, demo]
---
# Demo {title}: spoken digits

The {title} architecture at small size ({facts.parameters:,} parameters), in the file format of the published
checkpoints. It transcribes strings of spoken English digits as words, and nothing else. With it, every part of
the workbench works without a download.

## Figures

Word error rate on strings of a speaker it was never trained on ({", ".join(facts.held_out)}):

{_figures(measured)}

White noise covers 0 to 8 kHz, at the stated ratio to the mean power within the digits. A string joins
recordings of single digits with gaps of 50 to 300 ms. The strings are those of `workbench.training.evaluation`.

## Training

Made by

    workbench train-demo {command} --data FSDD --out assets/demo-{command}

from strings of 1 to 24 digits (seed {facts.seed}), in {facts.minutes:.0f} minutes on {facts.machine}.

{_phases(facts.phases)}

{COMMON.format(speakers=", ".join(facts.speakers))}
{facts.about}
## Data and licence

Human speech: the Free Spoken Digit Dataset by Zohar Jackson and contributors
(github.com/Jakobovski/free-spoken-digit-dataset), CC BY-SA 4.0. The weights are offered under the same licence.
""",
        encoding="utf-8",
    )


def continue_card(
    path: Path,
    earlier: str,
    facts: CardFacts,
    measured: Sequence[Measured],
    recorded: Sequence[str],
    corpus: CorpusOptions,
) -> None:
    """Writes the card of a checkpoint whose training continued: the earlier card with new figures and one more section.

    Args:
        earlier: the text of the card of the checkpoint that was continued.
        recorded: the speakers of recordings without English digits.
        corpus: the composition of the strings.

    Raises `BadInput` if the earlier card is not one of `write_card`.
    """
    before, head, after = earlier.partition(FIGURES_HEAD)
    _, _, after = after.partition("\n\n")
    training, licensed, licence = after.partition(DATA_HEAD)
    if not head or not licensed:
        raise BadInput(
            f"the model card of the earlier checkpoint lacks the line {FIGURES_HEAD!r} or {DATA_HEAD.strip()!r}"
        )
    command = facts.family.replace("_", "-")
    section = GOING_ON.format(
        command=command,
        options=(" --other-speech FOLDER" if recorded else "")
        + (MORE_SPEAKERS_OPTION if facts.more_speakers else "")
        + (f" --seed {facts.seed}" if facts.seed else "")
        + (f" --scale {facts.scale:g}" if facts.scale != 1 else ""),
        minutes=facts.minutes,
        machine=facts.machine,
        phases=_phases(facts.phases),
        empty=corpus.empty_share,
        six=corpus.voiced_share[6],
        more=MORE_SPEAKERS.format(speakers=", ".join(facts.more_speakers)) if facts.more_speakers else "",
        recorded=RECORDED.format(speakers=", ".join(recorded)) if recorded else "",
    )
    training = training.replace(MORE_RATES, "")
    path.write_text(
        f"{before}{_figures(measured)}\n\n{training}{section}{MORE_RATES}{licensed}{licence}", encoding="utf-8"
    )


def rounds_in(card: str) -> int:
    """Returns the number of rounds in which the training of a card's checkpoint continued."""
    return card.count(GOING_ON.partition("\n")[0])


def rounds_with_more_speakers(card: str) -> int:
    """Returns in how many of these rounds a folder had digits of more speakers."""
    return card.count(MORE_SPEAKERS_OPTION)


def _figures(measured: Sequence[Measured]) -> str:
    rows = [f"| {row.condition} | {row.digits} | {row.strings} | {row.word_error_rate:.1%} |" for row in measured]
    return "\n".join([FIGURES_HEAD, "| --- | --- | --- | --- |", *rows])


def _phases(phases: Sequence[Phase]) -> str:
    head = "| phase | strings | updates | LFR frames in a batch, at most | learning rate |"
    rows = [
        f"| {phase.name} | {f'{phase.strings:,}' if phase.strings else 'none'} | {phase.training.updates} | "
        f"{phase.training.frames_per_batch} | {phase.training.learning_rate:g} |"
        for phase in phases
    ]
    return "\n".join([head, "| --- | --- | --- | --- | --- |", *rows])
