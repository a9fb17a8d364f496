"""Fun-ASR-Nano for vLLM: its front end, and the class with which vLLM loads this project's directory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from torch import nn
from vllm.config import VllmConfig
from vllm.model_executor.models.utils import WeightsMapper
from vllm.multimodal import MULTIMODAL_REGISTRY

from workbench.audio.cmvn import read_am_mvn
from workbench.families.speech_llm.funasr_nano import (
    LANGUAGES,
    FunasrNanoModel,
    FunasrNanoOptions,
    audio_tokens,
    read_vllm_funasr_nano,
    tidy,
)
from workbench.pipelines.features import Features
from workbench.pipelines.recognition.funasr_nano import NanoPromptFormat
from workbench.pipelines.recognition.speech_language import prompt_ids_with
from workbench.runtimes.vllm.models.audio import (
    AudioDummyInputs,
    AudioInfo,
    AudioProcessor,
    FrontEnd,
    Sound,
    directory_of,
)
from workbench.runtimes.vllm.models.funasr_nano_tower import NanoTower
from workbench.runtimes.vllm.models.speech import SpeechModel, known_to_vllm, request_options

PROMPTED = ("language", "itn", "hotwords")  # the options that change the prompt


class NanoFrontEnd(FrontEnd):
    """Features with the checkpoint's CMVN, and the family's prompt."""

    options_class = FunasrNanoOptions

    def __init__(self, model: FunasrNanoModel):
        self.model = model
        self.prompt_format = NanoPromptFormat(model)
        cmvn = read_am_mvn(model.cmvn_file) if model.cmvn_file else None
        self.features = Features(model.frontend, cmvn)

    @property
    def name(self) -> str:
        """The name of the directory."""
        return self.model.checkpoint.directory.name

    def sound(self, samples: np.ndarray, options: FunasrNanoOptions) -> Sound:
        """See `FrontEnd.sound`."""
        features = self.features(samples, options)
        return Sound(features, len(features), audio_tokens(len(features), self.model.adaptor))

    def count(self, samples: int) -> int:
        """See `FrontEnd.count`."""
        return self.prompt_format.count(samples)

    def request_ids(self, placeholder: int, language: str | None, hotwords: str | None, prompt: str) -> list[int]:
        """See `FrontEnd.request_ids`; a prompt that is a JSON object names options, any other prompt is a list of
        hotwords.
        """
        hotword_list = tuple(word.strip() for word in (hotwords or "").split(",") if word.strip())
        fields = {"language": language, "hotwords": hotword_list}
        options, text = request_options(FunasrNanoOptions, fields, prompt, self.name, PROMPTED)
        if text:
            options = FunasrNanoOptions(language=options.language, itn=options.itn, hotwords=(*options.hotwords, text))
        return prompt_ids_with(self.prompt_format, options, placeholder)


class NanoInfo(AudioInfo):
    """Reads Fun-ASR-Nano's front end."""

    @staticmethod
    def read(directory: Path) -> FrontEnd:
        """See `AudioInfo.read`."""
        return NanoFrontEnd(read_vllm_funasr_nano(directory))


@MULTIMODAL_REGISTRY.register_processor(AudioProcessor, info=NanoInfo, dummy_inputs=AudioDummyInputs)
class SpeechWorkbenchFunASRNano(SpeechModel):
    """Fun-ASR-Nano with adaptors of any size, unpadded audio, and all of the family's prompts."""

    info_class = NanoInfo
    hf_to_vllm_mapper = WeightsMapper(
        orig_to_new_prefix={
            "llm.": "language_model.",
            "audio_encoder.": "tower.audio_encoder.",
            "audio_adaptor.": "tower.audio_adaptor.",
        }
    )
    languages = LANGUAGES
    supported_languages = known_to_vllm(LANGUAGES)

    def build_tower(self, vllm_config: VllmConfig) -> nn.Module:
        """See `SpeechModel.build_tower`."""
        model = read_vllm_funasr_nano(directory_of(vllm_config.model_config))
        return NanoTower(model.encoder, model.adaptor)

    @classmethod
    def post_process_output(cls, text: str) -> str:
        """Returns the transcript in the language model's output."""
        return tidy(text)
