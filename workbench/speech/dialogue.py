"""A conversation of text and audio as a language model's prompt.

The prompt is `<|bos|>`, then for each part `<|role|><|text|>` or `<|role|><|audio|>`, its content, and a closing id:
`<|eot|>` if the next part is of the same role, else `<|eos|>`. It ends with `<|assistant|>`. Recordings of the user go
through the audio encoder. Earlier speech of the assistant goes back as codec rows. This file knows no tokenizer and no
network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from workbench.audio.constants import SAMPLE_RATE
from workbench.core.errors import BadInput
from workbench.core.phrases import counted
from workbench.speech.delay import check_rows, delayed
from workbench.speech.layout import SpeechLayout

TextIds = Callable[[str], Sequence[int]]  # global ids of a text
AudioRows = Callable[[int], int]  # positions that the audio encoder fills, for a number of samples
Encode = Callable[[np.ndarray], np.ndarray]  # codes [frames, streams] of samples at the codec's rate


@dataclass(frozen=True, eq=False)
class Turn:
    """One part of a message. Exactly one of text, samples and rows is set."""

    role: str  # system, user or assistant
    text: str | None = None
    samples: np.ndarray | None = None  # float32; of the assistant at the codec's rate, else at 16 kHz
    rows: np.ndarray | None = None  # global ids [rows, streams], of the assistant
    where: str = "the audio"  # names this part in messages


@dataclass(frozen=True, eq=False)
class Recording:
    """A recording in a prompt. The audio encoder turns it into embeddings later."""

    samples: np.ndarray  # float32 at 16 kHz
    rows: int  # positions that it fills
    where: str = "the recording"  # names this part in messages


PromptPart = np.ndarray | Recording


def prompt_parts(
    turns: Sequence[Turn],
    layout: SpeechLayout,
    text_ids: TextIds,
    context: int,
    audio_rows: AudioRows | None = None,
    encode: Encode | None = None,
) -> list[PromptPart]:
    """Returns the prompt of a conversation: arrays of ids [n, streams], and recordings for the audio encoder.

    Args:
        context: the most positions of a sequence.
        audio_rows: None if the model has no audio encoder.
        encode: None if the model has no codec; it is only called for the assistant's samples.

    Raises `BadInput` for a prompt that leaves no room for the answer, a recording that is too short or too long, audio
    that the model cannot take, and rows with ids of another stream.
    """
    builder = _Builder(layout)
    builder.ids(layout.bos)
    roles = {"system": layout.system, "user": layout.user, "assistant": layout.assistant}
    for number, turn in enumerate(turns):
        if turn.role not in roles:
            raise BadInput(f"the role is {turn.role!r:.80}; expected one of {', '.join(roles)}")
        role = roles[turn.role]
        if turn.text is not None:
            builder.ids(role, layout.text, *text_ids(turn.text))
        else:
            builder.ids(role, layout.audio)
            builder.add(_audio(turn, layout, context, audio_rows, encode))
        following = turns[number + 1].role if number + 1 < len(turns) else None
        builder.ids(layout.eot if following == turn.role else layout.eos)
    builder.ids(layout.assistant)
    if builder.length >= context:
        raise BadInput(
            f"the conversation is {builder.length} positions long; expected fewer than {context}, the context of the "
            "model, as the answer has to fit as well"
        )
    return builder.parts()


def _audio(
    turn: Turn, layout: SpeechLayout, context: int, audio_rows: AudioRows | None, encode: Encode | None
) -> np.ndarray | Recording:
    """Returns the body of an audio part: int64 [rows, streams], or a recording with its number of rows."""
    if turn.rows is not None:
        check_rows(turn.rows, layout, f"the streams of {turn.where}")
        return turn.rows
    if turn.samples is None:
        raise BadInput(f"{turn.where} has neither text nor audio; expected one of them")
    if turn.role == "assistant":
        if encode is None:
            raise BadInput(f"{turn.where} is audio of the assistant, but the model has no codec; expected text")
        try:
            return delayed(encode(turn.samples), layout)
        except BadInput as error:
            raise BadInput(f"{turn.where}: {error}") from error
    if audio_rows is None:
        raise BadInput(f"{turn.where} cannot be heard, as the model has no audio encoder; expected text")
    rows = audio_rows(len(turn.samples))
    if rows < 1:
        samples = counted(len(turn.samples), "sample")
        raise BadInput(f"{turn.where} has {samples} at 16 kHz; expected a longer recording")
    if rows >= context:
        raise BadInput(
            f"{turn.where}, a recording of {len(turn.samples) / SAMPLE_RATE:.1f} s, needs {rows} positions, and the "
            f"context of the model has {context} for the whole conversation; expected a shorter recording"
        )
    return Recording(turn.samples, rows, turn.where)


class _Builder:
    """Collects the parts of a prompt. It joins neighbouring ids to one array."""

    def __init__(self, layout: SpeechLayout):
        self._layout = layout
        self._parts: list[PromptPart] = []
        self._open: list[np.ndarray] = []
        self.length = 0

    def ids(self, *ids: int) -> None:
        """Appends positions of text and special tokens."""
        self.add(np.array([self._layout.row(number) for number in ids]))

    def add(self, part: PromptPart) -> None:
        """Appends rows of ids or a recording."""
        if isinstance(part, Recording):
            self._close()
            self._parts.append(part)
            self.length += part.rows
        else:
            self._open.append(part)
            self.length += len(part)

    def parts(self) -> list[PromptPart]:
        """Returns the parts so far."""
        self._close()
        return self._parts

    def _close(self) -> None:
        if self._open:
            self._parts.append(np.concatenate(self._open))
            self._open = []
