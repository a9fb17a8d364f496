"""A recogniser that hears with an encoder and writes with a language model: what those families share.

The family gives a `PromptFormat`, the prompt around the speech and the reading of the answer, and an `AudioEncoder`,
which turns sound into embeddings. This file merges, decodes and streams. It knows no family and no runtime: embeddings
may be numpy arrays or torch tensors.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from workbench.core.errors import BadInput
from workbench.core.options import ListeningOptions
from workbench.core.resources import close
from workbench.decoding.alternatives import TRACED, AlternativesRecorder, Watch
from workbench.decoding.generation import ENDED, Decoding
from workbench.embeddings.merge import Merged, merge_speech
from workbench.families.language import PLACEHOLDER, LanguageTokenizer
from workbench.pipelines.language import Language
from workbench.pipelines.speech_session import Recognition
from workbench.session.values import Token
from workbench.text.scripts import settled_text
from workbench.trace.recorder import Recorder, Stages
from workbench.trace.trace import StageFilter


class PromptFormat(Protocol):
    """A family's words around the speech, before and after a language model."""

    @property
    def options_class(self) -> type[ListeningOptions]:
        """The family's options."""
        ...

    @property
    def tokenizer(self) -> LanguageTokenizer:
        """Of the language model."""
        ...

    @property
    def placeholder(self) -> int:
        """What stands in the prompt's ids where the speech goes."""
        ...

    def count(self, samples: int) -> int:
        """How many embeddings a stretch of so many samples becomes; raises `BadInput` for one that is too long."""
        ...

    def prompt_ids(self, options: Any) -> np.ndarray:
        """The prompt's ids [tokens], the placeholder among them."""
        ...

    def decoding(self, options: Any, counts: np.ndarray) -> Decoding:
        """How to decode stretches of so many speech embeddings."""
        ...

    def text(self, written: str) -> str:
        """The transcript of what the language model wrote."""
        ...


class AudioEncoder(PromptFormat, Protocol):
    """A family's half on a runtime: its words, and sound to embeddings."""

    def embeddings(
        self, stretches: Sequence[np.ndarray], options: Any, recorder: Recorder | None = None
    ) -> tuple[Any, np.ndarray]:
        """Speech embeddings [B, frames, H] in float32 at least, and how many frames are each stretch's [B].

        They are of the kind that the runtime's language model takes.
        """
        ...


class SpeechLanguagePipeline:
    """An ear and a language model as a recogniser (see `workbench.pipelines.speech_session`)."""

    def __init__(self, ear: AudioEncoder, language: Language):
        self.ear = ear
        self.language = language

    @property
    def options_class(self) -> type[ListeningOptions]:
        """The family's options."""
        return self.ear.options_class

    @property
    def dtype(self) -> str:
        """Of the language half; what hears is in float32 at least, in float64 where the language half is."""
        return self.language.dtype

    def hear(self, stretches: Sequence[np.ndarray], options: Any) -> Generator[list[str], None, list[Recognition]]:
        """As `StreamingRecogniser.hear`."""
        prompt, counts = self._prompt(stretches, options)
        return (yield from self._written(prompt, self.ear.decoding(options, counts)))

    def _written(
        self, prompt: Merged[Any], decoding: Decoding, watch: Watch | None = None
    ) -> Generator[list[str], None, list[Recognition]]:
        """As `hear`, of prompts that are ready."""
        ids: list[list[int]] = [[] for _ in prompt.attention_mask]
        for tokens in self.language.generate(prompt, decoding, watch):
            if tokens.ndim == 2:
                ids = [row[row != ENDED].tolist() for row in tokens]
            else:
                for row, token in zip(ids, tokens.tolist(), strict=True):
                    if token != ENDED:
                        row.append(token)
            yield [partial_text(row, decoding, self.ear) for row in ids]
        return [recognition_of(row, decoding, self.ear) for row in ids]

    def recognise(self, samples: np.ndarray, options: Any) -> Recognition:
        """What is said in float32 samples [n] at 16 kHz."""
        return drained(self.hear([samples], options))[0]

    def text_of(self, ids: Sequence[int]) -> str:
        """The transcript of generated ids, or of some of them."""
        return text_of(ids, self.ear)

    def trace(
        self, samples: np.ndarray, options: Any, wanted: StageFilter, given: Stages | None = None
    ) -> dict[str, np.ndarray]:
        """The stages of one pass over the samples: the encoder's, those of the prompt's pass, and the transcript.

        With `tokens` come `tokens.alternatives` and `tokens.logprobs` (see `traced_choices`).

        Where stages are given, the transcript is not among them: it is written by the whole language model in passes
        of its own, so there is no one stage that it would be computed from.
        """
        recorder = Recorder(wanted, given)
        prompt, counts = self._prompt([samples], options, recorder)
        recorder.put("prompt.text", prompt_text(self.ear, options))
        self.language.trace(prompt, recorder)
        if not recorder.isolated and (wanted("tokens") or wanted("text")):
            decoding, watched = traced_choices(self.ear.decoding(options, counts), wanted)
            [heard] = drained(self._written(prompt, decoding, watched))
            recorder.put("tokens", np.array(heard.ids, dtype=np.int64))
            recorder.stages.update(watched.stages() if watched else {})
            recorder.put("text", np.array(heard.text))
        return recorder.stages

    def close(self) -> None:
        """Frees both halves."""
        close(self.ear, self.language)

    def _prompt(
        self, stretches: Sequence[np.ndarray], options: Any, recorder: Recorder | None = None
    ) -> tuple[Merged[Any], np.ndarray]:
        """The prompts of the stretches, padded on the left, and the speech frames in each."""
        speech, counts = self.ear.embeddings(stretches, options, recorder)
        prompt = self.ear.prompt_ids(options)
        if recorder:
            prompt = recorder.put("prompt.tokens", prompt).astype(np.int64)
            if recorder.isolated:
                counts = np.array([speech.shape[1]])  # as many as are given
        ids = np.repeat(prompt[None], len(stretches), axis=0)
        # A placeholder may be no row of the table; what is looked up for it is not used.
        text = self.language.embed(np.where(ids == self.ear.placeholder, 0, ids))
        try:
            return merge_speech(ids, text, speech, counts, self.ear.placeholder, padding_side="left"), counts
        except ValueError as error:
            if recorder is None or not recorder.isolated:
                raise
            raise BadInput(f"adaptor.output does not fit into prompt.tokens of the trace given: {error}") from error


def traced_choices(decoding: Decoding, wanted: StageFilter) -> tuple[Decoding, AlternativesRecorder | None]:
    """The decoding of a pass that is traced, and what keeps the alternatives of its tokens.

    They are kept where `tokens` are wanted and each is the likeliest by the model's own logits; of any other choice
    they would not be the reason.
    """
    if not wanted("tokens") or not decoding.plain:
        return decoding, None
    return replace(decoding, alternatives=TRACED), AlternativesRecorder()


def prompt_text(words: PromptFormat, options: Any) -> np.ndarray:
    """The prompt as text, a scalar array: special tokens written out, `PLACEHOLDER` where the speech goes.

    As a prompt of the language model alone, with the speech's embeddings injected, it is the same prompt.
    """
    ids = words.prompt_ids(options)
    parts = np.split(ids, np.flatnonzero(ids == words.placeholder))
    spoken = ([number for number in part.tolist() if number != words.placeholder] for part in parts)
    written = [words.tokenizer.text(part, special=True) for part in spoken]
    return np.array(PLACEHOLDER.join(written))


def ids_around(words: PromptFormat, options: Any, sound_id: int) -> list[int]:
    """The prompt's ids with another token where the speech goes."""
    ids = words.prompt_ids(options)
    found: list[int] = np.where(ids == words.placeholder, sound_id, ids).tolist()
    return found


def text_of(ids: Sequence[int], words: PromptFormat) -> str:
    """The transcript of generated ids, or of some of them."""
    return words.text(words.tokenizer.text(ids))


def partial_text(ids: Sequence[int], decoding: Decoding, words: PromptFormat) -> str:
    """As much of the transcript of the ids so far as more of them will not change."""
    return settled_text(text_of(_without(ids, decoding.stop_ids), words))


def recognition_of(ids: Sequence[int], decoding: Decoding, words: PromptFormat) -> Recognition:
    """What was heard in a stretch, of all ids that were generated, the end included."""
    ended = bool(ids) and ids[-1] in decoding.stop_ids
    note = "a stretch was cut off at max_new_tokens; the transcript may lack its end"
    shown = _without(ids, decoding.stop_ids)
    return Recognition(
        text=text_of(shown, words),
        language=None,
        tags={},
        tokens=tuple(Token(number, words.tokenizer.piece(number)) for number in shown),
        ids=tuple(ids),
        notes=() if ended else (note,),
    )


def _without(ids: Sequence[int], stop_ids: Sequence[int]) -> list[int]:
    """The ids that the reader sees: an end may be a token that would be read out as text."""
    return [number for number in ids if number not in stop_ids]


def drained(writing: Generator[list[str], None, list[Recognition]]) -> list[Recognition]:
    """What was heard when the writing has ended, the text on the way left aside."""
    while True:
        try:
            next(writing)
        except StopIteration as done:
            heard: list[Recognition] = done.value
            return heard
