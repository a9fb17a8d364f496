"""FireRedASR-LLM's hearing half around its network: features before it, and the prompt that the speech stands in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from workbench.audio.cmvn import Cmvn
from workbench.core.resources import close
from workbench.decoding.generation import Decoding, decoding_of
from workbench.families.conformer import SUBSAMPLING, valid_frames
from workbench.families.fireredasr import (
    FireRedAsrModel,
    FireRedAsrOptions,
    check_length,
    prompt_ids,
    speech_tokens,
    tidy,
)
from workbench.families.language import LanguageTokenizer
from workbench.pipelines.features import Features
from workbench.trace.recorder import Recorder

STAGES = ("fbank", "features")  # of the front end: nothing is stacked


class FireRedNetwork(Protocol):
    """What a runtime computes: encoder and adapter, in float32 at least."""

    def hear(self, features: Sequence[np.ndarray], valid: Sequence[int], recorder: Recorder | None) -> Any:
        """Speech embeddings [B, frames, H], of the kind that the runtime's language model takes.

        Records `encoder.*` and `adaptor.*` of the first stretch. In a batch, zeros stand behind the shorter stretches'
        features, as in training.

        Args:
            features: of each stretch [L, mels], after CMVN; never too short for an embedding.
            valid: encoder frames of each stretch that count as speech.
        """
        ...


class FireRedPromptFormat:
    """FireRedASR's words around the speech: `workbench.pipelines.speech_language.PromptFormat`."""

    options_class = FireRedAsrOptions

    def __init__(self, model: FireRedAsrModel):
        self.model = model
        self.placeholder = model.speech_id

    @property
    def tokenizer(self) -> LanguageTokenizer:
        """Of the language model."""
        return self.model.tokenizer

    def count(self, samples: int) -> int:
        """As `PromptFormat.count`."""
        frames = self.model.frontend.frames(samples)
        check_length(samples, frames, self.model)
        return speech_tokens(frames, self.model.downsample_rate)

    def speech_frames(self, frames: int, options: FireRedAsrOptions) -> int:
        """How many encoder frames count as speech, of so many feature frames; one at least."""
        rule = self.model.length_rule if options.length_rule == "checkpoint" else options.length_rule
        return max(valid_frames(frames, rule), 1)

    def prompt_ids(self, options: FireRedAsrOptions) -> np.ndarray:
        """As `PromptFormat.prompt_ids`."""
        return prompt_ids(self.model)

    def decoding(self, options: FireRedAsrOptions, counts: np.ndarray) -> Decoding:
        """As `PromptFormat.decoding`."""
        return decoding_of(
            options,
            (self.model.stop_id,),
            max_new_tokens=options.max_new_tokens or counts,
            beam_size=options.beam_size,
            length_penalty=options.length_penalty,
            pad_id=self.model.pad_id,
        )

    def text(self, written: str) -> str:
        """As `PromptFormat.text`."""
        return tidy(written)


class FireRedAudioEncoder(FireRedPromptFormat):
    """FireRedASR's half of a `SpeechLanguagePipeline`."""

    def __init__(self, model: FireRedAsrModel, cmvn: Cmvn, network: FireRedNetwork):
        super().__init__(model)
        self.network = network
        self.features = Features(model.frontend, cmvn, STAGES)

    def embeddings(
        self, stretches: Sequence[np.ndarray], options: FireRedAsrOptions, recorder: Recorder | None = None
    ) -> tuple[Any, np.ndarray]:
        """As `Ear.embeddings`."""
        model = self.model
        features = [
            self.features(samples, options, None if number else recorder) for number, samples in enumerate(stretches)
        ]
        counts = np.array([self.count(len(samples)) for samples in stretches])
        valid = [self.speech_frames(len(row), options) for row in features]
        # Zeros behind the normalised features, as in training, so that the shortest sound gives an embedding.
        features = [_at_least(row, SUBSAMPLING * model.downsample_rate) for row in features]
        return self.network.hear(features, valid, recorder), counts

    def close(self) -> None:
        """Frees the network."""
        close(self.network)


def _at_least(features: np.ndarray, frames: int) -> np.ndarray:
    """Features [L, mels] with zeros behind them up to that many frames, where they are fewer."""
    return np.pad(features, ((0, max(frames - len(features), 0)), (0, 0)))
