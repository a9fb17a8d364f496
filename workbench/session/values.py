"""The values that sessions take and return: recordings, transcripts, texts, and what comes while they are made."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from workbench.display.words import clipped

RECORDING, PROMPT, CONVERSATION = INPUTS = ("recording", "prompt", "conversation")
"""What a model's calls take, and what `trace` takes as its source."""

AudioSource = str | Path | tuple[np.ndarray, int]
"""A recording: the path of an audio file, or (samples, sample rate in Hz)."""


@dataclass(frozen=True)
class Token:
    """One token of the output; `start` and `end` in seconds of the recording, where the model knows them."""

    id: int
    text: str
    start: float | None = None
    end: float | None = None
    confidence: float | None = field(default=None, compare=False)  # its probability, 0 to 1, where the model tells


@dataclass(frozen=True)
class Segment:
    """A part of the recording and what was said in it; `tags` is what else the model heard (emotion, event)."""

    start: float  # seconds from the start of the recording
    end: float
    text: str
    tokens: tuple[Token, ...] = ()  # what the reader sees, with times; special tags are not among them
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Doubt:
    """Why a recording is not what the model was made for, so that the transcript may mean nothing."""

    kind: str  # silence, no speech, or other speech
    sentence: str  # for whoever reads the transcript


@dataclass(frozen=True)
class SpokenHypothesis:
    """One of the best results of a beam search; scores are natural logarithms, summed over the recording's chunks."""

    text: str
    tokens: tuple[Token, ...]  # with times from the best alignment
    words: tuple[Token, ...] | None  # with a lexicon: each word with its times, and the id of its first token
    score: float  # everything together; hypotheses are ranked by it
    acoustic: float
    lm: float  # of all language models, already weighted


@dataclass(frozen=True)
class Transcript:
    """What one model heard in one recording."""

    model: str
    runtime: str
    text: str
    language: str | None
    segments: tuple[Segment, ...]
    tokens: tuple[int, ...]  # ids as the network's decoding emitted them, special tags included
    audio_seconds: float
    load_seconds: float  # how long opening the session's model took
    compute_seconds: float  # reading, front end, network and decoding of this call
    memory_bytes: int | None = None  # peak resident memory of the session's process
    tags: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # what the user should know about how this came about
    quantization: str | None = None  # of the weights, where they were in a GGUF file; set by whoever opened the session
    hypotheses: tuple[SpokenHypothesis, ...] = ()  # of a beam search, best first; the first is the text above
    doubt: Doubt | None = None  # where the recording is not what the model was made for, as far as its card says that

    @property
    def real_time_factor(self) -> float:
        """Compute seconds per second of audio; 0 for an empty recording."""
        return self.compute_seconds / self.audio_seconds if self.audio_seconds else 0.0

    def to_dict(self) -> dict[str, Any]:
        """The transcript as plain JSON values, in the field order of the class: times to the millisecond.

        `hypotheses` is left out where there was no beam search, `doubt` where there is none.
        """
        absent = {name for name in ("hypotheses", "doubt") if not getattr(self, name)}
        return {name: value for name, value in _rounded(asdict(self)).items() if name not in absent}

    def to_json(self) -> str:
        """One line of JSON; text stays readable (no ASCII escapes)."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)

    def __repr__(self) -> str:
        made = f"{self.audio_seconds:.2f} s by {self.model} on {self.runtime}"
        return f"<Transcript {clipped(self.text)!r}: {made}, {len(self.tokens)} tokens>"

    def _repr_html_(self) -> str:
        from workbench.session.display import transcript_html

        return transcript_html(self)


@dataclass(frozen=True)
class Progress:
    """How far a long call is: `done` of `total` seconds of audio, and what it is doing."""

    done: float
    total: float
    activity: str


@dataclass(frozen=True)
class Partial:
    """What is written so far of a segment that is still being transcribed; the next one of that segment replaces it."""

    start: float  # the segment, in seconds from the start of the recording
    end: float
    text: str


Event = Progress | Partial | Segment | Transcript


@dataclass(frozen=True)
class Alternative:
    """A token that a language model might have written at a step."""

    id: int  # -1 where a server does not tell
    text: str  # of special tokens too
    logprob: float  # natural logarithm of the probability by the model itself, before penalties and temperature


@dataclass(frozen=True)
class Piece:
    """A bit more of a text that is being generated."""

    text: str  # what has been added; may be empty while a character is not whole
    tokens: tuple[int, ...]  # generated since the last piece
    alternatives: tuple[Alternative, ...] = ()  # of a piece of one token, where asked for: likeliest first
    prompt_tokens: int = field(default=0, compare=False)  # positions of the prompt; 0 if they are not known yet


@dataclass(frozen=True)
class Generation:
    """What a language model wrote after a prompt."""

    model: str
    runtime: str
    text: str
    tokens: tuple[int, ...]  # ids as generated, the end included
    prompt_tokens: int  # positions of the prompt
    finish: str  # stop: the model ended it; length: max_new_tokens did
    load_seconds: float
    compute_seconds: float
    first_token_seconds: float  # of the compute seconds, until the first token was there
    memory_bytes: int | None = None  # peak resident memory of the session's process
    quantization: str | None = None  # as of a Transcript
    alternatives: tuple[tuple[Alternative, ...], ...] = ()  # of each token, where asked for
    notes: tuple[str, ...] = ()  # what the user should know about how this came about

    def to_dict(self) -> dict[str, Any]:
        """The generation as plain JSON values, in the field order of the class."""
        return dict(_rounded(asdict(self)))

    def to_json(self) -> str:
        """One line of JSON; text stays readable (no ASCII escapes)."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)

    def __repr__(self) -> str:
        made = f"{len(self.tokens)} tokens by {self.model} on {self.runtime}"
        return f"<Generation {clipped(self.text)!r}: {made}, finish {self.finish}>"

    def _repr_html_(self) -> str:
        from workbench.session.display import generation_html

        return generation_html(self)


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The tokens of a language model whose own embeddings point most nearly the same way as given ones."""

    ids: np.ndarray  # [tokens, count], nearest first
    cosines: np.ndarray  # [tokens, count], of the angle between them
    texts: tuple[tuple[str, ...], ...]  # of the ids, special tokens too
    sample: np.ndarray  # [rows, hidden], float32: embeddings of the model's own, spread evenly over its vocabulary


@dataclass(frozen=True, eq=False)
class TextScore:
    """How likely a text is for a language model, in natural logarithms."""

    ids: np.ndarray  # int64 [tokens], of the text alone
    logprobs: np.ndarray  # float64 [tokens], of each token after the context and the tokens before it
    end: float | None = None  # of the end of the text after all its tokens, where asked for

    @property
    def total(self) -> float:
        """The sum of all tokens' log-probabilities, and that of the end where asked for."""
        return float(self.logprobs.sum()) + (self.end or 0.0)


Prompt = str | Sequence[Mapping[str, str]]
"""A text to go on from, or the messages of a conversation: mappings with `role` and `content`."""


def _rounded(value: Any, name: str = "") -> Any:
    """A plain value with the seconds in it rounded, by the names of fields.

    Times in a recording come of counts of samples and frames: sums of them have digits that mean nothing, such as
    0.44999999999999996. How long something took is given to the microsecond.
    """
    if isinstance(value, dict):
        return {key: _rounded(each, key) for key, each in value.items() if key != "confidence" or each is not None}
    if isinstance(value, (list, tuple)):
        return type(value)(_rounded(each) for each in value)
    if isinstance(value, float) and name in ("start", "end", "audio_seconds", "confidence"):
        return round(value, 3)
    return round(value, 6) if isinstance(value, float) and name.endswith("_seconds") else value
