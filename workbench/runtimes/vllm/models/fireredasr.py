"""FireRedASR-LLM for vLLM: its front end, and the class with which vLLM loads this project's directory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from torch import nn
from vllm.config import VllmConfig
from vllm.model_executor.models.utils import WeightsMapper
from vllm.multimodal import MULTIMODAL_REGISTRY

from workbench.audio.cmvn import read_cmvn_ark
from workbench.core.errors import BadInput
from workbench.families.speech_llm.fireredasr import FireRedAsrModel, FireRedAsrOptions, read_vllm_fireredasr, tidy
from workbench.pipelines.features import Features
from workbench.pipelines.recognition.fireredasr import FireRedPromptFormat
from workbench.pipelines.recognition.speech_language import prompt_ids_with
from workbench.runtimes.vllm.models.audio import (
    AudioDummyInputs,
    AudioInfo,
    AudioProcessor,
    FrontEnd,
    Sound,
    directory_of,
)
from workbench.runtimes.vllm.models.fireredasr_tower import FireRedTower
from workbench.runtimes.vllm.models.speech import SpeechModel, known_to_vllm

LANGUAGES = {"zh": "Chinese", "en": "English"}  # the languages of its training; its prompt names none


class FireRedFrontEnd(FrontEnd):
    """Features with the checkpoint's CMVN, and the family's one prompt."""

    options_class = FireRedAsrOptions

    def __init__(self, model: FireRedAsrModel):
        self.model = model
        self.prompt_format = FireRedPromptFormat(model)
        self.features = Features(model.frontend, read_cmvn_ark(model.cmvn_file))

    @property
    def name(self) -> str:
        """The name of the directory."""
        return self.model.directory.name

    def sound(self, samples: np.ndarray, options: FireRedAsrOptions) -> Sound:
        """See `FrontEnd.sound`; its length is in encoder frames."""
        embeddings = self.count(len(samples))
        features = self.features(samples, options)
        return Sound(features, self.prompt_format.speech_frames(len(features), options), embeddings)

    def count(self, samples: int) -> int:
        """See `FrontEnd.count`."""
        return self.prompt_format.count(samples)

    def request_ids(self, placeholder: int, language: str | None, hotwords: str | None, prompt: str) -> list[int]:
        """See `FrontEnd.request_ids`; the prompt is always the same."""
        if prompt.strip() or hotwords:
            extra = "hotwords" if hotwords else "a prompt"
            raise BadInput(f"the request has {extra}, and FireRedASR-LLM's prompt is always the same; expected neither")
        return prompt_ids_with(self.prompt_format, FireRedAsrOptions(), placeholder)


class FireRedInfo(AudioInfo):
    """Reads FireRedASR's front end."""

    @staticmethod
    def read(directory: Path) -> FrontEnd:
        """See `AudioInfo.read`."""
        return FireRedFrontEnd(read_vllm_fireredasr(directory))


@MULTIMODAL_REGISTRY.register_processor(AudioProcessor, info=FireRedInfo, dummy_inputs=AudioDummyInputs)
class SpeechWorkbenchFireRedASR(SpeechModel):
    """FireRedASR-LLM with unpadded audio, either rule for the number of speech frames, and any language model."""

    info_class = FireRedInfo
    hf_to_vllm_mapper = WeightsMapper(
        orig_to_new_prefix={
            "llm.": "language_model.",
            "encoder.": "tower.encoder.",
            "encoder_projector.": "tower.encoder_projector.",
        }
    )
    languages = LANGUAGES
    supported_languages = known_to_vllm(LANGUAGES)

    def build_tower(self, vllm_config: VllmConfig) -> nn.Module:
        """See `SpeechModel.build_tower`."""
        model = read_vllm_fireredasr(directory_of(vllm_config.model_config))
        return FireRedTower(model.encoder, model.language.hidden_size, model.downsample_rate)

    @classmethod
    def post_process_output(cls, text: str) -> str:
        """Returns the transcript in the language model's output."""
        return tidy(text)
