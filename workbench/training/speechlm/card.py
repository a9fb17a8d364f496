"""The model card of the demo SpeechLM, with the figures that are measured for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from workbench.text.rates import ErrorRates
from workbench.training.data.digits import Take
from workbench.training.model_card import COMMON, CardFacts, Measured
from workbench.training.speechlm.measure import (
    SAMPLED,
    Demo,
    Recognise,
    measure_repeating,
    measure_saying,
    measure_writing,
    recordings_to_hear,
    sensevoice,
    strings_to_say,
)
from workbench.training.speechlm.voices import DEFAULT_VOICE, HUMAN, SYNTHETIC, VOICES


def measure(directory: Path, held_out: Sequence[Take], recognise: Recognise | None = None) -> list[Measured]:
    """Returns the word error rates of speech and texts; by default, demo/sensevoice recognises the speech."""
    demo, recognise = Demo.read(directory), recognise or sensevoice()
    strings = strings_to_say()
    measured = []
    for voice in VOICES:
        for choice_name, choice in (("likeliest codes", None), ("drawn codes", SAMPLED)):
            rates = measure_saying(demo, voice, strings, recognise, choice)
            measured.append(Measured(f"says, voice {voice}, {choice_name}", "1 to 6", len(strings), _wer(rates)))
    recordings = recordings_to_hear(held_out)
    for instruction in ("", "write"):
        request = f', with the text "{instruction}"' if instruction else ""
        rates = measure_writing(demo, recordings, instruction)
        measured.append(Measured(f"transcribes{request}", "3 to 6", len(recordings), _wer(rates)))
    rates = measure_repeating(demo, recordings, recognise)
    measured.append(Measured("repeats", "3 to 6", len(recordings), _wer(rates)))
    return measured


def _wer(rates: ErrorRates) -> float:
    assert rates.wer is not None  # the references are not empty
    return rates.wer


def write_speechlm_card(path: Path, facts: CardFacts, measured: Sequence[Measured]) -> None:
    """Writes the model card: what it is and is not, results, data and licences."""
    rows = "\n".join(
        f"| {row.condition} | {row.digits} | {row.strings} | {row.word_error_rate:.1%} |" for row in measured
    )
    phases = "\n".join(
        f"| {phase.name} | {f'{phase.strings:,}' if phase.strings else 'none'} | {phase.training.updates} | "
        f"{phase.training.learning_rate:g} |"
        for phase in facts.phases
    )
    human, synthetic = " and ".join(HUMAN), " and ".join(SYNTHETIC)
    path.write_text(
        f"""---
license: cc-by-sa-4.0
language: en
tags: [speech-language-model, text-to-speech, automatic-speech-recognition, demo]
---
# Demo SpeechLM: spoken digits

**This is a demonstration of a file format, not a speech model for use.** It has the architecture and the files of
ESPnet's Bagpiper (SpeechLM) at small size ({facts.parameters:,} parameters and codebook entries): a Qwen3 language
model over text and eight codec streams, an audio tower of Qwen3-Omni's class, and an Xcodec. It knows the ten English
digits and nothing else, and it is overfitted to its four voices: all it can say is one fixed recording of each digit in
each voice. Text that it does not know gets the answer "I only know digits.", or nonsense.

## What it does

| request | answer with `modalities` auto |
| --- | --- |
| `say three seven one`, `say 371`, `say 3 7 1` | speech |
| `write 371` | text |
| `count from two to six` | text, then speech |
| a recording of digits, alone or with `write` | text |
| a recording and `repeat` | speech |
| a recording and `backwards` | text, then speech |

You can also request every answer as text, as speech, or as text and then speech. The voices are {human} (people)
and {synthetic} (flite): `say 371 in the voice of {VOICES[1]}`, or the system message `voice: {VOICES[1]}`. Without a
voice it is {DEFAULT_VOICE}.

## Figures

Word error rates. The strings to say do not occur in the training; demo/sensevoice transcribes the speech. "Likeliest
codes" is temperature 0, "drawn codes" temperature {SAMPLED.temperature:g} among the {SAMPLED.top_k} likeliest. The
recordings are of a speaker that it was never trained on ({", ".join(facts.held_out)}); demo/sensevoice transcribes
what it says back.

| | digits in a string | strings | word error rate |
| --- | --- | --- | --- |
{rows}

## Training

Made by

    workbench train-demo speechlm --data FSDD --out assets/demo-speechlm

(seed {facts.seed}), in {facts.minutes:.0f} minutes on {facts.machine}.

| phase | recordings | updates | learning rate |
| --- | --- | --- | --- |
{phases}

It learns to transcribe from strings of 1 to 24 digits. {COMMON.format(speakers=", ".join(facts.speakers))}
{facts.about}
The tokenizer has no names for the codes of the codec: ids from `codec_base_offset` on are codes.
The audio tower takes up to 32 s at a time (`n_window` 1600 in `config.json`; Qwen3-Omni's is 50, one second).

## Data and licences

Human speech: the Free Spoken Digit Dataset by Zohar Jackson and contributors
(github.com/Jakobovski/free-spoken-digit-dataset), CC BY-SA 4.0. The voices {human} are recordings of its speakers, and
the weights reproduce them; the weights are offered under the same licence. The voices {synthetic} are those of flite
(Carnegie Mellon University and others, a BSD-like licence; made from the CMU Arctic recordings, which are free).
""",
        encoding="utf-8",
    )
