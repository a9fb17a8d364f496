"""SpeechLM for vLLM: its front end, and the class with which vLLM loads this project's directory.

The class is a language model over the ids of all streams. How a row of several streams enters and leaves it is in
`workbench.runtimes.vllm.streams`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn
from vllm.config import VllmConfig
from vllm.model_executor.models.utils import WeightsMapper
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.multimodal.processing.inputs import ProcessorInputs

from workbench.core.errors import BadInput
from workbench.core.options import ListeningOptions
from workbench.families.speechlm.model import CODEC_PREFIX, TOWER_PREFIX, SpeechLmModel, read_speechlm
from workbench.pipelines.conversation.speechlm_frontend import TowerFrontend, required
from workbench.runtimes.vllm.models.audio import (
    MODALITY,
    AudioDummyInputs,
    AudioInfo,
    AudioProcessor,
    FrontEnd,
    Sound,
)
from workbench.runtimes.vllm.models.directory import directory_of
from workbench.runtimes.vllm.models.errors import BadRequest
from workbench.runtimes.vllm.models.language import AroundLanguageModel
from workbench.runtimes.vllm.models.speechlm_tower import SpeechLmTower
from workbench.runtimes.vllm.models.tower import Captures, embed_recordings
from workbench.runtimes.vllm.streams.heads import StreamHeads


class SpeechLmFrontEnd(FrontEnd):
    """Whisper's features. Prompts come from the session, so a server's transcriptions have none."""

    options_class = ListeningOptions

    def __init__(self, model: SpeechLmModel):
        self.model = model
        self.frontend = TowerFrontend(model.tower) if model.tower else None

    @property
    def name(self) -> str:
        """The name of the directory."""
        return self.model.directory.name

    def sound(self, samples: np.ndarray, options: ListeningOptions) -> Sound:
        """See `FrontEnd.sound`."""
        frontend = required(self.frontend, self.name)
        frontend.check_length(samples)  # vLLM measures memory with silence
        features = frontend.features(samples)
        return Sound(features, len(features), self.count(len(samples)))

    def count(self, samples: int) -> int:
        """See `FrontEnd.count`."""
        return self.model.tower.rows(samples) if self.model.tower else 0

    def request_ids(self, placeholder: int, language: str | None, hotwords: str | None, prompt: str) -> list[int]:
        """See `FrontEnd.request_ids`."""
        raise BadInput(f"{self.name} answers conversations, and the request asks for a transcript")


class SpeechLmInfo(AudioInfo):
    """A prompt may have any number of recordings."""

    front_end: SpeechLmFrontEnd

    @staticmethod
    def read(directory: Path) -> SpeechLmFrontEnd:
        """See `AudioInfo.read`."""
        return SpeechLmFrontEnd(read_speechlm(directory))

    @cached_property
    def placeholder(self) -> int:
        """The pad, which stands nowhere else in a prompt's stream 0."""
        return self.front_end.model.layout.pad

    def get_supported_mm_limits(self) -> Mapping[str, int | None]:
        """Returns no limit for the recordings of a conversation; none of a model that does not hear."""
        return {MODALITY: None if self.front_end.frontend else 0}


class SpeechLmProcessor(AudioProcessor):
    """Turns recordings into a request's fields, as `AudioProcessor` does."""

    def get_dummy_inputs(self, seq_len: int, mm_counts: Mapping[str, int], mm_options: Any) -> ProcessorInputs:
        """Returns the input with which vLLM measures memory. The placeholder is an id, and no text becomes it."""
        inputs = super().get_dummy_inputs(seq_len, mm_counts, mm_options)
        return replace(inputs, prompt=[self.info.placeholder] * mm_counts.get(MODALITY, 0))


@MULTIMODAL_REGISTRY.register_processor(SpeechLmProcessor, info=SpeechLmInfo, dummy_inputs=AudioDummyInputs)
class SpeechWorkbenchSpeechLM(AroundLanguageModel):
    """A Qwen3 language model over text and codec streams, and what it hears with."""

    captures: Captures | None = None  # set by the worker's extension while captures are on

    hf_to_vllm_mapper = WeightsMapper(
        orig_to_new_prefix={
            "model.": "language_model.model.",
            "lm_head.": "language_model.lm_head.",
            TOWER_PREFIX: "tower.audio_tower.",
            "adaptor.continuous_audio.": "tower.adaptor.",
            CODEC_PREFIX: None,  # it is outside of the engine
        }
    )

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = ""):
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        model = read_speechlm(directory_of(vllm_config.model_config))
        if vllm_config.parallel_config.tensor_parallel_size > 1:
            raise BadInput("a SpeechLM in vLLM has its codec streams on one device; expected tensor_parallel of 1")
        self.layout = model.layout
        self.stream_emb = nn.Embedding(model.layout.streams, model.hidden_size)
        self.hidden: Tensor | None = None  # after the last norm, of the rows whose logits were computed last
        if model.tower is not None:
            with self._mark_tower_model(vllm_config, MODALITY):
                self.tower = SpeechLmTower(model.tower, model.hidden_size)

    @staticmethod
    def get_model_state_cls() -> type[Any]:
        """Returns how vLLM's model runner V2 computes several streams."""
        from workbench.runtimes.vllm.streams.model_state import SpeechModelState

        return SpeechModelState

    @property
    def table(self) -> Tensor:
        """The embeddings of the ids of all streams."""
        weight: Tensor = self.language_model.model.embed_tokens.weight
        return weight

    @cached_property
    def heads(self) -> StreamHeads:
        """The logits of the streams."""
        language = self.language_model
        matrix = language.model.embed_tokens if self.config.tie_word_embeddings else language.lm_head
        return StreamHeads(matrix.weight, self.stream_emb.weight, self.layout)

    @property
    def further_heads(self) -> Mapping[str, Callable[[Tensor], Tensor]]:
        """The stages of a trace that are computed from the hidden states [rows, H], besides the logits of stream 0."""
        return {"codec.logits": self.heads.codec}

    @classmethod
    def get_placeholder_str(cls, modality: str, i: int) -> str | None:
        """Raises `BadRequest`: a template of text has no place for a recording."""
        raise BadRequest("this model takes conversations through the workbench, not through a chat template")

    def embed_multimodal(self, **kwargs: Any) -> list[Tensor]:
        """Returns the embeddings [n, H] of each recording of a batch, from the fields of `audio.AudioProcessor`."""
        return [rows.to(self.table.dtype) for rows in embed_recordings(self.tower, kwargs, self.captures)]

    def compute_logits(self, hidden_states: Tensor) -> Tensor | None:
        """Returns the logits of stream 0, and keeps the hidden states for those of the others."""
        self.hidden = hidden_states
        return super().compute_logits(hidden_states)
