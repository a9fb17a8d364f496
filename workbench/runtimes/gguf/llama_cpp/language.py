"""A causal language model on llama.cpp: from embeddings to tokens, one step at a time.

The plain language model and the decoders of the speech families use this class. It looks up a prompt's embeddings in
the file, exactly and only those that are needed; llama.cpp looks up the embeddings of generated tokens itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator, Sequence
from typing import Any

import numpy as np

from workbench.core.errors import BadInput
from workbench.core.finite import check_logits
from workbench.decoding.alternatives import Watch, check_alternatives, likeliest
from workbench.decoding.beams import BeamSearch, Continuation
from workbench.decoding.forced_beams import ForcedBeamSearch
from workbench.decoding.generation import ENDED, Decoding, padded_ids
from workbench.decoding.sampling import TokenSampler
from workbench.embeddings.merge import Merged
from workbench.families.gguf_files import contains_language_model
from workbench.families.language.directory import LanguageConfig
from workbench.formats.gguf_file import GgufFile
from workbench.formats.gguf_types import import_definition
from workbench.runtimes.gguf.files.language_file import EMBEDDINGS, check_dimensions, check_vocabulary
from workbench.runtimes.gguf.llama_cpp.beams import ancestry_of, search_passes
from workbench.runtimes.gguf.llama_cpp.context import STEP, STEPWISE, Context
from workbench.runtimes.gguf.llama_cpp.decoding_steps import ForcedTokens, StepsWatch
from workbench.runtimes.gguf.llama_cpp.language_half import open_half
from workbench.runtimes.gguf.llama_cpp.llama import LlamaModel, open_plain
from workbench.runtimes.gguf.llama_cpp.scoring import SequenceScorer
from workbench.runtimes.gguf.llama_cpp.stage_watch import StageWatch
from workbench.trace.ancestry import Ancestry
from workbench.trace.recorder import Recorder
from workbench.trace.steps import ForcedDecoding

RESERVED_TOKENS = 512  # new tokens that a context has positions for at first; it grows for more


class LanguageModel:
    """A loaded language model; made by `open_language`."""

    def __init__(
        self, model: LlamaModel, file: GgufFile, config: LanguageConfig, threads: int | None, kv_cache: str
    ) -> None:
        self.model = model
        self.file = file
        self.config = config
        self._settings: dict[str, Any] = {"threads": threads, "kv_cache": kv_cache}
        self._idle: Context | None = None
        self._scorer: SequenceScorer | None = None  # made by the first call of `score`

    @property
    def dtype(self) -> str:
        """The type that its weights are stored in."""
        return self.file.quantization

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the reader of results, a sentence each."""
        return self.model.notes

    def embed(self, ids: np.ndarray) -> np.ndarray:
        """Returns text embeddings [batch, tokens, hidden] of ids [batch, tokens]; raises `BadInput` for an
        unknown id.
        """
        ids = np.asarray(ids, dtype=np.int64)
        outside = ids[(ids < 0) | (ids >= self.config.vocabulary)]
        if outside.size:
            raise BadInput(
                f"the prompt has the token id {outside[0]}; expected one below {self.config.vocabulary}, the "
                f"vocabulary of {self.file.name}"
            )
        return self.file.rows(EMBEDDINGS, ids.ravel()).reshape(*ids.shape, self.config.hidden_size)

    def table_rows(self, first: int, last: int) -> np.ndarray:
        """Returns rows `first` to `last` (exclusive) of the embedding table: float32 [last - first, hidden]."""
        return self.embed(np.arange(first, last)[None])[0]

    def from_numpy(self, values: np.ndarray) -> np.ndarray:
        """Returns the float32 array unchanged."""
        return values

    def prompt(self, rows: Sequence[Sequence[int]]) -> Merged[np.ndarray]:
        """Returns text prompts from the ids of each row; shorter rows are padded on the left."""
        lengths = np.array([len(row) for row in rows])
        place = np.arange(lengths.max()) - (lengths.max() - lengths)[:, None]
        mask = place >= 0
        embeddings = np.zeros((*mask.shape, self.config.hidden_size), dtype=np.float32)
        embeddings[mask] = self.embed(np.concatenate([np.asarray(row, dtype=np.int64) for row in rows])[None])[0]
        return Merged(embeddings, mask, np.where(mask, place, 0))

    def generate(
        self, prompt: Merged[np.ndarray], decoding: Decoding, watch: Watch | None = None
    ) -> Iterator[np.ndarray]:
        """Yields the next token of every row [batch] after each step, and `ENDED` for rows that have ended.

        A stop id is yielded too, as the last token of its row. With beam search, each step yields all tokens of every
        row's best hypothesis so far [batch, tokens]; the last step is final and padded with `ENDED`. A row also ends at
        the end of the model's context.

        Args:
            prompt: padded on any side.
            watch: as in `workbench.pipelines.text.language.Language`.

        Raises `BadInput` for a prompt longer than the model's context, and if alternatives are asked of a beam search.
        """
        check_alternatives(decoding)
        lengths = self._check_prompt(prompt)
        if decoding.beam_size > 1:
            return self._beams(prompt, lengths, decoding)
        return self._steps(prompt, lengths, decoding, watch if decoding.alternatives else None)

    def _check_prompt(self, prompt: Merged[np.ndarray]) -> np.ndarray:
        """Checks the prompt and returns the lengths of its rows [batch]."""
        lengths, width = prompt.lengths, prompt.embeddings.shape[-1]
        if width != self.config.hidden_size:
            raise BadInput(
                f"the prompt's embeddings are {width} wide; {self.file.name} takes {self.config.hidden_size}"
            )
        self._room_for(int(lengths.max()))
        return lengths

    def _room_for(self, positions: int) -> int:
        """Returns `positions`; raises `BadInput` if the model's context is shorter."""
        if positions > self.config.context:
            raise BadInput(
                f"the prompt has {positions} positions; expected at most {self.config.context}, the context of "
                f"{self.file.name}"
            )
        return positions

    def _steps(
        self,
        prompt: Merged[np.ndarray],
        lengths: np.ndarray,
        decoding: Decoding,
        watch: Watch | None,
        forced: ForcedDecoding | None = None,
    ) -> Generator[np.ndarray, None, None]:
        batch = len(lengths)
        limits = np.minimum(np.broadcast_to(decoding.max_new_tokens, batch), self.config.context - lengths + 1)
        choose = TokenSampler(decoding) if forced is None else ForcedTokens(forced)
        alive = np.arange(batch)
        generated = np.empty((batch, 0), dtype=np.int64)
        capacity = int((lengths + np.minimum(limits, RESERVED_TOKENS)).sum())
        steps_watch = None if forced is None else StepsWatch(forced, self.file, self._settings["kv_cache"])
        longest = int(lengths.max())
        context = (
            self._context(capacity, batch, longest)
            if steps_watch is None
            else self._watched_context(capacity, longest, steps_watch)
        )
        try:
            logits = np.empty((batch, self.config.vocabulary), dtype=np.float32)
            for row in range(batch):
                embeddings = prompt.embeddings[row][prompt.attention_mask[row]]
                with contextlib.nullcontext() if steps_watch is None else steps_watch.watching_prompt(len(embeddings)):
                    context.prefill(embeddings, row)
                logits[row] = context.logits()
            for step in range(int(limits.max())):
                if watch is not None:
                    for row_alternatives in zip(alive.tolist(), *likeliest(logits, decoding.alternatives)):
                        watch(*row_alternatives)
                if forced is None:
                    check_logits(logits)
                next_tokens = choose(generated, logits)
                tokens = np.full(batch, ENDED, dtype=np.int64)
                tokens[alive] = next_tokens
                yield tokens
                ended = np.array([int(token) in decoding.stop_ids for token in next_tokens])
                unfinished = ~ended & (step + 1 < limits[alive])
                if not unfinished.any():
                    return
                for row in alive[~unfinished]:
                    context.drop(int(row))
                alive, generated = alive[unfinished], np.column_stack([generated, next_tokens])[unfinished]
                context.grow(int((lengths[alive] + step + 1).sum()))
                positions = lengths[alive] + step
                with (
                    contextlib.nullcontext()
                    if steps_watch is None
                    else steps_watch.watching_step(step + 1, context, int(positions[0]) + 1)
                ):
                    context.step(next_tokens[unfinished], positions, alive)
                logits = context.logits()[None] if len(alive) == 1 else context.all_logits(len(alive))
        finally:
            if steps_watch is None:
                self._give_back(context)
            else:
                context.close()

    def _watched_context(self, positions: int, longest: int, steps_watch: StepsWatch, sequences: int = 1) -> Context:
        """Returns a context that shows its passes."""
        return Context(
            self.model,
            positions,
            sequences,
            longest=longest,
            watch=steps_watch.callback(self.model),
            weights=steps_watch.shows_weights,
            **self._settings,
        )

    def follow(self, prompt: Merged[np.ndarray], forced: ForcedDecoding) -> None:
        """See `workbench.pipelines.text.language.Language.follow`."""
        forced_prompt = _prompt_of(self._prompt_rows(prompt, forced, forced.last))
        for _ in self._steps(
            forced_prompt, forced_prompt.lengths, Decoding((), max_new_tokens=forced.last + 1), None, forced
        ):
            pass

    def _beams(
        self, prompt: Merged[np.ndarray], lengths: np.ndarray, decoding: Decoding
    ) -> Generator[np.ndarray, None, None]:
        """Yields the same as `generate`, one row after another; rows that have not begun contain only `ENDED`."""
        beams = decoding.beam_size
        limits = np.minimum(np.broadcast_to(decoding.max_new_tokens, len(lengths)), self.config.context - lengths + 1)
        hypotheses: list[list[int]] = [[] for _ in lengths]
        positions = int((lengths + beams * np.minimum(limits, RESERVED_TOKENS)).max())
        context = self._context(positions, 2 * beams, int(lengths.max()))
        try:
            for row, limit in enumerate(limits.tolist()):
                search = BeamSearch(decoding, limit)

                def choose(logits: np.ndarray, search: BeamSearch = search) -> Continuation | None:
                    check_logits(logits)
                    return search.advance(logits)

                context.clear()
                for _ in search_passes(context, prompt.embeddings[row][prompt.attention_mask[row]], beams, choose):
                    hypotheses[row] = search.best
                    yield padded_ids(hypotheses)
        finally:
            self._give_back(context)

    def ancestry(self, prompt: Merged[np.ndarray], decoding: Decoding) -> Ancestry:
        """See `workbench.pipelines.text.language.SearchesBeams.ancestry`."""
        [length] = self._check_prompt(prompt).tolist()
        limit = int(np.minimum(np.broadcast_to(decoding.max_new_tokens, 1), self.config.context - length + 1)[0])
        beams = decoding.beam_size
        context = self._context(length + beams * min(limit, RESERVED_TOKENS), 2 * beams, length)
        try:
            return ancestry_of(context, prompt.embeddings[0][prompt.attention_mask[0]], decoding, limit)
        finally:
            self._give_back(context)

    def follow_beams(self, prompt: Merged[np.ndarray], forced: ForcedBeamSearch) -> None:
        """See `workbench.pipelines.text.language.SearchesBeams.follow_beams`."""
        rows = self._prompt_rows(prompt, forced, forced.passes)
        steps_watch = StepsWatch(forced, self.file, self._settings["kv_cache"])
        positions = len(rows) + forced.beams * min(forced.passes, RESERVED_TOKENS)
        context = self._watched_context(positions, len(rows), steps_watch, 2 * forced.beams)
        try:
            for _ in search_passes(context, rows, forced.beams, forced.choose, steps_watch):
                pass
        finally:
            context.close()

    def _prompt_rows(
        self, prompt: Merged[np.ndarray], forced: ForcedDecoding | ForcedBeamSearch, steps: int
    ) -> np.ndarray:
        """Returns the embeddings of a prompt of one row [positions, hidden], or what is given for them.

        Raises `BadInput` if the model's context is too short for them and the steps.
        """
        rows, prefill = prompt.embeddings[0][prompt.attention_mask[0]], forced.prefill
        rows = rows if prefill is None else prefill.put("llm.embeddings", rows)
        self._check_prompt(_prompt_of(rows))
        self._room_for(len(rows) + steps)
        return rows

    def _context(self, positions: int, sequences: int, longest: int) -> Context:
        """Returns an empty context with enough room: the previous one if it fits."""
        context, self._idle = self._idle, None
        if context is not None and context.fits(positions, sequences, longest):
            context.clear()
            return context
        if context is not None:
            context.close()
        step = max(positions // 4, STEP)  # few different sizes, so that contexts are reused
        positions, longest = (-(-count // step) * step for count in (positions, longest))
        return Context(self.model, positions, sequences, longest=longest, **self._settings)

    def _give_back(self, context: Context) -> None:
        """Stores the context for the next call, unless the model is closed or another context is stored."""
        if self._idle is None and not self.model.is_closed:
            self._idle = context
        else:
            context.close()

    def trace(self, prompt: Merged[np.ndarray], recorder: Recorder) -> None:
        """Records the stages `llm.*` and `logits` of one pass over a prompt of one row, at all its positions."""
        self._check_prompt(prompt)
        embeddings = recorder.put("llm.embeddings", prompt.embeddings[0][prompt.attention_mask[0]])
        length = self._room_for(len(embeddings))
        outputs = {"result_output": ("logits", self.config.vocabulary)}
        watch = StageWatch(
            recorder, self.file, embeddings.shape, outputs, weights=self._settings["kv_cache"] in STEPWISE
        )
        if not watch.is_recording:
            return
        context = Context(
            self.model,
            length,
            longest=length,
            outputs=length,
            watch=watch.callback(self.model),
            weights=watch.shows_weights,
            **self._settings,
        )
        try:
            context.prefill(embeddings, 0, outputs=True)
        finally:
            context.close()

    def score(self, rows: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """See `workbench.pipelines.text.language.Language.score`; raises `BadInput` for an unknown id."""
        for row in rows:
            if not 0 <= min(row) <= max(row) < self.config.vocabulary:
                raise BadInput(
                    f"a text has ids from {min(row)} to {max(row)}; expected 0 to {self.config.vocabulary - 1}, the "
                    f"vocabulary of {self.file.name}"
                )
        if self._scorer is None:
            self._scorer = SequenceScorer(self.model, self.config.vocabulary, self._settings)
        return self._scorer.score(rows)

    def close(self) -> None:
        """Frees the contexts and the model."""
        if self._idle is not None:
            self._idle.close()
        if self._scorer is not None:
            self._scorer.close()
        self._idle = self._scorer = None
        self.model.close()


def _prompt_of(rows: np.ndarray) -> Merged[np.ndarray]:
    """Returns embeddings [positions, hidden] as a prompt of one row."""
    return Merged(rows[None], np.ones((1, len(rows)), bool), np.arange(len(rows))[None])


def open_language(
    file: GgufFile,
    config: LanguageConfig,
    threads: int | None = None,
    kv_cache: str = "f32",
    vocabulary: bool = False,
) -> LanguageModel:
    """Opens the language model in a file that holds it alone or together with an audio encoder.

    Args:
        config: from `language_config` on the file, or from the checkpoint's directory.
        threads: None for all processors that this process may use.
        kv_cache: f32, f16 or q8_0, the type of keys and values.
        vocabulary: also loads the file's vocabulary, for `LlamaTokenizer`; only for a file that holds just a language
            model.

    Raises `BadInput` if the file's tensors contradict its keys or the configuration, or hold values that are not
    finite.
    """
    sizes = check_dimensions(file, config)
    file.check_finite()
    if vocabulary:
        check_vocabulary(file)
    import_definition(file.tensors[EMBEDDINGS].type)
    model = (
        open_half(file) if contains_language_model(file) else open_plain(file, None if vocabulary else sizes.vocabulary)
    )
    return LanguageModel(model, file, config, threads, kv_cache)
