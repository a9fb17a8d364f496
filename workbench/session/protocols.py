"""The interface of a session, as small protocols: what every session has, and one protocol for each capability.

A session is one loaded model on one runtime. It takes and returns plain values (numpy arrays, the dataclasses
of `workbench.session.values`, iterators of them), so the same calls work in this process, in a process of its own, or
across a network. A session has the capabilities of its model's family and no method for the others;
`workbench.session.calls` has the table of all calls. This file knows no model, no runtime and no user interface.
"""

from __future__ import annotations

import contextlib
import operator
import os
from collections.abc import Generator, Iterable, Iterator, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from workbench.audio.domain import Domain
from workbench.audio.in_memory import pair_of, samples_and_rate
from workbench.core.characters import check_characters
from workbench.core.errors import BadInput, Cancelled
from workbench.core.progress import OnProgress
from workbench.display.progress import notebook_bar
from workbench.session.conversation import Answer, ConversationEvent, Messages, last_answer
from workbench.session.streams import last_result
from workbench.session.values import (
    AudioSource,
    Event,
    Generation,
    Neighbours,
    Piece,
    Progress,
    Prompt,
    Segment,
    TextScore,
    Transcript,
)
from workbench.trace.steps import Follow
from workbench.trace.trace import OutputPath, StageSource, Trace


@runtime_checkable
class Session(Protocol):
    """One loaded model on one runtime. Its class also inherits from the protocols of its capabilities."""

    model: str  # the card's id
    runtime: str
    load_seconds: float  # seconds that opening took; set by the code that opens the session
    log: Path | None = None  # the log file of the engine that computes, if there is one

    def close(self) -> None:
        """Frees the model's memory. Later calls of other methods raise an error."""
        ...


@runtime_checkable
class Transcribes(Protocol):
    """Turns recordings into transcripts."""

    def stream(self, audio: AudioSource, **options: Any) -> Generator[Event, None, None]:
        """Yields `Progress`, `Partial` text if the model writes token by token, each finished `Segment`, and last the
        `Transcript`. Closing the iterator stops the work within one token."""
        ...

    def stream_batch(
        self, audios: Sequence[AudioSource], **options: Any
    ) -> Generator[tuple[int, Event | BadInput], None, None]:
        """Transcribes several recordings, `batch_size` segments at a time, and yields (recording, event) pairs. The
        recording is a number that counts from 0.

        If a recording cannot be read, its last event is the error. The others go on.
        """
        ...

    def transcribe(self, audio: AudioSource, **options: Any) -> Transcript:
        """Returns the transcript of a recording. The family declares the options (`workbench options MODEL`)."""
        return last_transcript(self.stream(audio, **options))

    def transcribe_batch(self, audios: Sequence[AudioSource], **options: Any) -> list[Transcript]:
        """Returns the transcripts of several recordings in order; raises `BadInput`, which names the first bad one."""
        return last_transcripts(self.stream_batch(audios, **options), audios)


@runtime_checkable
class Detects(Transcribes, Protocol):
    """Finds speech in recordings. Its transcripts have segments without text."""

    def detect(self, audio: AudioSource, **options: Any) -> tuple[Segment, ...]:
        """Returns the speech in a recording, in order, as segments without text."""
        ...


@runtime_checkable
class Doubts(Protocol):
    """Marks a transcript if its recording is outside the model's domain (see `Doubt`)."""

    domain: Domain | None  # the recordings that the model was made for; set by the code that opens the session


@runtime_checkable
class TakesSegments(Protocol):
    """Transcribes a long recording in segments."""

    longest_segment_seconds: float | None  # the longest in training; set by the code that opens the session


@runtime_checkable
class Generates(Protocol):
    """Writes text after a prompt."""

    def generate_stream(
        self, prompt: Prompt, *, embeddings: Sequence[Any] = (), **options: Any
    ) -> Generator[Piece | Generation, None, None]:
        """Yields each `Piece` of text as it is written, and last the `Generation`. Closing the iterator stops the work
        within one token.

        Args:
            embeddings: one for each placeholder in the prompt, in order (see `workbench.embeddings.prompt`).
        """
        ...

    def generate(self, prompt: Prompt, *, embeddings: Sequence[Any] = (), **options: Any) -> Generation:
        """Returns what the language model writes after the prompt."""
        return last_generation(self.generate_stream(prompt, embeddings=embeddings, **options))


@runtime_checkable
class Converses(Protocol):
    """Answers a conversation, in text or speech."""

    def converse_stream(self, messages: Messages, **options: Any) -> Generator[ConversationEvent, None, None]:
        """Yields `AnswerStart`, each `Piece` of text and each `AudioPiece` as it is generated, and last the `Answer`.
        Closing the iterator stops the work within one row.

        Args:
            messages: the conversation so far (see `workbench.session.messages`); the last one is the user's.
        """
        ...

    def converse(self, messages: Messages, **options: Any) -> Answer:
        """Returns the model's answer to the conversation."""
        return last_answer(self.converse_stream(messages, **options))


@runtime_checkable
class Traces(Protocol):
    """Records the stages of its computation."""

    def trace(
        self,
        source: Any,
        stages: str = "*",
        given: StageSource = None,
        out: OutputPath = None,
        *,
        steps: str = "",
        follow: Follow = None,
        **options: Any,
    ) -> Trace:
        """Returns the stages of one pass over the input whose names match the glob `stages`.

        Args:
            source: the model's input: a whole recording, a prompt for a language model, or a conversation.
            given: another trace of the same input, or its path. Each stage is then computed from the other trace's
                values, not from the pass's own, so a comparison shows the error of that stage alone.
            out: a `.safetensors` file that the computing process writes. The returned trace then reads each array from
                the file on access. If the call fails, no file stays.
            steps: for a model that writes token by token, the decoding steps to record as well: `first`, `all`, or
                numbers such as `1,5,20` (see `workbench.trace.steps`); none by default.
            follow: the generated ids that the steps read: a list, another trace, or the path of a trace; by default
                the ids that the model itself writes.
            options: the family's options; for a language model also `embeddings`, one for each placeholder.
        """
        ...


@runtime_checkable
class FindsNeighbours(Protocol):
    """Finds the tokens near an embedding."""

    def neighbours(self, values: np.ndarray, count: int = 5) -> Neighbours:
        """Returns the `count` nearest tokens of each embedding [tokens, hidden], by cosine similarity.

        Raises `BadInput` for embeddings of another width, and `Unavailable` if the runtime does not show its table.
        """
        ...

    def token_embeddings(self, ids: Sequence[int]) -> np.ndarray:
        """Returns the embeddings of tokens, float32 [tokens, hidden].

        Raises `BadInput` for an id outside the table, and `Unavailable` if the runtime does not show its table.
        """
        ...


@runtime_checkable
class NamesTokens(Protocol):
    """Shows the texts of tokens."""

    def token_texts(self, ids: Sequence[int]) -> tuple[str, ...]:
        """Returns the text of each token id for display, also of special tokens.

        Raises `BadInput` for an id outside the vocabulary, and `Unavailable` if the runtime does not show texts.
        """
        ...


@runtime_checkable
class ScoresTexts(Protocol):
    """Computes how likely texts are."""

    def score_texts(self, texts: Sequence[str], *, end: bool = True) -> list[TextScore]:
        """Returns the log-probabilities of each text's tokens, one score per text in the same order.

        The context of the first token is the begin token (bos), or the end token (eos) if the model has no bos. A text
        is taken as written: no chat template, no special tokens. An empty text has no tokens.

        Args:
            end: whether to score eos after each text, too. Without it, the call is faster.

        Raises `BadInput` for a text that is longer than the model's context, and for a value that is not a text.
        """
        ...


class Capabilities(Detects, Generates, Converses, Traces, FindsNeighbours, NamesTokens, ScoresTexts, Protocol):
    """Every call that a session may have, for type checkers. An open session has all of them, and refuses those that
    its model cannot do.
    """


def checked_recordings(audios: Any) -> list[AudioSource]:
    """Returns the recordings of a batch as a list, each as `checked_recording` returns it.

    Raises `BadInput` for a single recording, and for a member that is none.
    """
    is_pair = isinstance(audios, tuple) and len(audios) == 2 and isinstance(audios[1], Real)
    if is_pair or isinstance(audios, (str, bytes)) or not isinstance(audios, Sequence):
        name = (
            repr(str(audios)[:80])
            if isinstance(audios, (str, os.PathLike))
            else f"a value of type {type(audios).__name__}"
        )
        raise BadInput(f"{name} is not a list of recordings; expected a list, even for one recording")
    checked = []
    for number, audio in enumerate(audios, 1):
        try:
            checked.append(checked_recording(audio))
        except BadInput as error:
            raise BadInput(f"recording {number} of {len(audios)}: {error}") from error
    return checked


def checked_recording(audio: Any) -> AudioSource:
    """Returns a recording as a path or as (samples, sample rate), which can be sent to another process.

    Raises `BadInput` for anything else. It reads no file, and the values of samples are checked where they are read.
    """
    if isinstance(audio, (str, os.PathLike)):
        return audio
    pair = pair_of(audio)
    return pair if isinstance(pair[0], np.ndarray) else samples_and_rate(pair)


def checked_texts(texts: Any) -> list[str]:
    """Returns the texts of a batch as a list; raises `BadInput` for a single text, or a member that is not a text."""
    if isinstance(texts, str) or not isinstance(texts, Sequence):
        raise BadInput(f"{str(texts)[:80]!r} is not a list of texts; expected a list, even for one text")
    for number, text in enumerate(texts, 1):
        if not isinstance(text, str):
            raise BadInput(f"text {number} is of type {type(text).__name__}; expected a text")
        check_characters(text, f"text {number}")
    return list(texts)


def checked_ids(ids: Any) -> list[int]:
    """Returns the ids of tokens as a list; raises `BadInput` for a single id, and for a member that is none."""
    if isinstance(ids, (str, bytes)) or not isinstance(ids, Iterable) or getattr(ids, "ndim", 1) == 0:
        raise BadInput(f"the ids are of type {type(ids).__name__}; expected a list, even for one token")
    checked = []
    for number in ids:
        try:
            checked.append(operator.index(number))
        except TypeError:
            raise BadInput(f"{number!r:.80} is no id of a token; expected whole numbers") from None
        if checked[-1] < 0:
            raise BadInput(f"{number!r:.80} is no id of a token; ids count from 0")
    return checked


def last_transcript(events: Iterator[Event]) -> Transcript:
    """Drains a session's stream and returns the transcript; see `last_result`. In a notebook, a bar shows progress."""
    with notebook_bar("Transcribing") as bar:
        return last_result(_watched(events, bar), Transcript, "the transcription")


def _watched(events: Iterator[Event], on_progress: OnProgress | None) -> Iterator[Event]:
    """Yields the events of a transcription, and reports each `Progress` to the listener."""
    for event in events:
        if on_progress is not None and isinstance(event, Progress) and event.total > 0:
            on_progress(event.done / event.total, event.activity)
        yield event


def last_transcripts(
    events: Generator[tuple[int, Event | BadInput], None, None], audios: Sequence[AudioSource]
) -> list[Transcript]:
    """Drains the stream of a batch and returns its transcripts; raises `BadInput` at the first bad recording."""
    transcripts: dict[int, Transcript] = {}
    with contextlib.closing(events), notebook_bar("Transcribing") as bar:
        for number, event in events:
            if isinstance(event, BadInput):
                source = audios[number]
                name = Path(source).name if isinstance(source, (str, Path)) else ""
                name_note = f" ({name})" if name and name not in str(event) else ""
                raise BadInput(f"recording {number + 1} of {len(audios)}{name_note}: {event}") from event
            if isinstance(event, Transcript):
                transcripts[number] = event
                if bar is not None:
                    bar(len(transcripts) / len(audios), f"{len(transcripts)} of {len(audios)} recordings")
    if len(transcripts) < len(audios):
        raise Cancelled(f"the transcription was stopped after {len(transcripts)} of {len(audios)} recordings")
    return [transcripts[number] for number in range(len(audios))]


def last_generation(pieces: Iterator[Piece | Generation]) -> Generation:
    """Drains a session's stream of text and returns the generation; see `last_result`."""
    return last_result(pieces, Generation, "the generation")
