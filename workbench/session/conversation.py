"""The values of a conversation: what its calls yield and return.

Messages are plain: `{"role", "content"}`. The content is a text or a list of parts; see `workbench.session.messages`.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from workbench.core.errors import Cancelled
from workbench.session.values import Piece

Messages = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, eq=False)
class AudioPiece:
    """A bit more of the speech that is being generated."""

    samples: np.ndarray  # float32 mono; the pieces one after another are the answer's audio
    sample_rate: int  # Hz
    rows: int  # rows of codec tokens generated so far


@dataclass(frozen=True, eq=False)
class Answer:
    """What a model answered to a conversation."""

    model: str
    runtime: str
    text: str
    audio: np.ndarray | None  # float32 mono; None if there is none
    sample_rate: int | None  # Hz, of the audio
    finish: str  # stop: the model ended it; length: a limit did; cancelled: somebody stopped it
    token_ids: tuple[int, ...]  # stream 0, all after the prompt's <|assistant|>: markers, forced and closing ids too
    streams: np.ndarray | None  # global ids [rows, streams] of the audio, delayed, without the closing row
    prompt_rows: int  # positions of the prompt
    load_seconds: float
    compute_seconds: float  # the whole call
    first_text_seconds: float | None = None  # of the compute seconds, until the first text was there
    first_audio_seconds: float | None = None  # until the first samples were there
    rows_per_second: float | None = None  # of codec rows, while audio was generated, its decoding included
    memory_bytes: int | None = None  # peak resident memory of the session's process
    quantization: str | None = None  # as of a Transcript
    probabilities: np.ndarray | None = None  # [token_ids, streams], where asked for: of each id chosen, NaN elsewhere
    settings: Mapping[str, Any] = field(default_factory=dict)  # the options of the call, defaults included
    notes: tuple[str, ...] = ()  # what the user should know about how this came about

    @property
    def audio_seconds(self) -> float:
        """The length of the audio."""
        return 0.0 if self.audio is None or not self.sample_rate else len(self.audio) / self.sample_rate

    @property
    def real_time_factor(self) -> float | None:
        """Compute seconds per second of audio; None without audio."""
        return self.compute_seconds / self.audio_seconds if self.audio_seconds else None

    def to_dict(self) -> dict[str, Any]:
        """Returns the answer as plain JSON values: the audio as a base64 WAV file of 16-bit samples."""
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        plain["audio"] = None if self.audio is None else base64.b64encode(self.wav()).decode("ascii")
        plain["streams"] = None if self.streams is None else self.streams.tolist()
        if self.probabilities is not None:
            told = self.probabilities.astype(float)
            plain["probabilities"] = [
                [None if np.isnan(each) else round(each, 6) for each in row] for row in told.tolist()
            ]
        plain["token_ids"] = list(self.token_ids)
        plain["settings"], plain["notes"] = dict(self.settings), list(self.notes)
        plain["audio_seconds"], plain["real_time_factor"] = self.audio_seconds, self.real_time_factor
        return {name: round(value, 6) if isinstance(value, float) else value for name, value in plain.items()}

    def to_json(self) -> str:
        """Returns one line of JSON; text stays readable (no ASCII escapes)."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)

    def wav(self) -> bytes:
        """Returns the audio as a WAV file of 16-bit samples; empty without audio."""
        import soundfile

        if self.audio is None:
            return b""
        file = io.BytesIO()
        soundfile.write(file, np.clip(self.audio, -1.0, 1.0), self.sample_rate, format="WAV", subtype="PCM_16")
        return file.getvalue()


ConversationEvent = Piece | AudioPiece | Answer


def last_answer(events: Iterator[ConversationEvent]) -> Answer:
    """Drains a session's stream of a conversation to its very end, and returns the answer."""
    answer = None
    for event in events:
        if isinstance(event, Answer):
            answer = event
    if answer is None:
        raise Cancelled("the answer was stopped before it ended")
    return answer
