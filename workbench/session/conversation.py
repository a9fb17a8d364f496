"""The values that the calls of a conversation yield and return.

Messages are plain: `{"role", "content"}`. The content is a text or a list of parts; see `workbench.session.messages`.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from workbench.display.words import clipped
from workbench.session.streams import last_result
from workbench.session.values import Piece

Messages = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, eq=False)
class AnswerStart:
    """The first event of every conversation. The model is loaded, and has read the messages but computed nothing."""

    settings: Mapping[str, Any]  # the options of the call, defaults included
    prompt_rows: int = 0  # positions of the prompt; 0 if they are not known yet
    layout: Mapping[str, int] | None = None  # as in `Answer`
    load_seconds: float = 0.0  # as in `Answer`
    quantization: str | None = None  # as in `Transcript`
    notes: tuple[str, ...] = ()  # how the messages were read, where the user should know it


@dataclass(frozen=True, eq=False)
class AudioPiece:
    """The next part of the generated speech. Each new row yields one piece, with or without samples.

    All pieces joined give the answer's audio and streams.
    """

    samples: np.ndarray  # float32 mono; empty while no chunk of audio is complete
    sample_rate: int  # Hz
    rows: int  # rows of codec tokens generated so far
    streams: np.ndarray | None = None  # global ids [new rows, streams] of the rows since the last piece


@dataclass(frozen=True, eq=False)
class Answer:
    """A model's answer to a conversation."""

    model: str
    runtime: str
    text: str
    audio: np.ndarray | None  # float32 mono; None if there is none
    sample_rate: int | None  # of the audio, in Hz
    finish: str  # stop: the model ended the answer; length: a limit ended it; cancelled: the caller stopped it
    token_ids: tuple[int, ...]  # all ids of stream 0 after the prompt, with markers, forced ids and closing ids
    streams: np.ndarray | None  # global ids [rows, streams] of the audio, in the delay pattern, without the closing row
    prompt_rows: int  # positions of the prompt
    load_seconds: float
    compute_seconds: float  # of the whole call
    first_text_seconds: float | None = None  # from the start of computing to the first text
    first_audio_seconds: float | None = None  # from the start of computing to the first samples
    rows_per_second: float | None = None  # codec rows per second of generating and decoding audio
    memory_bytes: int | None = None  # peak resident memory of the session's process
    quantization: str | None = None  # as in `Transcript`
    probabilities: np.ndarray | None = None  # if requested: [token_ids, streams], of the chosen ids; NaN elsewhere
    layout: Mapping[str, int] | None = None  # the fields of `workbench.speech.layout.SpeechLayout`; None if it has none
    settings: Mapping[str, Any] = field(default_factory=dict)  # the options of the call, defaults included
    notes: tuple[str, ...] = ()  # what the user should know about how the answer was made

    @property
    def audio_seconds(self) -> float:
        """The length of the audio in seconds; 0 without audio."""
        return 0.0 if self.audio is None or not self.sample_rate else len(self.audio) / self.sample_rate

    @property
    def real_time_factor(self) -> float | None:
        """Compute seconds per second of audio; None without audio."""
        return self.compute_seconds / self.audio_seconds if self.audio_seconds else None

    def to_dict(self) -> dict[str, Any]:
        """Returns the answer as plain JSON values: the audio as a base64 WAV file of 16-bit samples."""
        fields_by_name = {each.name: getattr(self, each.name) for each in fields(self)}
        fields_by_name["audio"] = None if self.audio is None else base64.b64encode(self.wav()).decode("ascii")
        fields_by_name["streams"] = None if self.streams is None else self.streams.tolist()
        fields_by_name["probabilities"] = plain_probabilities(self.probabilities)
        fields_by_name["token_ids"] = list(self.token_ids)
        fields_by_name["layout"] = None if self.layout is None else dict(self.layout)
        fields_by_name["settings"], fields_by_name["notes"] = dict(self.settings), list(self.notes)
        fields_by_name["audio_seconds"], fields_by_name["real_time_factor"] = self.audio_seconds, self.real_time_factor
        return {name: round(value, 6) if isinstance(value, float) else value for name, value in fields_by_name.items()}

    def message(self) -> dict[str, Any]:
        """Returns the answer as a message, so that the conversation can go on.

        The message holds speech as the generated ids, or as samples if there are no ids; text and speech are in the
        order in which the model generated them.
        """
        speech: list[dict[str, Any]] = []
        if self.streams is not None and len(self.streams):
            speech = [{"type": "audio", "streams": self.streams}]
        elif self.audio is not None and len(self.audio):
            speech = [{"type": "audio", "audio": (self.audio, self.sample_rate)}]
        if not speech:
            return {"role": "assistant", "content": self.text}
        text: list[dict[str, Any]] = [{"type": "text", "text": self.text}] if self.text else []
        return {"role": "assistant", "content": [*speech, *text] if self.speaks_first else [*text, *speech]}

    @property
    def speaks_first(self) -> bool:
        """Whether the audio came before the text, as a model may choose by itself."""
        kinds = () if self.layout is None else (self.layout["audio"], self.layout["text"])
        return next((number for number in self.token_ids if number in kinds), None) in kinds[:1]

    def to_json(self) -> str:
        """Returns one line of JSON; text stays readable (no ASCII escapes)."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)

    def wav(self) -> bytes:
        """Returns the audio as a WAV file of 16-bit samples; empty without audio."""
        from workbench.display.sound import wav_file

        return b"" if self.audio is None or self.sample_rate is None else wav_file(self.audio, self.sample_rate)

    def __repr__(self) -> str:
        sound = f"{self.audio_seconds:.2f} s of audio" if self.audio is not None else "no audio"
        return f"<Answer {clipped(self.text)!r}, {sound}: by {self.model} on {self.runtime}, finish {self.finish}>"

    def _repr_html_(self) -> str:
        from workbench.session.display import answer_html

        return answer_html(self)


def plain_probabilities(probabilities: np.ndarray | None) -> list[list[float | None]] | None:
    """Returns an answer's probabilities [token_ids, streams] as plain JSON values, with None for NaN."""
    if probabilities is None:
        return None
    rows = probabilities.astype(float).tolist()
    return [[None if np.isnan(each) else round(each, 6) for each in row] for row in rows]


ConversationEvent = AnswerStart | Piece | AudioPiece | Answer


class AnswerSoFar:
    """Collects the events of a conversation and gives the answer so far at any time.

    If the caller stops early, `answer()` returns everything so far, with `cancelled` as `finish`.

    Args:
        model: the id of the model's card.
        runtime: the runtime that computes.
        settings: the options of the call; `AnswerStart` replaces them.
        clock: returns a time in seconds, which may stand still in a pause; by default the clock of the process. All
            times count from `AnswerStart` on, without the time to load the model.
    """

    def __init__(
        self,
        model: str,
        runtime: str,
        settings: Mapping[str, Any] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ):
        self._model, self._runtime = model, runtime
        self._first_event = AnswerStart(dict(settings or {}))
        self._clock = clock
        self._start_time = self._row_start_time = clock()
        self._texts: list[str] = []
        self._ids: list[int] = []
        self._samples: list[np.ndarray] = []
        self._streams: list[np.ndarray] = []
        self._rate: int | None = None
        self._rows = 0
        self._row_seconds = 0.0
        self._first_text: float | None = None
        self._first_audio: float | None = None
        self._complete: Answer | None = None

    def add(self, event: ConversationEvent) -> None:
        """Adds the next event."""
        now = self._clock()
        if isinstance(event, Answer):
            self._complete = event
        elif isinstance(event, AnswerStart):
            self._first_event = event
            self._start_time = self._row_start_time = now
        elif isinstance(event, Piece):
            self._texts.append(event.text)
            self._ids += event.tokens
            if event.text and self._first_text is None:
                self._first_text = now - self._start_time
            self._row_start_time = now
        else:
            self._rate, self._rows = event.sample_rate, event.rows
            self._row_seconds += now - self._row_start_time
            self._row_start_time = now
            if event.streams is not None and len(event.streams):
                self._streams.append(event.streams)
                self._ids += event.streams[:, 0].tolist()
            if len(event.samples):
                self._samples.append(event.samples)
                if self._first_audio is None:
                    self._first_audio = now - self._start_time

    def answer(self, finish: str = "cancelled") -> Answer:
        """Returns the model's answer if it is complete, else the answer so far."""
        if self._complete is not None:
            return self._complete
        return Answer(
            model=self._model,
            runtime=self._runtime,
            text="".join(self._texts),
            audio=np.concatenate(self._samples) if self._samples else None,
            sample_rate=self._rate if self._samples else None,
            finish=finish,
            token_ids=tuple(self._ids),
            streams=np.concatenate(self._streams) if self._streams else None,
            prompt_rows=self._first_event.prompt_rows,
            load_seconds=self._first_event.load_seconds,
            compute_seconds=self._clock() - self._start_time,
            first_text_seconds=self._first_text,
            first_audio_seconds=self._first_audio,
            rows_per_second=self._rows / self._row_seconds if self._row_seconds else None,
            quantization=self._first_event.quantization,
            layout=self._first_event.layout,
            settings=self._first_event.settings,
            notes=self._first_event.notes,
        )


def last_answer(events: Iterator[ConversationEvent]) -> Answer:
    """Drains a conversation's stream of events and returns the answer; see `last_result`."""
    return last_result(events, Answer, "the answer")
