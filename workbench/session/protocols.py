"""The interface of a session, as small protocols: what every session has, and one protocol for each capability.

A session is one loaded model on one runtime. It takes and returns plain values (numpy arrays, the dataclasses
of `workbench.session.values`, iterators of them), so the same calls work in this process, in a process of its own, or
across a network. A session has the capabilities of its model's family and no method for the others;
`workbench.session.calls` has the table of all calls. This file knows no model, no runtime and no user interface.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from workbench.audio.domain import Domain
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
from workbench.trace.trace import Given, Out, Trace


@runtime_checkable
class Session(Protocol):
    """One loaded model on one runtime. Its class inherits from the protocols of its capabilities, too."""

    model: str  # the card's id
    runtime: str
    load_seconds: float  # how long opening it took, set by whoever opened it
    log: Path | None = None  # of the engine that computes, where there is one

    def close(self) -> None:
        """Frees the model. Further calls raise."""
        ...


@runtime_checkable
class Transcribes(Protocol):
    """Turns recordings into transcripts."""

    def stream(self, audio: AudioSource, **options: Any) -> Generator[Event, None, None]:
        """Yields `Progress`, `Partial` text where the model writes token by token, each finished `Segment`, and last
        the `Transcript`. Closing the iterator stops the work, within one token."""
        ...

    def stream_batch(
        self, audios: Sequence[AudioSource], **options: Any
    ) -> Generator[tuple[int, Event | BadInput], None, None]:
        """Transcribes several recordings, `batch_size` segments side by side, and yields the events of each with its
        number.

        A recording that cannot be read has the error as its last event; the others go on.
        """
        ...

    def transcribe(self, audio: AudioSource, **options: Any) -> Transcript:
        """Returns the transcript of a recording. Options are the family's (see `workbench.core.options`)."""
        return last_transcript(self.stream(audio, **options))

    def transcribe_batch(self, audios: Sequence[AudioSource], **options: Any) -> list[Transcript]:
        """Returns the transcripts of several recordings in their order; raises `BadInput` that names a bad one."""
        return last_transcripts(self.stream_batch(audios, **options), audios)


@runtime_checkable
class Detects(Transcribes, Protocol):
    """Finds speech in recordings: its transcripts have segments and no words."""

    def detect(self, audio: AudioSource, **options: Any) -> tuple[Segment, ...]:
        """Returns the speech in a recording, in order, as segments without text."""
        ...


@runtime_checkable
class Doubts(Protocol):
    """Says of a transcript when its recording is not what the model was made for."""

    domain: Domain | None  # set by whoever opened the session


@runtime_checkable
class TakesSegments(Protocol):
    """Transcribes a long recording in segments."""

    longest_segment_seconds: float | None  # the longest that the model was trained on; the session's opener sets it


@runtime_checkable
class Generates(Protocol):
    """Writes text after a prompt."""

    def generate_stream(
        self, prompt: Prompt, *, embeddings: Sequence[Any] = (), **options: Any
    ) -> Generator[Piece | Generation, None, None]:
        """Yields each `Piece` of text as it is written, and last the `Generation`. Closing the iterator stops the work,
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
        """Yields `Begun`, then each `Piece` of text and each `AudioPiece` as they are generated, and last the `Answer`.
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
    """Shows the stages of its computation."""

    def trace(
        self,
        source: Any,
        stages: str = "*",
        given: Given = None,
        out: Out = None,
        *,
        steps: str = "",
        follow: Follow = None,
        **options: Any,
    ) -> Trace:
        """Returns the stages that match the glob, of one pass over the whole recording; of a language model, over a
        prompt, which may have `embeddings` among the options.

        Args:
            given: another trace of that input, or the path of one, whose stages the pass goes on with in place of its
                own: then every stage is computed from the other's input of that stage, and shows its own error alone.
            out: a `.safetensors` file to write, by the process that computes; the trace returned then reads each array
                from there when it is asked for. Nothing stays where the call does not end well.
            steps: the decoding steps whose stages the trace has too, for a model that writes token by token: `first`,
                `all`, or numbers such as `1,5,20` (see `workbench.trace.steps`); none by default.
            follow: the generated ids that the steps read, as a list, or as another trace or the path of one; by default
                what the model itself writes.
        """
        ...


@runtime_checkable
class FindsNeighbours(Protocol):
    """Names the tokens near an embedding."""

    def neighbours(self, values: np.ndarray, count: int = 5) -> Neighbours:
        """Returns the `count` nearest tokens of each embedding [tokens, hidden], by cosine.

        Raises `BadInput` for embeddings of another width, `Unavailable` where the runtime does not show its table.
        """
        ...

    def token_embeddings(self, ids: Sequence[int]) -> np.ndarray:
        """Returns the embeddings of tokens, float32 [tokens, hidden].

        Raises `BadInput` for an id outside the table, `Unavailable` where the runtime does not show its table.
        """
        ...


@runtime_checkable
class NamesTokens(Protocol):
    """Shows the texts of tokens."""

    def token_texts(self, ids: Sequence[int]) -> tuple[str, ...]:
        """Returns the text of each token for display, special tokens too.

        Raises `BadInput` for an id that the model does not have, `Unavailable` where the runtime does not show texts.
        """
        ...


@runtime_checkable
class ScoresTexts(Protocol):
    """Says how likely texts are."""

    def score_texts(self, texts: Sequence[str], *, end: bool = True) -> list[TextScore]:
        """Returns the log-probabilities of each text's tokens, for the texts in their order.

        The first token follows the token that begins texts (bos), or the one that ends them (eos) if the model has no
        other. A text is taken as written: no chat template, no special tokens. An empty text has no tokens.

        Args:
            end: whether to score eos after each text, too. Without it there is less to compute.

        Raises `BadInput` for a text that is longer than the model's context, and for what is no text.
        """
        ...


class Capabilities(Detects, Generates, Converses, Traces, FindsNeighbours, NamesTokens, ScoresTexts, Protocol):
    """Every call that a session may have, for type checkers. An open session has each call, and refuses those that its
    model lacks.
    """


def recordings(audios: Any) -> list[AudioSource]:
    """The recordings of a batch; raises `BadInput` where one recording stands in place of several."""
    alone = isinstance(audios, (str, Path)) or (isinstance(audios, tuple) and isinstance(audios[0], np.ndarray))
    if alone or not isinstance(audios, Sequence):
        raise BadInput(f"{str(audios)[:80]!r} was given for several recordings; expected a list of them")
    return list(audios)


def texts_given(texts: Any) -> list[str]:
    """The texts of a batch; raises `BadInput` where one text stands in place of several, or one is no text."""
    if isinstance(texts, str) or not isinstance(texts, Sequence):
        raise BadInput(f"{str(texts)[:80]!r} was given for several texts; expected a list of them")
    for number, text in enumerate(texts, 1):
        if not isinstance(text, str):
            raise BadInput(f"text {number} is of type {type(text).__name__}; expected a text")
        check_characters(text, f"text {number}")
    return list(texts)


def last_transcript(events: Iterator[Event]) -> Transcript:
    """Drains a session's stream and returns the transcript; see `last_result`. In a notebook, a bar shows progress."""
    with notebook_bar("Transcribing") as bar:
        return last_result(_watched(events, bar), Transcript, "the transcription")


def _watched(events: Iterator[Event], on_progress: OnProgress | None) -> Iterator[Event]:
    """Yields the events of a transcription, and tells of the progress among them."""
    for event in events:
        if on_progress is not None and isinstance(event, Progress) and event.total > 0:
            on_progress(event.done / event.total, event.activity)
        yield event


def last_transcripts(
    events: Generator[tuple[int, Event | BadInput], None, None], audios: Sequence[AudioSource]
) -> list[Transcript]:
    """Drains the stream of a batch and returns its transcripts; at the first recording that is bad it stops."""
    found: dict[int, Transcript] = {}
    with contextlib.closing(events), notebook_bar("Transcribing") as bar:
        for number, event in events:
            if isinstance(event, BadInput):
                source = audios[number]
                name = Path(source).name if isinstance(source, (str, Path)) else ""
                named = f" ({name})" if name and name not in str(event) else ""
                raise BadInput(f"recording {number + 1} of {len(audios)}{named}: {event}") from event
            if isinstance(event, Transcript):
                found[number] = event
                if bar is not None:
                    bar(len(found) / len(audios), f"{len(found)} of {len(audios)} recordings")
    if len(found) < len(audios):
        raise Cancelled(f"the transcription was stopped after {len(found)} of {len(audios)} recordings")
    return [found[number] for number in range(len(audios))]


def last_generation(pieces: Iterator[Piece | Generation]) -> Generation:
    """Drains a session's stream of text and returns the generation; see `last_result`."""
    return last_result(pieces, Generation, "the generation")
