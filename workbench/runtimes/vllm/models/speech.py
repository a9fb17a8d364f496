"""Common code of the speech families' classes inside vLLM: an audio tower before one of vLLM's language models.

A family's class names its tower and its front end. The tower computes in float32, whatever the language model's type
is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from torch import Tensor, nn
from transformers.models.whisper.tokenization_whisper import LANGUAGES
from vllm.config import ModelConfig, SpeechToTextConfig, VllmConfig
from vllm.config.speech_to_text import SpeechToTextParams
from vllm.model_executor.models.interfaces import SupportsTranscription
from vllm.model_executor.models.utils import WeightsMapper

from workbench.audio.constants import SAMPLE_RATE
from workbench.core.errors import BadInput
from workbench.core.options import Options, build_options
from workbench.families.language.directory import AUDIO, VLLM_SECTION
from workbench.runtimes.vllm.models.audio import MAX_SECONDS, MODALITY, AudioInfo
from workbench.runtimes.vllm.models.directory import directory_of
from workbench.runtimes.vllm.models.errors import BadRequest
from workbench.runtimes.vllm.models.language import AroundLanguageModel
from workbench.runtimes.vllm.models.tower import Captures, embed_recordings


class SpeechModel(AroundLanguageModel, SupportsTranscription):
    """A tower and a language model; a family's subclass creates the tower."""

    info_class: ClassVar[type[AudioInfo]]
    hf_to_vllm_mapper = WeightsMapper(orig_to_new_prefix={"llm.": "language_model."})  # a subclass adds its tower's
    languages: ClassVar[Mapping[str, str]] = {}  # languages that the prompt can name, by code
    supported_languages: ClassVar[Mapping[str, str]] = {}  # those of them that vLLM knows
    supports_transcription_only = False
    captures: Captures | None = None  # set by the worker's extension while captures are on

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = ""):
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        config = self.config
        with self._mark_tower_model(vllm_config, MODALITY):
            self.tower: Any = self.build_tower(vllm_config)
        self.configure_mm_token_handling(config.vocab_size, [getattr(config, VLLM_SECTION)["token_ids"][AUDIO]])

    def build_tower(self, vllm_config: VllmConfig) -> nn.Module:
        """Creates the family's `Tower`, without its weights."""
        raise NotImplementedError

    @classmethod
    def get_placeholder_str(cls, modality: str, i: int) -> str | None:
        """Returns the text that marks the speech's position."""
        if modality == MODALITY:
            return AUDIO
        raise BadRequest(f"this model takes audio, and was given {modality}")

    def embed_multimodal(self, **kwargs: Any) -> list[Tensor]:
        """Returns the embeddings [n, H] of each recording of a batch, from the fields of `audio.AudioProcessor`."""
        counts = [int(count) for count in kwargs["counts"]]
        embeddings = embed_recordings(self.tower, kwargs, self.captures)
        return [rows[:count] for rows, count in zip(embeddings, counts, strict=True)]

    # Transcriptions of the server.

    @classmethod
    def validate_language(cls, language: str | None) -> str | None:
        """Returns a language that the prompt can name, or None; raises `BadRequest` for another."""
        if language in (None, "", "auto"):
            return None
        if language not in cls.languages:
            raise BadRequest(f"language is {language!r:.80}; expected one of {', '.join(cls.languages)}")
        return language

    @classmethod
    def get_speech_to_text_config(
        cls, model_config: ModelConfig, task_type: Literal["transcribe", "translate"]
    ) -> SpeechToTextConfig:
        """Returns how the server cuts recordings: into chunks of the length that the model was made for."""
        return SpeechToTextConfig(sample_rate=SAMPLE_RATE, max_audio_clip_s=round(MAX_SECONDS))

    @classmethod
    def get_num_audio_tokens(
        cls, audio_duration_s: float, stt_config: SpeechToTextConfig, model_config: ModelConfig
    ) -> int | None:
        """Returns how many positions a recording of this length takes."""
        return cls.info_class.open(directory_of(model_config)).count(round(audio_duration_s * SAMPLE_RATE))

    @classmethod
    def get_generation_prompt(cls, stt_params: SpeechToTextParams) -> Any:
        """Returns the family's own prompt around the speech, as ids."""
        model_config = stt_params.model_config
        placeholder: int = getattr(model_config.hf_config, VLLM_SECTION)["token_ids"][AUDIO]
        front_end = cls.info_class.open(directory_of(model_config))
        try:
            ids = front_end.request_ids(
                placeholder, stt_params.language, stt_params.hotwords, stt_params.request_prompt or ""
            )
        except BadInput as error:
            raise BadRequest(str(error)) from error
        return {"prompt_token_ids": ids, "multi_modal_data": {MODALITY: stt_params.audio}}


def known_to_vllm(languages: Mapping[str, str]) -> dict[str, str]:
    """Returns those of the languages whose codes vLLM accepts in a class's `supported_languages`."""
    return {code: name for code, name in languages.items() if code in LANGUAGES}


def request_options(
    options_class: type[Options], fields: Mapping[str, Any], prompt: str, model_name: str, allowed: Sequence[str]
) -> tuple[Options, str]:
    """Returns (the options of a server's transcription request, the part of its prompt that names no options).

    Args:
        fields: the request's own fields, by the names of options; empty values count as missing.
        prompt: the request's free text; a JSON object names options.
        model_name: the model's name in messages.
        allowed: the options that the request may name.

    Raises `BadInput` for another option, or for a bad value.
    """
    values = {name: value for name, value in fields.items() if value}
    text = prompt.strip()
    if text.startswith("{"):
        try:
            prompt_options = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise BadInput(f"prompt begins with a brace and is not JSON: {error}; expected options by name") from error
        for name in prompt_options:
            if name not in allowed:
                raise BadInput(f"prompt names the option {name!r:.80}; expected some of {', '.join(allowed)}")
        values, text = {**values, **prompt_options}, ""
    return build_options(options_class, values, model_name), text
