"""Fun-ASR-Nano's hearing half around its network: features before it, and the prompt that the speech stands in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from workbench.audio.cmvn import Cmvn
from workbench.core.resources import close
from workbench.decoding.generation import Decoding, decoding_of
from workbench.families.funasr_nano import (
    SPEECH,
    FunasrNanoModel,
    FunasrNanoOptions,
    audio_tokens,
    prompt_ids,
    tidy,
)
from workbench.families.language import LanguageTokenizer
from workbench.pipelines.features import Features
from workbench.trace.recorder import Recorder


class NanoNetwork(Protocol):
    """What a runtime computes: encoder and adaptor, in float32 at least, since their values overflow half precision."""

    def hear(self, features: Sequence[np.ndarray], recorder: Recorder | None) -> tuple[Any, np.ndarray]:
        """(speech embeddings [B, frames, H], how many of the frames are each stretch's [B]).

        Records `encoder.*` and `adaptor.*` of the first stretch. The embeddings are of the kind that the runtime's
        language model takes.

        Args:
            features: of each stretch [T, input], after LFR and CMVN.
        """
        ...


class NanoPromptFormat:
    """Fun-ASR-Nano's words around the speech: `workbench.pipelines.speech_language.PromptFormat`."""

    options_class = FunasrNanoOptions
    placeholder = SPEECH

    def __init__(self, model: FunasrNanoModel):
        self.model = model

    @property
    def tokenizer(self) -> LanguageTokenizer:
        """Of the language model."""
        return self.model.tokenizer

    def count(self, samples: int) -> int:
        """As `PromptFormat.count`."""
        return audio_tokens(self.model.frontend.frames(samples), self.model.adaptor)

    def prompt_ids(self, options: FunasrNanoOptions) -> np.ndarray:
        """As `PromptFormat.prompt_ids`."""
        return prompt_ids(self.model, options)

    def decoding(self, options: FunasrNanoOptions, counts: np.ndarray) -> Decoding:
        """As `PromptFormat.decoding`."""
        return decoding_of(options, self.model.stop_ids, pad_id=self.model.stop_ids[0])

    def text(self, written: str) -> str:
        """As `PromptFormat.text`."""
        return tidy(written)


class NanoAudioEncoder(NanoPromptFormat):
    """Fun-ASR-Nano's half of a `SpeechLanguagePipeline`."""

    def __init__(self, model: FunasrNanoModel, cmvn: Cmvn | None, network: NanoNetwork):
        super().__init__(model)
        self.network = network
        self.features = Features(model.frontend, cmvn)

    def embeddings(
        self, stretches: Sequence[np.ndarray], options: FunasrNanoOptions, recorder: Recorder | None = None
    ) -> tuple[Any, np.ndarray]:
        """As `Ear.embeddings`."""
        features = [
            self.features(samples, options, None if number else recorder) for number, samples in enumerate(stretches)
        ]
        return self.network.hear(features, recorder)

    def close(self) -> None:
        """Frees the network."""
        close(self.network)
