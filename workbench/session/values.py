"""The values that sessions take and return: recordings, transcripts, texts, and the events of work in progress."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from workbench.display.words import clipped

RECORDING, PROMPT, CONVERSATION = INPUTS = ("recording", "prompt", "conversation")
"""What a model's calls take, and what `trace` takes as its source."""

AudioSource = str | os.PathLike[str] | tuple[np.ndarray, int] | Mapping[str, Any]
"""A recording: the path of an audio file, or a recording in memory (see `workbench.audio.in_memory`)."""


@dataclass(frozen=True)
class Token:
    """One token of the output; `start` and `end` are seconds of the recording, None if the model does not know them."""

    id: int
    text: str
    start: float | None = None
    end: float | None = None
    confidence: float | None = field(default=None, compare=False)  # its probability, 0 to 1, if known


@dataclass(frozen=True)
class Segment:
    """A part of the recording and what was said in it; `tags` hold what else the model heard (emotion, event)."""

    start: float  # seconds from the start of the recording
    end: float
    text: str
    tokens: tuple[Token, ...] = ()  # the tokens of the text, with times; no special tags
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Doubt:
    """Why a recording is outside the model's domain, so that the transcript may be meaningless."""

    kind: str  # silence, no speech, or other speech
    sentence: str  # for the reader of the transcript


@dataclass(frozen=True)
class SpokenHypothesis:
    """One of the best results of a beam search; scores are natural logarithms, summed over the recording's chunks."""

    text: str
    tokens: tuple[Token, ...]  # with times from the best alignment
    words: tuple[Token, ...] | None  # each word with its times and its first token's id; None without a lexicon
    score: float  # the total, by which hypotheses are ranked
    acoustic: float
    lm: float  # the weighted scores of all language models


@dataclass(frozen=True)
class Transcript:
    """What one model recognised in one recording."""

    model: str
    runtime: str
    text: str
    language: str | None
    segments: tuple[Segment, ...]
    tokens: tuple[int, ...]  # the decoded ids, with special tags; for CTC without repeats and blanks
    audio_seconds: float
    load_seconds: float  # the time to load the session's model
    compute_seconds: float  # the time of this call: reading, front end, network and decoding
    memory_bytes: int | None = None  # peak resident memory of the session's process
    tags: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # what the user should know about how the transcript was made
    quantization: str | None = None  # the type of the weights in a GGUF file; set by the code that opened the session
    hypotheses: tuple[SpokenHypothesis, ...] = ()  # of a beam search, best first; the first is the text above
    doubt: Doubt | None = None  # set if the recording is outside the domain that the model's card names

    @property
    def real_time_factor(self) -> float:
        """Compute seconds per second of audio; 0 for an empty recording."""
        return self.compute_seconds / self.audio_seconds if self.audio_seconds else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Returns the transcript as plain JSON values, in the field order of the class.

        Times in the recording are in seconds, rounded to milliseconds. `hypotheses` is left out without a beam search,
        and `doubt` if there is none.
        """
        absent = {name for name in ("hypotheses", "doubt") if not getattr(self, name)}
        return {name: value for name, value in _rounded(asdict(self)).items() if name not in absent}

    def to_json(self) -> str:
        """Returns one line of JSON; text stays readable (no ASCII escapes)."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)

    def __repr__(self) -> str:
        origin = f"{self.audio_seconds:.2f} s by {self.model} on {self.runtime}"
        return f"<Transcript {clipped(self.text)!r}: {origin}, {len(self.tokens)} tokens>"

    def _repr_html_(self) -> str:
        from workbench.session.display import transcript_html

        return transcript_html(self)


@dataclass(frozen=True)
class Progress:
    """How far a long call is: `done` of `total` seconds of audio, and the present activity."""

    done: float
    total: float
    activity: str


@dataclass(frozen=True)
class Partial:
    """The text so far of an unfinished segment; the next `Partial` of that segment replaces it."""

    start: float  # of the segment, in seconds from the start of the recording
    end: float
    text: str


Event = Progress | Partial | Segment | Transcript


@dataclass(frozen=True)
class Alternative:
    """A token that a language model might have written at a step."""

    id: int  # -1 if a remote server does not return it
    text: str  # also for special tokens
    logprob: float  # natural logarithm of the model's probability, before penalties and temperature


@dataclass(frozen=True)
class Piece:
    """The next part of a text that is being generated."""

    text: str  # the new text; empty while a character is incomplete
    tokens: tuple[int, ...]  # generated since the last piece
    alternatives: tuple[Alternative, ...] = ()  # if requested, for a piece of one token: likeliest first
    prompt_tokens: int = field(default=0, compare=False)  # positions of the prompt; 0 if they are not known yet


@dataclass(frozen=True)
class Generation:
    """What a language model wrote after a prompt."""

    model: str
    runtime: str
    text: str
    tokens: tuple[int, ...]  # the generated ids, with the end token
    prompt_tokens: int  # positions of the prompt
    finish: str  # stop: the model ended the text; length: it reached max_new_tokens
    load_seconds: float
    compute_seconds: float
    first_token_seconds: float  # from the start of computing to the first token
    memory_bytes: int | None = None  # peak resident memory of the session's process
    quantization: str | None = None  # as in `Transcript`
    alternatives: tuple[tuple[Alternative, ...], ...] = ()  # of each token, if requested
    notes: tuple[str, ...] = ()  # what the user should know about how the text was made

    def to_dict(self) -> dict[str, Any]:
        """Returns the generation as plain JSON values, in the field order of the class."""
        return dict(_rounded(asdict(self)))

    def to_json(self) -> str:
        """Returns one line of JSON; text stays readable (no ASCII escapes)."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)

    def __repr__(self) -> str:
        origin = f"{len(self.tokens)} tokens by {self.model} on {self.runtime}"
        return f"<Generation {clipped(self.text)!r}: {origin}, finish {self.finish}>"

    def _repr_html_(self) -> str:
        from workbench.session.display import generation_html

        return generation_html(self)


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The tokens of a language model whose embeddings have the largest cosine similarity with the given ones."""

    ids: np.ndarray  # [tokens, count], nearest first
    cosines: np.ndarray  # [tokens, count], the cosine similarities
    texts: tuple[tuple[str, ...], ...]  # the tokens' texts, also of special tokens
    sample: np.ndarray  # float32 [rows, hidden]: the model's embeddings at ids spread evenly over its vocabulary


@dataclass(frozen=True, eq=False)
class TextScore:
    """How likely a text is for a language model, in natural logarithms."""

    ids: np.ndarray  # int64 [tokens], of the text alone
    logprobs: np.ndarray  # float64 [tokens], of each token given the tokens before it
    end: float | None = None  # the log-probability of eos after the text, if requested

    @property
    def total(self) -> float:
        """The sum of all log-probabilities, with that of eos if requested."""
        return float(self.logprobs.sum()) + (self.end or 0.0)


Prompt = str | Sequence[Mapping[str, str]]
"""A text to continue, or the messages of a conversation: mappings with `role` and `content`."""


def _rounded(value: Any, name: str = "") -> Any:
    """Returns a plain value in which seconds are rounded; field names say which numbers are seconds.

    Sums of times in a recording have meaningless digits, such as 0.44999999999999996, so they are rounded to
    milliseconds. Durations of work are rounded to microseconds.
    """
    if isinstance(value, dict):
        return {key: _rounded(each, key) for key, each in value.items() if key != "confidence" or each is not None}
    if isinstance(value, (list, tuple)):
        return type(value)(_rounded(each) for each in value)
    if isinstance(value, float) and name in ("start", "end", "audio_seconds", "confidence"):
        return round(value, 3)
    return round(value, 6) if isinstance(value, float) and name.endswith("_seconds") else value
