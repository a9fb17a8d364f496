"""Measures the demo SpeechLM from its folder: a recogniser hears its speech, and its texts show what it understands.

The answers come from the training's generator, which works in batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.audio.constants import SAMPLE_RATE
from workbench.speech.delay import aligned
from workbench.text.rates import ErrorRates, pool_scores, score
from workbench.training.data.corpus import whisper_log_mel
from workbench.training.data.digits import Take, words_of
from workbench.training.evaluation import DigitString, evaluation_strings
from workbench.training.speechlm.codec import decode
from workbench.training.speechlm.files import LAYOUT, make_tokenizer, read_codec, read_weights
from workbench.training.speechlm.generate import Choice, generate_audio, generate_text
from workbench.training.speechlm.lm import DialogueBatch, SpeechLM, batch_of
from workbench.training.speechlm.rows import RowWriter
from workbench.training.speechlm.tasks import Part, Recording, held_out
from workbench.training.speechlm.tower import Recordings, positions_of
from workbench.training.speechlm.voices import Speaker

SAYING = 200  # strings to say
HEARING = 200  # recordings to understand
BATCH_SIZE = 50  # answers at a time
PADDING = np.zeros(SAMPLE_RATE // 5, np.float32)  # silence around what a recogniser hears
SAMPLED = Choice(temperature=0.8, top_k=20, seed=1)  # as the checkpoint's configuration asks for

Samples = NDArray[np.float32]
Recognise = Callable[[Samples], str]


@dataclass(frozen=True)
class Demo:
    """An opened demo checkpoint."""

    network: SpeechLM
    codec: Any
    tokenizer: Any

    @staticmethod
    def read(directory: Path) -> Demo:
        """Opens the folder of a checkpoint."""
        network = SpeechLM()
        network.load_state_dict(read_weights(directory))
        return Demo(network.eval(), read_codec(directory), make_tokenizer())

    def writer(self, positions: int = 0) -> RowWriter:
        """Returns a writer of prompts; every recording has this many positions."""
        silent = Speaker({}, np.zeros(LAYOUT.streams, np.int64))
        return RowWriter(self.encode, silent, lambda recording: positions)

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text."""
        found: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return found

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of ids."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))

    def sound(self, rows: NDArray[np.int64]) -> Samples:
        """Returns the samples of delayed rows."""
        codes = aligned(rows, LAYOUT)
        return decode(self.codec, codes) if len(codes) else np.zeros(0, np.float32)

    def say(self, prompts: Sequence[Sequence[Part]], choice: Choice | None = None) -> Iterator[NDArray[np.int64]]:
        """Yields the delayed rows of the answer with speech to each prompt of text."""
        examples = [self.writer().prompt(parts) for parts in prompts]
        for _, group in groupby(examples, key=lambda example: len(example.inputs)):
            group_rows = list(group)
            for first in range(0, len(group_rows), BATCH_SIZE):
                yield from generate_audio(
                    self.network, batch_of(group_rows[first : first + BATCH_SIZE], None, None), 400, choice
                )

    def recording_prompt(self, samples: Samples, instruction: str) -> DialogueBatch:
        """Returns the prompt of a recording, with an instruction after it unless that is empty."""
        mel = whisper_log_mel(samples)
        parts: list[Part] = [("user", Recording(0, ()))]
        if instruction:
            parts.append(("user", instruction))
        example = self.writer(int(positions_of([len(mel)])[0])).prompt(parts)
        recordings = Recordings((mel,), ((),), np.zeros(0, np.int64))
        return DialogueBatch(example.inputs[None], example.targets[None], recordings)


def strings_to_say(count: int = SAYING) -> list[tuple[int, ...]]:
    """Returns different strings of 1 to 6 digits that were never said in training, sorted by length."""
    rng = np.random.default_rng(0)
    found: set[tuple[int, ...]] = set()
    while len(found) < count:
        digits = tuple(int(digit) for digit in rng.integers(0, 10, int(rng.integers(1, 7))))
        if held_out(digits) and not _counts(digits):
            found.add(digits)
    return sorted(found, key=lambda digits: (len(digits), digits))


def _counts(digits: Sequence[int]) -> bool:
    """Whether an answer to a request to count has these digits."""
    steps = set(np.diff(digits).tolist())
    return len(digits) > 1 and steps in ({1}, {-1})


def requests(strings: Sequence[Sequence[int]], voice: str) -> list[list[Part]]:
    """Returns a request to say each string in a voice."""
    return [[("user", f"say {words_of(digits)} in the voice of {voice}")] for digits in strings]


def measure_saying(
    demo: Demo, voice: str, strings: Sequence[Sequence[int]], recognise: Recognise, choice: Choice | None = None
) -> ErrorRates:
    """Returns the error rates of a recogniser that hears the strings in a voice."""
    answers = demo.say(requests(strings, voice), choice)
    return rates_of(((digits, demo.sound(rows)) for digits, rows in zip(strings, answers, strict=True)), recognise)


def rates_of(sounds: Iterator[tuple[Sequence[int], Samples]], recognise: Recognise) -> ErrorRates:
    """Returns the error rates of a recogniser over spoken strings of digits."""
    return pool_scores(
        [score(words_of(digits), recognise(np.concatenate([PADDING, sound, PADDING]))) for digits, sound in sounds]
    )


def recordings_to_hear(held_out_takes: Sequence[Take], count: int = HEARING) -> list[DigitString]:
    """Returns recordings of 3 to 6 digits of speakers that were never trained on."""
    return evaluation_strings(held_out_takes, count=count, lengths=(3, 6))


def measure_writing(demo: Demo, recordings: Sequence[DigitString], instruction: str) -> ErrorRates:
    """Returns the error rates of what it writes when it hears the recordings."""
    return pool_scores(
        [
            score(
                string.text,
                demo.decode(generate_text(demo.network, demo.recording_prompt(string.samples, instruction))[0]),
            )
            for string in recordings
        ]
    )


def measure_repeating(demo: Demo, recordings: Sequence[DigitString], recognise: Recognise) -> ErrorRates:
    """Returns the error rates of a recogniser that hears what the demo says back."""
    sounds = (
        (string.digits, demo.sound(generate_audio(demo.network, demo.recording_prompt(string.samples, "repeat"))[0]))
        for string in recordings
    )
    return rates_of(sounds, recognise)


def sensevoice() -> Recognise:
    """Returns the demo SenseVoice as a recogniser."""
    from workbench.registry.registry import Registry

    session: Any = Registry().open("demo/sensevoice")
    return lambda samples: str(session.transcribe((samples, SAMPLE_RATE)).text)
