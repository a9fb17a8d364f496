"""Recognises speech with an audio encoder and a language model; the families of that kind share this pipeline.

A family provides a `PromptFormat` (builds the prompt around the speech and reads the answer) and an `AudioEncoder`
(turns audio into embeddings). This file merges, decodes and streams. It knows no family and no runtime: embeddings may
be numpy arrays or torch tensors.
"""

from __future__ import annotations

import copy
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, Self

import numpy as np

from workbench.core.errors import BadInput, NotFinite
from workbench.core.options import ListeningOptions
from workbench.core.resources import close
from workbench.decoding.alternatives import TRACED, AlternativesRecorder, Watch
from workbench.decoding.forced_beams import ForcedBeamSearch
from workbench.decoding.generation import ENDED, Decoding
from workbench.embeddings.merge import Merged, merge_speech
from workbench.families.language.directory import PLACEHOLDER, LanguageConfig, LanguageTokenizer
from workbench.families.speech_llm.instruction import DEFAULT_INSTRUCTION, Instruction
from workbench.pipelines.gradients import (
    DifferentiatesLanguage,
    DifferentiatesRecordings,
    GradientsOf,
    record_gradients,
)
from workbench.pipelines.recognition.recogniser import Recognition
from workbench.pipelines.substitution import starts_after_audio
from workbench.pipelines.text.language import Language, SearchesBeams
from workbench.pipelines.text.token_table import Table, check_ids
from workbench.session.values import Token
from workbench.text.scripts import settled_text
from workbench.trace.ancestry import Ancestry
from workbench.trace.gradients import is_gradient
from workbench.trace.recorder import Recorder, Stages
from workbench.trace.steps import ForcedDecoding
from workbench.trace.times import RowTimes
from workbench.trace.trace import StageFilter

CUT_OFF = "a segment of speech was cut off at max_new_tokens; the transcript may lack its end"


class PromptFormat(Protocol):
    """A family's prompt around the speech, and its reading of the language model's answer."""

    @property
    def options_class(self) -> type[ListeningOptions]:
        """The family's options."""
        ...

    @property
    def tokenizer(self) -> LanguageTokenizer:
        """The tokenizer of the language model."""
        ...

    @property
    def language(self) -> LanguageConfig:
        """The dimensions of the language model."""
        ...

    @property
    def placeholder(self) -> int:
        """The id that marks the speech's position in the prompt."""
        ...

    @property
    def row_times(self) -> Mapping[str, RowTimes]:
        """See `workbench.trace.times.TimesRows`."""
        ...

    def instructed(self, instruction: Instruction) -> Self:
        """Returns the same with the user's own instruction in the prompt; both share the network."""
        ...

    def count(self, samples: int) -> int:
        """Returns the number of embeddings for a chunk of `samples` samples; raises `BadInput` if the chunk is too
        long.
        """
        ...

    def prompt_ids(self, options: Any) -> np.ndarray:
        """Returns the prompt's ids [tokens], with the placeholder among them."""
        ...

    def decoding(self, options: Any, counts: np.ndarray) -> Decoding:
        """Returns how to decode chunks with `counts` speech embeddings each [B]."""
        ...

    def text(self, output: str) -> str:
        """Returns the transcript in the language model's output."""
        ...


class BasePromptFormat:
    """Common code of the families' prompt formats: the model's tokenizer, and the user's own instruction."""

    def __init__(self, model: Any):
        self.model = model
        self.instruction = DEFAULT_INSTRUCTION

    def instructed(self, instruction: Instruction) -> Self:
        """See `PromptFormat.instructed`."""
        prompt_format = copy.copy(self)
        prompt_format.instruction = instruction
        return prompt_format

    @property
    def language(self) -> LanguageConfig:
        """The dimensions of the language model."""
        config: LanguageConfig = self.model.language
        return config

    @property
    def tokenizer(self) -> LanguageTokenizer:
        """The tokenizer of the language model."""
        language_tokenizer: LanguageTokenizer = self.model.tokenizer
        return language_tokenizer


class AudioEncoder(PromptFormat, Protocol):
    """A family's audio encoder on one runtime, with the family's prompt format."""

    def embeddings(
        self, chunks: Sequence[np.ndarray], options: Any, recorder: Recorder | None = None
    ) -> tuple[Any, np.ndarray]:
        """Returns speech embeddings [B, frames, H] in float32 or wider, and the number of frames of each chunk [B].

        The embeddings are arrays of the runtime's language model.
        """
        ...


class SpeechLanguagePipeline:
    """An audio encoder and a language model as a recogniser (see `workbench.pipelines.recognition.recogniser`)."""

    def __init__(self, encoder: AudioEncoder, language: Language):
        self.encoder = encoder
        self.language = language

    @property
    def options_class(self) -> type[ListeningOptions]:
        """The family's options."""
        return self.encoder.options_class

    @property
    def dtype(self) -> str:
        """The name of the language model's type. The encoder's type is the same, or float32."""
        return self.language.dtype

    @property
    def row_times(self) -> Mapping[str, RowTimes]:
        """See `workbench.trace.times.TimesRows`."""
        return self.encoder.row_times

    def pieces(self, ids: Sequence[int]) -> tuple[str, ...]:
        """See `workbench.pipelines.recognition.recogniser.NamesPieces`."""
        return pieces_of(ids, self.encoder)

    @property
    def table(self) -> Table:
        """The language model's table of embeddings."""
        config = self.encoder.language
        return Table((config.vocabulary, config.hidden_size), self.language.table_rows)

    def instructed(self, instruction: Instruction) -> SpeechLanguagePipeline:
        """See `InstructedRecogniser.instructed`."""
        return SpeechLanguagePipeline(self.encoder.instructed(instruction), self.language)

    def recognise_stream(
        self, chunks: Sequence[np.ndarray], options: Any
    ) -> Generator[list[str], None, list[Recognition]]:
        """See `StreamingRecogniser.recognise_stream`."""
        prompt, counts = self._prompt(chunks, options)
        return (yield from self._decode(prompt, self.encoder.decoding(options, counts)))

    def _decode(
        self, prompt: Merged[Any], decoding: Decoding, watch: Watch | None = None
    ) -> Generator[list[str], None, list[Recognition]]:
        """Decodes prompts that are ready; yields and returns the same as `recognise_stream`."""
        ids: list[list[int]] = [[] for _ in prompt.attention_mask]
        for tokens in self.language.generate(prompt, decoding, watch):
            if tokens.ndim == 2:
                ids = [row[row != ENDED].tolist() for row in tokens]
            else:
                for row, token in zip(ids, tokens.tolist(), strict=True):
                    if token != ENDED:
                        row.append(token)
            yield [partial_text(row, decoding, self.encoder) for row in ids]
        counts = prompt.attention_mask.sum(axis=1).tolist()
        return [recognition_of(row, decoding, self.encoder, count) for row, count in zip(ids, counts, strict=True)]

    def recognise(self, samples: np.ndarray, options: Any) -> Recognition:
        """Returns what is said in float32 samples [n] at 16 kHz."""
        return run_to_end(self.recognise_stream([samples], options))[0]

    def text_of(self, ids: Sequence[int]) -> str:
        """Returns the transcript of generated ids, or of some of them."""
        return text_of(ids, self.encoder)

    def trace(
        self, samples: np.ndarray, options: Any, requested_stages: StageFilter, given: Stages | None = None
    ) -> dict[str, np.ndarray]:
        """Returns the stages of one pass over the samples: of the encoder, of the language model's pass over the
        prompt, and the transcript.

        With `tokens` come `tokens.alternatives` and `tokens.logprobs` (see `traced_choices`).

        If values overflow in the network, there is no transcript, but its stages show where the overflow begins.

        If `given` substitutes stages, the transcript is left out: the whole language model computes it in several
        passes, so it does not follow from one stage.
        """
        recorder = Recorder(requested_stages, given)
        encodes_audio = not starts_after_audio(requested_stages, given)
        prompt, counts = self._prompt([samples], options, recorder, encodes_audio)
        recorder.put("prompt.text", prompt_text(self.encoder, options))
        self.language.trace(prompt, recorder)
        needs_gradients = any(map(is_gradient, requested_stages.patterns))
        if not recorder.isolated and (needs_gradients or requested_stages("tokens") or requested_stages("text")):
            decoding, watched = traced_choices(self.encoder.decoding(options, counts), requested_stages)
            try:
                [recognition] = run_to_end(self._decode(prompt, decoding, watched))
            except NotFinite:
                return recorder.stages
            recorder.put("tokens", np.array(recognition.ids, dtype=np.int64))
            recorder.stages.update(watched.stages() if watched else {})
            recorder.put("text", np.array(recognition.text))
            record_gradients(recorder, recognition.ids, self._gradients_of(samples, options, prompt, counts))
        return recorder.stages

    def _gradients_of(
        self, samples: np.ndarray, options: Any, prompt: Merged[Any], counts: np.ndarray
    ) -> GradientsOf | None:
        """Returns the function for the gradients of an answer's tokens; None if the runtime computes none."""
        language, encoder = self.language, self.encoder
        if not isinstance(language, DifferentiatesLanguage) or not isinstance(encoder, DifferentiatesRecordings):
            return None
        # Embeddings of sound stand in place of the prompt's one placeholder.
        first = int(np.flatnonzero(encoder.prompt_ids(options) == encoder.placeholder)[0])
        sound = slice(first, first + int(counts[0]))

        def input_gradients(ids: Sequence[int], places: Sequence[int]) -> Iterator[np.ndarray]:
            for gradient in language.gradients(prompt, ids, places):
                yield encoder.input_gradient(samples, options, gradient[sound])

        return input_gradients

    def follow(self, samples: np.ndarray, options: Any, forced: ForcedDecoding | ForcedBeamSearch) -> None:
        """See `StepwiseRecogniser.follow`."""
        prompt, counts = self._prompt([samples], options, forced.prefill)
        if isinstance(forced, ForcedDecoding):
            self.language.follow(prompt, forced)
            return
        forced.begin(self.encoder.decoding(options, counts))
        assert isinstance(self.language, SearchesBeams)
        self.language.follow_beams(prompt, forced)

    def ancestry(self, samples: np.ndarray, options: Any) -> Ancestry | None:
        """See `StepwiseRecogniser.ancestry`."""
        prompt, counts = self._prompt([samples], options)
        decoding = self.encoder.decoding(options, counts)
        if decoding.beam_size == 1:
            return None
        assert isinstance(self.language, SearchesBeams)
        return self.language.ancestry(prompt, decoding)

    def close(self) -> None:
        """Frees the encoder and the language model."""
        close(self.encoder, self.language)

    def _prompt(
        self,
        chunks: Sequence[np.ndarray],
        options: Any,
        recorder: Recorder | None = None,
        encodes_audio: bool = True,
    ) -> tuple[Merged[Any], np.ndarray]:
        """Returns the prompts of the chunks, padded on the left, and the number of speech frames in each.

        Args:
            encodes_audio: if not, the row of token 0 stands in place of each embedding of the speech.
        """
        if encodes_audio:
            speech, counts = self.encoder.embeddings(chunks, options, recorder)
        else:
            counts = np.array([self.encoder.count(len(samples)) for samples in chunks])
            speech = self.language.embed(np.zeros((len(chunks), counts.max()), dtype=np.int64))
        prompt = self.encoder.prompt_ids(options)
        if recorder:
            prompt = recorder.put("prompt.tokens", prompt).astype(np.int64)
            if recorder.isolated:
                counts = np.array([speech.shape[1]])  # the substituted stage decides the number
        ids = np.repeat(prompt[None], len(chunks), axis=0)
        # The placeholder id may be outside the table. Any valid id does, as its row is replaced.
        text = self.language.embed(np.where(ids == self.encoder.placeholder, 0, ids))
        try:
            return merge_speech(ids, text, speech, counts, self.encoder.placeholder, padding_side="left"), counts
        except ValueError as error:
            if recorder is None or not recorder.isolated:
                raise
            raise BadInput(f"adaptor.output does not fit into prompt.tokens of the given trace: {error}") from error


def traced_choices(decoding: Decoding, requested_stages: StageFilter) -> tuple[Decoding, AlternativesRecorder | None]:
    """Returns the decoding for a traced pass, and the recorder of its alternatives or None.

    Alternatives are recorded if `tokens` are wanted and the decoding takes the likeliest token by the model's own
    logits. For other ways to choose a token, the alternatives would not explain the choice.
    """
    if not requested_stages("tokens") or not decoding.is_greedy:
        return decoding, None
    return replace(decoding, alternatives=TRACED), AlternativesRecorder()


def prompt_text(prompt_format: PromptFormat, options: Any) -> np.ndarray:
    """Returns the prompt as text, in a scalar array: special tokens in full, and `PLACEHOLDER` at the speech's
    position.

    The language model alone computes the same from this prompt when the speech's embeddings are injected.
    """
    ids = prompt_format.prompt_ids(options)
    parts = np.split(ids, np.flatnonzero(ids == prompt_format.placeholder))
    part_ids = ([number for number in part.tolist() if number != prompt_format.placeholder] for part in parts)
    part_texts = [prompt_format.tokenizer.decode(part, special=True) for part in part_ids]
    return np.array(PLACEHOLDER.join(part_texts))


def prompt_ids_with(prompt_format: PromptFormat, options: Any, sound_id: int) -> list[int]:
    """Returns the prompt's ids with `sound_id` at the speech's position."""
    ids = prompt_format.prompt_ids(options)
    prompt: list[int] = np.where(ids == prompt_format.placeholder, sound_id, ids).tolist()
    return prompt


def pieces_of(ids: Sequence[int], prompt_format: PromptFormat) -> tuple[str, ...]:
    """Returns the text of each token for display; raises `BadInput` for an id outside the vocabulary."""
    check_ids(ids, prompt_format.language.vocabulary, "the language model")
    return tuple(map(prompt_format.tokenizer.piece, ids))


def text_of(ids: Sequence[int], prompt_format: PromptFormat) -> str:
    """Returns the transcript of generated ids, or of some of them."""
    return prompt_format.text(prompt_format.tokenizer.decode(ids))


def partial_text(ids: Sequence[int], decoding: Decoding, prompt_format: PromptFormat) -> str:
    """Returns the part of the transcript so far that later ids cannot change."""
    return settled_text(text_of(_without(ids, decoding.stop_ids), prompt_format))


def recognition_of(
    ids: Sequence[int], decoding: Decoding, prompt_format: PromptFormat, prompt_tokens: int
) -> Recognition:
    """Returns the recognition of a chunk from all its generated ids, stop id included."""
    ended = bool(ids) and ids[-1] in decoding.stop_ids
    text_ids = _without(ids, decoding.stop_ids)
    return Recognition(
        text=text_of(text_ids, prompt_format),
        language=None,
        tags={},
        tokens=tuple(Token(number, prompt_format.tokenizer.piece(number)) for number in text_ids),
        ids=tuple(ids),
        notes=() if ended else (CUT_OFF,),
        ended=ended,
        prompt_tokens=prompt_tokens,
    )


def _without(ids: Sequence[int], stop_ids: Sequence[int]) -> list[int]:
    """Returns the ids without stop ids, which the tokenizer may write out as text."""
    return [number for number in ids if number not in stop_ids]


def run_to_end(writing: Generator[list[str], None, list[Recognition]]) -> list[Recognition]:
    """Runs the generator to its end and returns its result; drops the partial texts."""
    while True:
        try:
            next(writing)
        except StopIteration as done:
            recognitions: list[Recognition] = done.value
            return recognitions
