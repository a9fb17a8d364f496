"""Drives a language model over a prompt: text as it is generated, times, stages.

Every runtime's text session is this class around that runtime's writer, which works on token ids. This file knows no
network and no tokenizer.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol

import numpy as np

from workbench.core.errors import BadInput, NotFinite
from workbench.core.options import build_options, conversation_options_class
from workbench.core.resources import close
from workbench.decoding.alternatives import TRACED, AlternativesRecorder, Watch
from workbench.decoding.generation import WritingOptions, decoding_of
from workbench.embeddings import Embedding
from workbench.embeddings.prompt import Injected, TokenPrompt, read_embeddings
from workbench.pipelines.clock import WorkClock
from workbench.pipelines.decoding_steps import RequestedSteps
from workbench.pipelines.text.text_conversation import text_answer, text_messages
from workbench.pipelines.text.token_table import Table, check_ids, neighbours_of, rows_of
from workbench.pipelines.tracing import make_trace, output_path, substituted_stages, substitution_meta
from workbench.session.conversation import ConversationEvent, Messages
from workbench.session.protocols import (
    Converses,
    FindsNeighbours,
    Generates,
    NamesTokens,
    ScoresTexts,
    Session,
    Traces,
    checked_texts,
    last_generation,
)
from workbench.session.values import Alternative, Generation, Neighbours, Piece, Prompt, TextScore
from workbench.system.memory import peak_resident_bytes
from workbench.text.scripts import settled_text
from workbench.trace.recorder import Recorder, Stages
from workbench.trace.steps import Follow, ForcedDecoding
from workbench.trace.trace import OutputPath, StageFilter, StageSource, Trace


class Writer(Protocol):
    """A loaded language model that continues one prompt at a time."""

    @property
    def table(self) -> Table:
        """The embedding table; reading it raises `Unavailable` if the runtime does not expose it."""
        ...

    @property
    def dtype(self) -> str:
        """The name of the type that it computes in."""
        ...

    @property
    def options_class(self) -> type[WritingOptions]:
        """The family's options."""
        ...

    @property
    def stop_ids(self) -> Sequence[int]:
        """The tokens that end a text."""
        ...

    @property
    def vocabulary(self) -> int:
        """The number of token ids, which are those of the rows of the embedding table."""
        ...

    def prompt(self, prompt: Prompt, options: Any, embeddings: Sequence[Embedding] = ()) -> TokenPrompt:
        """Returns the ids of a prompt with the embeddings at its placeholders.

        Raises `BadInput` if the prompt is malformed or too long.
        """
        ...

    def write(
        self, prompt: TokenPrompt, options: Any, alternatives: int = 0, watch: Watch | None = None
    ) -> Generator[int, None, None]:
        """Yields each token after the prompt as soon as it is chosen, the stop id included; closing it stops the work.

        Args:
            alternatives: how many of the likeliest tokens of each step to pass to `watch` before the token is yielded.
        """
        ...

    def text_of(self, ids: Sequence[int]) -> str:
        """Returns the text of some of the generated tokens, without special tokens."""
        ...

    def piece(self, number: int) -> str:
        """Returns one token as text for display, special tokens too."""
        ...

    def trace(
        self, prompt: TokenPrompt, requested_stages: StageFilter, given: Stages | None = None
    ) -> dict[str, np.ndarray]:
        """Returns the stages of one pass over the prompt, from `llm.embeddings` to `logits`; `given` as in
        `Recorder`.
        """
        ...

    def follow(self, prompt: TokenPrompt, forced: ForcedDecoding) -> None:
        """Records the traced steps of a forced decoding after the prompt.

        See `workbench.pipelines.text.language.Language.follow`.
        """
        ...

    def score(self, texts: Sequence[str], end: bool) -> list[TextScore]:
        """See `ScoresTexts.score_texts`."""
        ...


class TextSession(Session, Generates, Converses, Traces, FindsNeighbours, NamesTokens, ScoresTexts):
    """A writer as a session (see `workbench.session.protocols`).

    Args:
        notes: sentences about the model that every result carries for its reader.
    """

    def __init__(self, model: str, runtime: str, writer: Writer, notes: tuple[str, ...] = ()):
        self.model = model
        self.runtime = runtime
        self.load_seconds = 0.0  # set by the code that opens the session
        self._writer: Writer | None = writer
        self._notes = notes

    @property
    def writer(self) -> Writer:
        """The loaded model; reading it after `close` raises `BadInput`."""
        if self._writer is None:
            raise BadInput(f"the session of {self.model} is closed; open it again")
        return self._writer

    def generate_stream(
        self, prompt: Prompt, *, embeddings: Sequence[Injected] = (), **options: Any
    ) -> Generator[Piece | Generation, None, None]:
        """Yields a `Piece` after each token, and last the `Generation`; the pieces together are its text."""
        model_options = build_options(self.writer.options_class, options, self.model)
        yield from self._generate(prompt, model_options, embeddings)

    def converse_stream(self, messages: Messages, **options: Any) -> Generator[ConversationEvent, None, None]:
        """See `Converses.converse_stream`; the messages and the answer are text."""
        model_options = build_options(conversation_options_class(self.writer.options_class), options, self.model)
        yield from text_answer(
            self._generate(text_messages(messages, model_options, self.model), model_options), model_options
        )

    def _generate(
        self, prompt: Prompt, model_options: Any, embeddings: Sequence[Injected] = ()
    ) -> Generator[Piece | Generation, None, None]:
        """Yields the same as `generate_stream`, for options that are checked."""
        clock = WorkClock()
        with clock:
            token_prompt = self.writer.prompt(prompt, model_options, read_embeddings(embeddings))
        yield from self._generate_from(
            token_prompt, model_options, clock, model_options.alternatives, AlternativesRecorder()
        )

    def _generate_from(
        self,
        prompt: TokenPrompt,
        model_options: WritingOptions,
        clock: WorkClock,
        alternatives: int,
        recorder: AlternativesRecorder,
    ) -> Generator[Piece | Generation, None, None]:
        """Generates from a prompt that is ready and yields the same as `generate_stream`; fills `recorder`."""
        writer = self.writer
        text, tokens, first = IncrementalDetokenizer(writer.text_of), list[int](), 0.0
        choices: list[tuple[Alternative, ...]] = []
        with contextlib.closing(writer.write(prompt, model_options, alternatives, recorder)) as token_stream:
            while True:
                with clock:
                    token = next(token_stream, None)
                    if token is None:
                        break
                    tokens.append(token)
                    first = first or clock.passed()
                    added = "" if token in writer.stop_ids else text.add(token)
                    if alternatives:
                        choices.append(alternatives_of(*recorder.steps[len(choices)], writer.piece))
                yield Piece(added, (token,), choices[-1] if choices else (), len(prompt.ids))
        with clock:
            rest = text.finish()
        if rest:
            yield Piece(rest, ())
        yield Generation(
            model=self.model,
            runtime=self.runtime,
            text=text.text,
            tokens=tuple(tokens),
            prompt_tokens=len(prompt.ids),
            finish="stop" if tokens and tokens[-1] in writer.stop_ids else "length",
            load_seconds=self.load_seconds,
            compute_seconds=clock.seconds,
            first_token_seconds=first,
            memory_bytes=peak_resident_bytes(),
            alternatives=tuple(choices),
            notes=self._notes,
        )

    def trace(
        self,
        source: Prompt,
        stages: str = "*",
        given: StageSource = None,
        out: OutputPath = None,
        *,
        steps: str = "",
        follow: Follow = None,
        embeddings: Sequence[Injected] = (),
        **options: Any,
    ) -> Trace:
        """Returns the stages that match the glob: of one pass over the prompt, of the decoding steps that are asked
        for, and the tokens and text generated after it.

        With `tokens` come `tokens.alternatives` and `tokens.logprobs` of the likeliest tokens at each step, if the
        options choose each token by the model's own logits.

        If `given` substitutes stages, no text is generated: generation takes several passes of the whole model, so it
        does not follow from one stage.
        """
        writer = self.writer
        model_options = build_options(writer.options_class, options, self.model)
        requested_stages, place = StageFilter(stages), output_path(out)
        prompt = writer.prompt(source, model_options, read_embeddings(embeddings))
        digest = prompt.digest
        substituted = substituted_stages(given, digest)
        requested_steps = RequestedSteps(steps, follow, substituted)
        requested_steps.check_one_hypothesis(self.model)
        recorder = Recorder(requested_stages, substituted)
        ids = recorder.put("prompt.tokens", np.array(prompt.ids, dtype=np.int64)).astype(np.int64).tolist()
        prompt = prompt.with_ids(ids)
        arrays = recorder.stages | writer.trace(prompt, requested_stages, substituted)
        outputs: dict[str, np.ndarray] = {}
        tokens: Sequence[int] | None = None
        needs_output = requested_stages("tokens") or requested_stages("text")
        if (substituted is None and needs_output) or requested_steps.needs_ids:
            try:
                tokens, outputs = self._traced_output(prompt, model_options, requested_stages)
            except NotFinite:  # then there is no text, and the stages of the prompt show why
                if requested_steps.needs_ids:
                    raise
        step_stages, meta = requested_steps.traced(
            tokens, requested_stages, lambda forced: writer.follow(prompt, forced), self.model
        )
        arrays |= step_stages | outputs
        meta |= {"input_digest": digest, **prompt.named, **substitution_meta(substituted)}
        return make_trace(self, arrays, stages, writer.dtype, options, place, **meta)

    def _traced_output(
        self, prompt: TokenPrompt, model_options: WritingOptions, requested_stages: StageFilter
    ) -> tuple[Sequence[int], dict[str, np.ndarray]]:
        """Generates a text; returns its tokens, and the requested stages of `tokens`, `tokens.*` and `text`.

        Raises `NotFinite` for logits that are NaN.
        """
        recorder = AlternativesRecorder()
        records_tokens = requested_stages("tokens")
        alternatives = TRACED if records_tokens and decoding_of(model_options, ()).is_greedy else 0
        generation = last_generation(self._generate_from(prompt, model_options, WorkClock(), alternatives, recorder))
        stages: dict[str, np.ndarray] = {}
        if records_tokens:
            stages["tokens"] = np.array(generation.tokens, dtype=np.int64)
            stages |= recorder.stages() if alternatives else {}
        if requested_stages("text"):
            stages["text"] = np.array(generation.text)
        return generation.tokens, stages

    def neighbours(self, values: np.ndarray, count: int = 5) -> Neighbours:
        """See `FindsNeighbours.neighbours`."""
        return neighbours_of(values, self.writer.table, self.writer.piece, count, self.model)

    def token_embeddings(self, ids: Sequence[int]) -> np.ndarray:
        """See `FindsNeighbours.token_embeddings`."""
        return rows_of(self.writer.table, ids, self.model)

    def token_texts(self, ids: Sequence[int]) -> tuple[str, ...]:
        """See `NamesTokens.token_texts`."""
        check_ids(ids, self.writer.vocabulary, self.model)
        return tuple(map(self.writer.piece, ids))

    def score_texts(self, texts: Sequence[str], *, end: bool = True) -> list[TextScore]:
        """See `ScoresTexts.score_texts`."""
        return self.writer.score(checked_texts(texts), end)

    def close(self) -> None:
        """Drops the model and frees it."""
        writer, self._writer = self._writer, None
        close(writer)


def alternatives_of(ids: np.ndarray, logprobs: np.ndarray, piece: Callable[[int], str]) -> tuple[Alternative, ...]:
    """Returns the alternatives of a step with the text of each token, without tokens of probability zero."""
    pairs = zip(ids.tolist(), logprobs.tolist(), strict=True)
    return tuple(Alternative(number, piece(number), logprob) for number, logprob in pairs if math.isfinite(logprob))


class IncrementalDetokenizer:
    """Turns tokens that arrive one by one into pieces of text that never split a character.

    It decodes only the last tokens each time: those since the text last ended in a whole character, and those of the
    piece before, as a tokenizer may write a token differently at the very beginning.
    """

    def __init__(self, text_of: Callable[[Sequence[int]], str]):
        self.text = ""  # the text returned so far
        self._text_of = text_of
        self._ids: list[int] = []
        self._previous_piece_start = self._last_piece_start = 0  # first tokens of the last two pieces
        self._returned_characters = 0  # characters of the text since `_previous_piece_start` that were returned

    def add(self, token: int) -> str:
        """Returns the text that the token adds; empty while a character is incomplete."""
        self._ids.append(token)
        text = self._text_of(self._ids[self._previous_piece_start :])
        settled = settled_text(text)
        added = settled[self._returned_characters :]
        self._returned_characters = max(self._returned_characters, len(settled))
        if settled == text:
            self._previous_piece_start, self._last_piece_start = self._last_piece_start, len(self._ids)
            self._returned_characters = len(self._text_of(self._ids[self._previous_piece_start :]))
        self.text += added
        return added

    def finish(self) -> str:
        """Returns the rest of the text after the last token: characters that were never completed."""
        rest = self._text_of(self._ids[self._previous_piece_start :])[self._returned_characters :]
        self.text += rest
        return rest
