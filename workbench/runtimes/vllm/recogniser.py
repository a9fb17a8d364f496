"""A speech language model in an engine as a recogniser: the prompt is built here, the network runs in the engine."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from workbench.core.errors import BadInput, NotFinite
from workbench.core.options import ListeningOptions
from workbench.core.settings import Settings
from workbench.decoding.alternatives import Watch
from workbench.decoding.forced_beams import ForcedBeamSearch
from workbench.decoding.generation import Decoding
from workbench.families.language.directory import AUDIO
from workbench.families.speech_llm.instruction import Instruction
from workbench.pipelines.conversation.instructed_session import InstructedSession
from workbench.pipelines.features import Features
from workbench.pipelines.recognition.recogniser import Recognition
from workbench.pipelines.recognition.speech_language import (
    PromptFormat,
    partial_text,
    pieces_of,
    prompt_ids_with,
    prompt_text,
    recognition_of,
    run_to_end,
    text_of,
    traced_choices,
)
from workbench.runtimes.vllm.capture.tracing import check_not_substituted, follow_steps, prompt_stages
from workbench.runtimes.vllm.engine.engine import Engine
from workbench.runtimes.vllm.requests.request import Request
from workbench.runtimes.vllm.session import started_engine
from workbench.trace.ancestry import Ancestry
from workbench.trace.recorder import Recorder, Stages
from workbench.trace.steps import ForcedDecoding
from workbench.trace.times import RowTimes
from workbench.trace.trace import StageFilter

ORDER = ("frontend", "encoder", "adaptor", "prompt", "llm", "logits", "tokens", "text")  # order of the stages
PENALTY_NOTE = "vLLM's repetition_penalty also counts the tokens of the prompt"


class EngineRecogniser:
    """A recogniser whose network and language model are in an engine; see `workbench.pipelines.recognition.recogniser`.

    Args:
        features: the front end; the engine's process for requests runs the same, but only here its stages are recorded.
        front_end: names of the options that it takes.
    """

    def __init__(self, prompt_format: PromptFormat, features: Features, engine: Engine, front_end: Sequence[str]):
        self.prompt_format = prompt_format
        self.features = features
        self.engine = engine
        sound_id = prompt_format.tokenizer.id_of(AUDIO)
        if sound_id is None:
            raise BadInput(f"the tokenizer has no token {AUDIO}; expected a directory converted for vLLM")
        self.sound_id = sound_id
        self._front_end = tuple(front_end)

    @property
    def options_class(self) -> type[ListeningOptions]:
        """The family's options."""
        return self.prompt_format.options_class

    @property
    def dtype(self) -> str:
        """The language model's type; the encoder computes in float32."""
        return self.engine.dtype

    @property
    def max_batch_size(self) -> int:
        """See `BatchingRecogniser`: the number that the engine has room for; it batches by itself."""
        return self.engine.requests_at_once

    @property
    def row_times(self) -> Mapping[str, RowTimes]:
        """See `workbench.trace.times.TimesRows`."""
        return self.prompt_format.row_times

    def pieces(self, ids: Sequence[int]) -> tuple[str, ...]:
        """See `workbench.pipelines.recognition.recogniser.NamesPieces`."""
        return pieces_of(ids, self.prompt_format)

    def instructed(self, instruction: Instruction) -> EngineRecogniser:
        """See `InstructedRecogniser.instructed`."""
        recogniser = copy.copy(self)
        recogniser.prompt_format = self.prompt_format.instructed(instruction)
        return recogniser

    def recognise_stream(
        self, chunks: Sequence[np.ndarray], options: Any
    ) -> Generator[list[str], None, list[Recognition]]:
        """See `StreamingRecogniser.recognise_stream`; every chunk becomes a request."""
        counts = np.array([self.prompt_format.count(len(samples)) for samples in chunks])
        requests = [self._request(samples, int(count), options) for samples, count in zip(chunks, counts)]
        decodings = [self.prompt_format.decoding(options, counts[row : row + 1]) for row in range(len(chunks))]
        return (yield from self._recognise(requests, decodings))

    def _recognise(
        self, requests: Sequence[Request], decodings: Sequence[Decoding], watch: Watch | None = None
    ) -> Generator[list[str], None, list[Recognition]]:
        """Sends requests that are ready; yields and returns the same as `recognise_stream`."""
        ids: list[list[int]] = [[] for _ in requests]
        texts = [""] * len(requests)
        for row, tokens in self.engine.stream(requests, decodings, watch):
            ids[row] += tokens
            texts[row] = partial_text(ids[row], decodings[row], self.prompt_format)
            yield list(texts)
        notes = (PENALTY_NOTE,) if decodings and decodings[0].repetition_penalty != 1.0 else ()
        recognitions = [
            recognition_of(row, decoding, self.prompt_format, request.positions)
            for row, decoding, request in zip(ids, decodings, requests, strict=True)
        ]
        return [replace(each, notes=(*each.notes, *notes)) for each in recognitions]

    def recognise(self, samples: np.ndarray, options: Any) -> Recognition:
        """Returns what is said in float32 samples [n] at 16 kHz."""
        return run_to_end(self.recognise_stream([samples], options))[0]

    def text_of(self, ids: Sequence[int]) -> str:
        """Returns the transcript of generated ids, or of some of them."""
        return text_of(ids, self.prompt_format)

    def trace(
        self, samples: np.ndarray, options: Any, requested_stages: StageFilter, given: Stages | None = None
    ) -> dict[str, np.ndarray]:
        """Returns the stages of one pass over the samples: of the encoder, of the language model's pass over the
        prompt, and the transcript.

        Raises `Unavailable` if stages are substituted.
        """
        check_not_substituted(given)
        recorder = Recorder(requested_stages)
        request = self._request(samples, self.prompt_format.count(len(samples)), options)
        self.features(samples, options, recorder)
        stages = prompt_stages(self.engine, request, requested_stages)
        recorder.put("prompt.tokens", self.prompt_format.prompt_ids(options))
        recorder.put("prompt.text", prompt_text(self.prompt_format, options))
        if requested_stages("tokens") or requested_stages("text"):
            count = np.array([self.prompt_format.count(len(samples))])
            decoding, watched = traced_choices(self.prompt_format.decoding(options, count), requested_stages)
            with contextlib.suppress(NotFinite):  # then there is no transcript, and the stages show why
                [recognition] = run_to_end(self._recognise([request], [decoding], watched))
                recorder.put("tokens", np.array(recognition.ids, dtype=np.int64))
                recorder.stages.update(watched.stages() if watched else {})
                recorder.put("text", np.array(recognition.text))
        return _in_order(stages, recorder.stages)

    def follow(self, samples: np.ndarray, options: Any, forced: ForcedDecoding | ForcedBeamSearch) -> None:
        """See `StepwiseRecogniser.follow`."""
        if isinstance(forced, ForcedBeamSearch):
            raise BadInput(
                "the steps to follow are those of a beam search, and vLLM's engine follows one hypothesis of each "
                "request; set beam_size to 1, or compare pytorch and gguf"
            )
        follow_steps(self.engine, self._request(samples, self.prompt_format.count(len(samples)), options), forced)

    def ancestry(self, samples: np.ndarray, options: Any) -> Ancestry | None:
        """See `StepwiseRecogniser.ancestry`; there is none, as the engine refuses beams."""
        return None

    def close(self) -> None:
        """Ends the engine."""
        self.engine.close()

    def _request(self, samples: np.ndarray, count: int, options: Any) -> Request:
        ids = prompt_ids_with(self.prompt_format, options, self.sound_id)
        return Request(ids, samples, count, {name: getattr(options, name) for name in self._front_end})


def _in_order(stages: Mapping[str, np.ndarray], recorded: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the engine's stages and those recorded here, in the order of the computation."""

    def rank(stage: str) -> int:
        first = stage.partition(".")[0]
        return ORDER.index(first) if first in ORDER else len(ORDER)

    return dict(sorted({**stages, **recorded}.items(), key=lambda item: rank(item[0])))


def open_speech(
    prompt_format: PromptFormat,
    features: Features,
    front_end: Sequence[str],
    directory: Path,
    name: str,
    settings: Settings,
) -> InstructedSession:
    """Starts an engine and returns its session; arguments as in `EngineRecogniser` and `started_engine`."""
    engine = started_engine(directory, name, settings, limit_mm_per_prompt={"audio": 1})
    session = InstructedSession(name, "vllm", EngineRecogniser(prompt_format, features, engine, front_end))
    session.log = engine.log
    return session
