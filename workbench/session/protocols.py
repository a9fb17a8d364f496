"""The values every part exchanges, and the interface of a session.

A session is one loaded model on one runtime. It takes and returns plain values (numpy arrays, the dataclasses
below, iterators of them), so the same calls work in this process, in a process of its own, or across a network.
This file knows no model, no runtime and no user interface.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from workbench.core.errors import BadInput, Cancelled

AudioSource = str | Path | tuple[np.ndarray, int]
"""A recording: the path of an audio file, or (samples, sample rate in Hz)."""


@dataclass(frozen=True)
class Token:
    """One token of the output; `start` and `end` in seconds of the recording, where the model knows them."""

    id: int
    text: str
    start: float | None = None
    end: float | None = None


@dataclass(frozen=True)
class Segment:
    """A stretch of the recording and what was said in it; `tags` is what else the model heard (emotion, event)."""

    start: float  # seconds from the start of the recording
    end: float
    text: str
    tokens: tuple[Token, ...] = ()  # what the reader sees, with times; special tags are not among them
    tags: Mapping[str, str] = field(default_factory=dict)


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

    @property
    def real_time_factor(self) -> float:
        """Compute seconds per second of audio; 0 for an empty recording."""
        return self.compute_seconds / self.audio_seconds if self.audio_seconds else 0.0

    def to_dict(self) -> dict[str, Any]:
        """The transcript as plain JSON values, in the field order of the class: times to the millisecond."""
        return dict(_rounded(asdict(self)))

    def to_json(self) -> str:
        """One line of JSON; text stays readable (no ASCII escapes)."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)


def _rounded(value: Any, name: str = "") -> Any:
    """A plain value with the seconds in it rounded, by the names of fields.

    Times in a recording come of counts of samples and frames: sums of them have digits that mean nothing, such as
    0.44999999999999996. How long something took is given to the microsecond.
    """
    if isinstance(value, dict):
        return {key: _rounded(each, key) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_rounded(each) for each in value)
    if isinstance(value, float) and name in ("start", "end", "audio_seconds"):
        return round(value, 3)
    return round(value, 6) if isinstance(value, float) and name.endswith("_seconds") else value


@dataclass(frozen=True)
class Progress:
    """How far a long call is: `done` of `total` seconds of audio, and what it is doing."""

    done: float
    total: float
    activity: str


@dataclass(frozen=True)
class Partial:
    """What is written so far of a stretch that is still being transcribed; the next one of that stretch replaces it."""

    start: float  # the stretch, in seconds from the start of the recording
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


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The tokens of a language model whose own embeddings point most nearly the same way as given ones."""

    ids: np.ndarray  # [tokens, count], nearest first
    cosines: np.ndarray  # [tokens, count], of the angle between them
    texts: tuple[tuple[str, ...], ...]  # of the ids, special tokens too
    sample: np.ndarray  # [rows, hidden], float32: embeddings of the model's own, spread evenly over its vocabulary


Prompt = str | Sequence[Mapping[str, str]]
"""A text to go on from, or the messages of a conversation: mappings with `role` and `content`."""


class Trace(Mapping[str, np.ndarray]):
    """An ordered mapping from stage name to array, with who computed it.

    `meta` holds plain JSON values: model, runtime, dtype, versions, the options, the input's digest. The stage
    `text` is a zero-dimensional string array; in a file it is UTF-8 bytes.
    """

    def __init__(self, stages: Mapping[str, np.ndarray], meta: Mapping[str, Any]):
        self._stages = dict(stages)
        self.meta = dict(meta)

    def __getitem__(self, stage: str) -> np.ndarray:
        try:
            return self._stages[stage]
        except KeyError:
            raise KeyError(f"no stage {stage!r} in this trace; it has {', '.join(self._stages)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._stages)

    def __len__(self) -> int:
        return len(self._stages)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name} {'×'.join(map(str, array.shape)) or 'scalar'}" for name, array in self.items())
        return f"Trace({self.meta.get('model')}, {self.meta.get('runtime')}: {shapes})"

    def save(self, path: str | Path) -> Path:
        """Writes a `.safetensors` file: the arrays, and `meta` and the order of the stages as JSON metadata.

        One array is in memory at a time, where they are in a file. Raises `BadInput` where the path cannot be written
        or the format has no place for an array.
        """
        from workbench.trace.write import write_trace

        return write_trace(path, self, self.meta)

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Reads a `.safetensors` trace, also one that another program wrote without our metadata.

        Numbers of type bfloat16, which numpy does not have, come as float32. Raises `BadInput` if the file is missing,
        truncated or no safetensors file, or if its metadata is damaged.
        """
        from safetensors import SafetensorError, safe_open

        path = Path(path)
        if not path.is_file():
            raise BadInput(f"there is no trace file {path}")
        try:
            with safe_open(str(path), framework="numpy") as file:
                header = file.metadata() or {}
                held = list(file.keys())
                brain = {name for name in held if file.get_slice(name).get_dtype() == "BF16"}
                stages = {name: file.get_tensor(name) for name in held if name not in brain}
            if brain:
                stages |= _brain_floats(path, brain)
        except (SafetensorError, OSError, TypeError, AttributeError) as error:  # the last two: a type numpy has not
            raise BadInput(f"{path.name} is not a readable safetensors trace: {error}") from error
        order = _metadata(path, header, "stages", list)
        strings = _metadata(path, header, "strings", list)
        meta = _metadata(path, header, "meta", dict)
        for name in stages.keys() & {name for name in strings if isinstance(name, str)}:
            stages[name] = np.array(stages[name].astype(np.uint8).tobytes().decode("utf-8", "replace"))
        named = [name for name in order if isinstance(name, str) and name in stages]
        return cls({name: stages[name] for name in (*named, *sorted(stages))}, meta)


Json = TypeVar("Json", list[Any], dict[str, Any])


def _metadata(path: Path, header: Mapping[str, str], key: str, kind: type[Json]) -> Json:
    """The JSON value that a trace's metadata has under a key; empty where another program wrote none."""
    try:
        value = json.loads(header.get(key) or "null")
    except (ValueError, RecursionError) as error:
        raise BadInput(f"the metadata {key} of {path.name} is not JSON: {error}") from error
    if value is None:
        return kind()
    if not isinstance(value, kind):
        expected = "an object" if kind is dict else "a list"
        raise BadInput(f"the metadata {key} of {path.name} is a JSON {type(value).__name__}; expected {expected}")
    return value


def _brain_floats(path: Path, names: set[str]) -> dict[str, np.ndarray]:
    """The named bfloat16 tensors as float32: the upper half of its bits."""
    from safetensors import deserialize

    found = {name: tensor for name, tensor in deserialize(path.read_bytes()) if name in names}
    return {
        name: (np.frombuffer(tensor["data"], dtype="<u2").astype(np.uint32) << 16)
        .view(np.float32)
        .reshape(tensor["shape"])
        for name, tensor in found.items()
    }


class StageFilter:
    """Which stages a trace keeps: a glob such as `encoder.*`, several separated by commas, or `*` for all."""

    def __init__(self, pattern: str = "*"):
        self.patterns = tuple(part.strip() for part in pattern.split(",") if part.strip())
        if not self.patterns:
            raise BadInput("the stage pattern is empty; expected a glob such as encoder.* or *")

    def __call__(self, stage: str) -> bool:
        return any(fnmatchcase(stage, pattern) for pattern in self.patterns)


Given = Trace | str | Path | None
"""What a trace is computed from in place of its own stages: a trace, or the path of one."""

Out = str | Path | None
"""The file that a trace is written to; none where it is only returned."""


@runtime_checkable
class Session(Protocol):
    """One loaded model on one runtime. A class that inherits from it has the calls that only drain a stream."""

    model: str  # the card's id
    runtime: str
    load_seconds: float  # how long opening it took, set by whoever opened it
    log: Path | None = None  # of the engine that computes, where there is one

    def stream(self, audio: AudioSource, **options: Any) -> Generator[Event, None, None]:
        """Yields `Progress`, `Partial` text where the model writes token by token, each finished `Segment`, and last
        the `Transcript`. Closing the iterator stops the work, within one token."""
        ...

    def stream_batch(
        self, audios: Sequence[AudioSource], **options: Any
    ) -> Generator[tuple[int, Event | BadInput], None, None]:
        """Several recordings, `batch_size` stretches side by side: the events of each with its number.

        A recording that cannot be read has the error as its last event; the others go on.
        """
        ...

    def transcribe(self, audio: AudioSource, **options: Any) -> Transcript:
        """The transcript of a recording. Options are the family's (see `workbench.core.options`)."""
        return last_transcript(self.stream(audio, **options))

    def transcribe_batch(self, audios: Sequence[AudioSource], **options: Any) -> list[Transcript]:
        """The transcripts of several recordings, in their order; raises `BadInput` that names the one it is about."""
        return last_transcripts(self.stream_batch(audios, **options), audios)

    def generate_stream(
        self, prompt: Prompt, *, embeddings: Sequence[Any] = (), **options: Any
    ) -> Generator[Piece | Generation, None, None]:
        """Yields each `Piece` of text as it is written, and last the `Generation`. Closing the iterator stops the work,
        within one token.

        Args:
            embeddings: in place of the placeholders in the prompt, one for each, in order (see `workbench.embeddings.prompt`).
        """
        ...

    def generate(self, prompt: Prompt, *, embeddings: Sequence[Any] = (), **options: Any) -> Generation:
        """What the language model writes after the prompt."""
        return last_generation(self.generate_stream(prompt, embeddings=embeddings, **options))

    def trace(self, source: Any, stages: str = "*", given: Given = None, out: Out = None, **options: Any) -> Trace:
        """The stages that match the glob, of one pass over the whole recording; of a language model, over a prompt,
        which may have `embeddings` among the options.

        Args:
            given: another trace of that input, or the path of one, whose stages the pass goes on with in place of its
                own: then every stage is computed from the other's input of that stage, and shows its own error alone.
            out: a `.safetensors` file to write, by the process that computes; the trace returned then reads each array
                from there when it is asked for. Nothing stays where the call does not end well.
        """
        ...

    def neighbours(self, values: np.ndarray, count: int = 5) -> Neighbours:
        """The `count` nearest tokens of each embedding [tokens, hidden], by cosine; of a language model.

        Raises `BadInput` for embeddings of another width and for other models, `Unavailable` where the runtime does
        not show its table.
        """
        raise BadInput(f"{self.model} is no language model of its own; open one to see its tokens near an embedding")

    def close(self) -> None:
        """Frees the model. Further calls raise."""
        ...


def recordings(audios: Any) -> list[AudioSource]:
    """The recordings of a batch; raises `BadInput` where one recording stands in place of several."""
    alone = isinstance(audios, (str, Path)) or (isinstance(audios, tuple) and isinstance(audios[0], np.ndarray))
    if alone or not isinstance(audios, Sequence):
        raise BadInput(f"{str(audios)[:80]!r} was given for several recordings; expected a list of them")
    return list(audios)


def last_transcript(events: Iterator[Event]) -> Transcript:
    """Drains a session's stream, to its very end so that the session is free again, and returns the transcript."""
    transcript = None
    for event in events:
        if isinstance(event, Transcript):
            transcript = event
    if transcript is None:
        raise Cancelled("the transcription was stopped before it ended")
    return transcript


def last_transcripts(
    events: Generator[tuple[int, Event | BadInput], None, None], audios: Sequence[AudioSource]
) -> list[Transcript]:
    """Drains the stream of a batch and returns its transcripts; at the first recording that is bad it stops."""
    found: dict[int, Transcript] = {}
    with contextlib.closing(events):
        for number, event in events:
            if isinstance(event, BadInput):
                source = audios[number]
                name = Path(source).name if isinstance(source, (str, Path)) else ""
                named = f" ({name})" if name and name not in str(event) else ""
                raise BadInput(f"recording {number + 1} of {len(audios)}{named}: {event}") from event
            if isinstance(event, Transcript):
                found[number] = event
    if len(found) < len(audios):
        raise Cancelled(f"the transcription was stopped after {len(found)} of {len(audios)} recordings")
    return [found[number] for number in range(len(audios))]


def last_generation(pieces: Iterator[Piece | Generation]) -> Generation:
    """Drains a session's stream of text to its very end, and returns the generation."""
    generation = None
    for piece in pieces:
        if isinstance(piece, Generation):
            generation = piece
    if generation is None:
        raise Cancelled("the generation was stopped before it ended")
    return generation
