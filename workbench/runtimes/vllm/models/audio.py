"""Audio in a request for vLLM's front end: computes features with this project's front end, and counts their positions.

vLLM calls a processor with samples and options, and gets fields that travel to the worker with the request. Each
recording has its own length. `FrontEnd` has the parts that differ between families; this file knows no family.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from transformers import BatchFeature
from vllm.multimodal.inputs import MultiModalFieldConfig
from vllm.multimodal.parse import MultiModalDataParser
from vllm.multimodal.processing import (
    BaseDummyInputsBuilder,
    BaseMultiModalProcessor,
    BaseProcessingInfo,
    PromptReplacement,
)

from workbench.audio.constants import SAMPLE_RATE
from workbench.core.errors import BadInput
from workbench.core.options import ListeningOptions, build_options
from workbench.families.language.directory import AUDIO
from workbench.runtimes.vllm.models.directory import directory_of
from workbench.runtimes.vllm.models.errors import BadRequest

MODALITY = "audio"
CAPTURE = "capture"  # an option: the number under which the worker records the tower's stages
# Of a chunk, for which vLLM makes room; longer ones are accepted if the prompt has room.
MAX_SECONDS = 30.0


@dataclass(frozen=True, eq=False)
class Sound:
    """One chunk of audio, ready for the tower."""

    features: np.ndarray  # float32 [frames, width]
    length: int  # frames that count as speech, in the unit of the family's tower
    embeddings: int  # positions that it takes in the prompt


class FrontEnd(ABC):
    """A family's front end, as described by a directory that vLLM loads."""

    options_class: ClassVar[type[ListeningOptions]]

    @property
    @abstractmethod
    def name(self) -> str:
        """The model's name in messages."""

    @abstractmethod
    def sound(self, samples: np.ndarray, options: Any) -> Sound:
        """Returns the tower's input for mono float32 samples [n] at 16 kHz; raises `BadInput` for too few or too
        many.
        """

    @abstractmethod
    def count(self, samples: int) -> int:
        """Returns how many positions these samples take in the prompt."""

    @abstractmethod
    def request_ids(self, placeholder: int, language: str | None, hotwords: str | None, prompt: str) -> list[int]:
        """Returns the prompt's ids for a server's transcription request, with `placeholder` at the speech's position.

        Args:
            language: an ISO 639 code, or None if unknown.
            hotwords: words that are likely to be said, as the request has them.
            prompt: the request's free text.

        Raises `BadInput` for values that the model does not support.
        """


class AudioInfo(BaseProcessingInfo):
    """Answers vLLM's questions about audio before there is any; each family has a subclass that reads its front end."""

    @staticmethod
    def read(directory: Path) -> FrontEnd:
        """Reads the front end that the directory describes; raises `BadInput` for a bad directory."""
        raise NotImplementedError

    @classmethod
    @cache
    def open(cls, directory: Path) -> FrontEnd:
        """Returns the family's front end for a directory, which is read once; raises `BadInput` for a bad directory."""
        return cls.read(directory)

    @cached_property
    def front_end(self) -> FrontEnd:
        """The model's front end."""
        return self.open(directory_of(self.ctx.model_config))

    @cached_property
    def placeholder(self) -> int:
        """The id of the token at the speech's position."""
        number: int = self.get_tokenizer().get_vocab()[AUDIO]
        return number

    def get_supported_mm_limits(self) -> Mapping[str, int | None]:
        """Returns the limit of one recording per prompt."""
        return {MODALITY: 1}

    def get_supported_mm_processor_kwargs(self) -> dict[str, set[str]]:
        """Returns no groups of options, as the options are flat and not grouped by transformers' processors."""
        return {}

    def get_data_parser(self) -> MultiModalDataParser:
        """Returns a parser that turns audio of any rate and number of channels into mono at 16 kHz."""
        return MultiModalDataParser(target_sr=SAMPLE_RATE, target_channels=1, audio_resample_method="soxr")

    def get_mm_max_tokens_per_item(self, seq_len: int, mm_counts: Mapping[str, int]) -> Mapping[str, int]:
        """Returns the number of positions of the longest chunk that vLLM makes room for."""
        return {MODALITY: min(self.front_end.count(round(MAX_SECONDS * SAMPLE_RATE)), seq_len)}


class AudioDummyInputs(BaseDummyInputsBuilder[AudioInfo]):
    """Creates the longest chunk, with which vLLM measures memory."""

    def get_dummy_text(self, mm_counts: Mapping[str, int]) -> str:
        """Returns a text of placeholders alone."""
        return AUDIO * mm_counts.get(MODALITY, 0)

    def get_dummy_mm_data(self, seq_len: int, mm_counts: Mapping[str, int], mm_options: Any) -> dict[str, Any]:
        """Returns silence that is short enough for its positions to fit into a prompt."""
        length = round(MAX_SECONDS * SAMPLE_RATE)
        while length > SAMPLE_RATE // 10 and self.info.front_end.count(length) > seq_len:
            length //= 2
        audios = self._get_dummy_audios(
            length=length, num_audios=mm_counts.get(MODALITY, 0), overrides=mm_options.get(MODALITY)
        )
        return {MODALITY: audios}


class AudioProcessor(BaseMultiModalProcessor[AudioInfo]):
    """Turns samples and options into a request's fields.

    The fields are `features` [frames, width] float32, and the numbers `lengths`, `counts` and `capture`.
    """

    def _call_hf_processor(self, hf_data: Mapping[str, Any], hf_kwargs: Mapping[str, object]) -> BatchFeature:
        options = dict(self.info.ctx.get_merged_mm_kwargs(hf_kwargs))
        capture = options.pop(CAPTURE, 0)
        if isinstance(capture, bool) or not isinstance(capture, int):
            raise BadRequest(f"{CAPTURE} is {capture!r:.80}; expected a whole number")
        sounds = [self._sound(np.asarray(samples, dtype=np.float32), options) for samples in hf_data[MODALITY]]
        return BatchFeature(
            {
                "features": [torch.from_numpy(np.ascontiguousarray(sound.features)) for sound in sounds],
                "lengths": torch.tensor([sound.length for sound in sounds]),
                "counts": torch.tensor([sound.embeddings for sound in sounds]),
                "capture": torch.tensor([capture for _ in sounds]),
            }
        )

    def _sound(self, samples: np.ndarray, options: Mapping[str, Any]) -> Sound:
        front_end = self.info.front_end
        try:
            sound = front_end.sound(samples, build_options(front_end.options_class, options, front_end.name))
        except BadInput as error:
            raise BadRequest(str(error)) from error
        if sound.embeddings < 1:
            raise BadRequest(
                f"{len(samples)} samples are too few for {front_end.name}; expected some hundredths of a second"
            )
        return sound

    def _get_mm_fields_config(
        self, hf_inputs: BatchFeature, hf_processor_mm_kwargs: Mapping[str, object]
    ) -> Mapping[str, MultiModalFieldConfig]:
        numbers = {
            name: MultiModalFieldConfig.batched(MODALITY, keep_on_cpu=True) for name in ("lengths", "counts", "capture")
        }
        return {"features": MultiModalFieldConfig.batched(MODALITY), **numbers}

    def _get_prompt_updates(
        self, mm_items: Any, hf_processor_mm_kwargs: Mapping[str, object], out_mm_kwargs: Any
    ) -> Sequence[PromptReplacement]:
        placeholder = self.info.placeholder
        items = out_mm_kwargs.get(MODALITY, [])  # items in vLLM's cache are not among them

        def replacement(number: int) -> list[int]:
            return [placeholder] * int(items[number]["counts"].data)

        return [PromptReplacement(modality=MODALITY, target=[placeholder], replacement=replacement)]
