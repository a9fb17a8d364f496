"""Dialogues of the demo SpeechLM as rows of ids, with the targets of the training.

A row has one id for each of eight streams. Text and markers use stream 0; an answer with speech has the codes of all
streams in the delay pattern: stream k is k rows late.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from workbench.speech.delay import delayed
from workbench.training.recognisers.speech_language import IGNORED, PLACEHOLDER
from workbench.training.speechlm.files import LAYOUT
from workbench.training.speechlm.tasks import Answer, Part, Recording, Turn
from workbench.training.speechlm.voices import Speaker

PAUSE = 10  # frames of silence where an answer with speech has nothing to say


@dataclass(eq=False)
class Example:
    """One dialogue, row by row."""

    inputs: NDArray[np.int64]  # [rows, 8]; PLACEHOLDER in stream 0 where a recording's features go
    targets: NDArray[np.int64]  # [rows, 8], what the row before it predicts; IGNORED where nothing is learnt
    recordings: list[int] = field(default_factory=list)  # in the pool, in the order of their placeholders


class RowWriter:
    """Writes dialogues as rows."""

    def __init__(
        self, encode: Callable[[str], list[int]], speaker: Speaker, positions: Callable[[Recording], int]
    ) -> None:
        """Takes the tokenizer, the voices, and the number of positions of a recording."""
        self.encode = encode
        self.speaker = speaker
        self.positions = positions

    def example(self, dialogue: Sequence[Turn | Part]) -> Example:
        """Returns the rows of a dialogue, all answers learnt."""
        rows = _Rows()
        rows.add(LAYOUT.bos)
        for entry in dialogue:
            if isinstance(entry[1], Answer):
                parts, answer = entry
                self._request(rows, parts)
                self._answer(rows, answer)
            else:
                self._request(rows, (entry,))
        return Example(np.array(rows.inputs), np.array(rows.targets), rows.recordings)

    def prompt(self, parts: Sequence[Part]) -> Example:
        """Returns the rows of system and user messages, and `<|assistant|>`."""
        rows = _Rows()
        rows.add(LAYOUT.bos)
        self._request(rows, parts)
        rows.add(LAYOUT.assistant)
        return Example(np.array(rows.inputs), np.array(rows.targets), rows.recordings)

    def _request(self, rows: _Rows, parts: Sequence[Part]) -> None:
        for number, (role, content) in enumerate(parts):
            rows.add(LAYOUT.system if role == "system" else LAYOUT.user)
            if isinstance(content, Recording):
                rows.add(LAYOUT.audio)
                rows.add(*[PLACEHOLDER] * self.positions(content))
                rows.recordings.append(content.number)
            else:
                rows.add(LAYOUT.text, *self.encode(content))
            continues_turn = number + 1 < len(parts) and parts[number + 1][0] == role
            rows.add(LAYOUT.eot if continues_turn else LAYOUT.eos)

    def _answer(self, rows: _Rows, answer: Answer) -> None:
        first = LAYOUT.audio if answer.natural == "audio" else LAYOUT.text
        rows.add(LAYOUT.assistant)
        if answer.form != "audio":
            rows.add(LAYOUT.text, target=first)
            for number in self.encode(answer.text):
                rows.add(number, target=number)
            close = LAYOUT.eos if answer.natural == "text" else LAYOUT.eot
            rows.add(LAYOUT.eos if answer.form == "text" else LAYOUT.eot, target=close)
        if answer.form == "text_audio":
            rows.add(LAYOUT.assistant)
            first = LAYOUT.audio
        if answer.form != "text":
            rows.add(LAYOUT.audio, target=first)
            silent = answer.digits is None
            codes = self.speaker.quiet(PAUSE) if silent else self.speaker.say(answer.voice, answer.digits or ())
            rows.add_audio(delayed(codes, LAYOUT))
            rows.add(LAYOUT.eos, target=LAYOUT.eos)


class _Rows:
    """Rows that grow."""

    def __init__(self) -> None:
        self.inputs: list[NDArray[np.int64]] = []
        self.targets: list[NDArray[np.int64]] = []
        self.recordings: list[int] = []

    def add(self, *ids: int, target: int = IGNORED) -> None:
        for number in ids:
            self.inputs.append(LAYOUT.row(number))
            self.targets.append(np.full(LAYOUT.streams, IGNORED))
            self.targets[-1][0] = target

    def add_audio(self, rows: NDArray[np.int64]) -> None:
        self.inputs.extend(rows)
        self.targets.extend(rows)


def without_context(example: Example) -> Example | None:
    """Returns the null branch of classifier-free guidance: everything before the last `<|audio|>` of an answer is zero.

    Returns None if the dialogue does not end with speech.
    """
    markers = np.flatnonzero((example.inputs[:, 0] == LAYOUT.audio) & (example.targets[:, 1:] == IGNORED).all(axis=1))
    if not len(markers) or example.targets[-2, 1] == IGNORED:
        return None
    inputs, targets = example.inputs.copy(), example.targets.copy()
    inputs[: markers[-1]] = LAYOUT.pad
    targets[: markers[-1] + 1] = IGNORED
    return Example(inputs, targets)


def disturbed(inputs: NDArray[np.int64], share: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """Returns the rows with a share of the codes replaced by others of their stream, as if sampling had drawn them."""
    wrong = (inputs >= LAYOUT.codec_first) & (rng.random(inputs.shape) < share)
    return np.where(wrong, LAYOUT.pads + 1 + rng.integers(0, LAYOUT.codes, inputs.shape), inputs)
