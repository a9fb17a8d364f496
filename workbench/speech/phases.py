"""The order of segments and ids in an answer of text and audio.

An answer has at most one segment of text and one of audio. A segment is `<|text|>` or `<|audio|>`, its tokens or rows,
and a closing id: `<|eot|>` if the assistant goes on, `<|eos|>` if it does not. `<|assistant|>` stands between two
segments. The phase depends only on the plan and on the ids of stream 0 so far. So generation can resume at any point of
an answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from workbench.speech.layout import SpeechLayout
from workbench.speech.plan import AnswerPlan


class Kind(StrEnum):
    """The kind of a position in an answer."""

    MARKER = "marker"  # <|text|>, <|audio|> or <|assistant|>
    TEXT = "text"  # a token of the text
    AUDIO = "audio"  # a row of the audio
    CLOSE = "close"  # <|eot|> or <|eos|>
    END = "end"  # nothing


@dataclass(frozen=True)
class Phase:
    """What comes next."""

    kind: Kind
    forced: int | None = None  # the id that comes next without a choice of the model
    closes: bool = False  # a closing id is legal instead of a token or row
    finish: str = ""  # why the answer has ended: stop (the model ended it) or length (a limit did)


class Cursor:
    """Follows an answer id by id."""

    def __init__(self, plan: AnswerPlan, layout: SpeechLayout):
        self.plan, self.layout = plan, layout
        self._open: Kind | None = None  # the segment that is being generated
        self._count = 0  # its tokens or rows so far
        self._length = 0  # positions of the answer so far
        self._missing = {"text": [Kind.TEXT], "audio": [Kind.AUDIO]}.get(plan.modalities, [Kind.TEXT, Kind.AUDIO])
        self._in_message = True  # the prompt ends with <|assistant|>
        self._finish = ""

    @property
    def phase(self) -> Phase:
        """What comes next."""
        if self._finish:
            return Phase(Kind.END, finish=self._finish)
        if self._length == self.plan.max_tokens:
            return Phase(Kind.END, finish="length")
        if self._open is not None:
            return self._inside(self._open)
        if not self._in_message:
            return Phase(Kind.MARKER, self.layout.assistant)
        if len(self._missing) > 1 and self.plan.modalities == "auto":
            return Phase(Kind.MARKER)
        return Phase(Kind.MARKER, self._marker(self._missing[0]))

    def _inside(self, segment: Kind) -> Phase:
        plan, layout = self.plan, self.layout
        text = segment is Kind.TEXT
        if self._count == (plan.max_text_tokens if text else plan.max_audio_rows):
            return Phase(Kind.CLOSE, layout.eot if self._goes_on() else layout.eos)
        return Phase(segment, closes=self._count >= (plan.min_text_tokens if text else plan.min_audio_rows))

    def _goes_on(self) -> bool:
        """Whether another segment follows the open one, however the model closes it."""
        return self.plan.modalities == "text_audio" and len(self._missing) > 1

    def _marker(self, segment: Kind) -> int:
        return self.layout.text if segment is Kind.TEXT else self.layout.audio

    def advance(self, token: int) -> None:
        """Takes the next id of stream 0; raises `ValueError` for one that cannot come next."""
        phase, layout = self.phase, self.layout
        if phase.forced is not None and token != phase.forced:
            raise ValueError(f"id {token} follows in an answer where only {phase.forced} can")
        if phase.kind is Kind.MARKER:
            self._take_marker(token)
        elif phase.kind is Kind.CLOSE or (phase.closes and token in (layout.eos, layout.eot)):
            self._close(token, limited=phase.kind is Kind.CLOSE)
        elif phase.kind is not Kind.END and _is_content(phase.kind, token, layout):
            self._count += 1
        else:
            raise ValueError(f"id {token} follows in an answer where {phase.kind} is due")
        self._length += 1

    def _take_marker(self, token: int) -> None:
        if not self._in_message:
            self._in_message = True
            return
        found = [segment for segment in self._missing if self._marker(segment) == token]
        if not found:
            raise ValueError(f"id {token} follows in an answer where a modality is due")
        self._open, self._count = found[0], 0

    def _close(self, token: int, limited: bool) -> None:
        goes_on = self._goes_on()
        self._missing = [segment for segment in self._missing if segment is not self._open]
        self._open, self._in_message = None, False
        continued = self.plan.modalities == "auto" and token == self.layout.eot and bool(self._missing)
        if not (goes_on or continued):
            self._finish = "length" if limited else "stop"


def _is_content(segment: Kind, token: int, layout: SpeechLayout) -> bool:
    first, end = (layout.text_first, layout.text_end) if segment is Kind.TEXT else layout.interval(0)
    return first <= token < end


def phase_after(history: Iterable[int], plan: AnswerPlan, layout: SpeechLayout) -> Phase:
    """Returns what comes next after the ids of stream 0 that an answer has so far.

    Raises `ValueError` for ids that the plan does not allow.
    """
    cursor = Cursor(plan, layout)
    for token in history:
        cursor.advance(token)
    return cursor.phase
