"""Fun-ASR-Nano's audio encoder around its network: features before it, and the prompt that the speech is put into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from workbench.audio.cmvn import Cmvn
from workbench.core.errors import BadInput
from workbench.core.resources import close
from workbench.decoding.generation import Decoding, decoding_of
from workbench.families.speech_llm.funasr_nano import (
    SPEECH,
    CtcBranch,
    FunasrNanoModel,
    FunasrNanoOptions,
    FunasrNanoWriting,
    audio_tokens,
    prompt_ids,
    tidy,
)
from workbench.pipelines.features import Features, front_end_times
from workbench.pipelines.gradients import DifferentiatesFeatures
from workbench.pipelines.recognition.speech_language import BasePromptFormat
from workbench.trace.recorder import Recorder
from workbench.trace.times import RowTimes


class NanoNetwork(Protocol):
    """The network that each runtime implements: encoder and adaptor in float32 or wider, as half precision
    overflows.
    """

    def embed_audio(self, features: Sequence[np.ndarray], recorder: Recorder | None) -> tuple[Any, np.ndarray]:
        """Returns (speech embeddings [B, frames, H], the number of frames of each chunk [B]).

        Records `encoder.*` and `adaptor.*` of the first chunk. The embeddings are arrays of the runtime's language
        model.

        Args:
            features: of each chunk [T, input], after LFR and CMVN.
        """
        ...


class NanoPromptFormat(BasePromptFormat):
    """Fun-ASR-Nano's prompt around the speech; implements `speech_language.PromptFormat`."""

    options_class = FunasrNanoOptions
    placeholder = SPEECH
    model: FunasrNanoModel

    @property
    def row_times(self) -> Mapping[str, RowTimes]:
        """See `workbench.trace.times.TimesRows`. With the low frame rate, a row of the adaptor has no time: the network
        itself moves what it heard into the first eighth of the rows.
        """
        frame, adaptor = self.model.frontend.frame_seconds, self.model.adaptor
        rows = {} if adaptor.use_low_frame_rate else {"adaptor.*": RowTimes(0.0, frame)}
        if isinstance(self.model.ctc, CtcBranch):
            rows["ctc.*"] = RowTimes(0.0, frame * self.model.ctc.decoder.downsample_rate)
        return {**front_end_times(self.model.frontend), "encoder.*": RowTimes(0.0, frame), **rows}

    def count(self, samples: int) -> int:
        """See `PromptFormat.count`."""
        return audio_tokens(self.model.frontend.frames(samples), self.model.adaptor)

    def prompt_ids(self, options: FunasrNanoOptions) -> np.ndarray:
        """See `PromptFormat.prompt_ids`."""
        check_written(options)
        return prompt_ids(self.model, options, self.instruction)

    def decoding(self, options: FunasrNanoOptions, counts: np.ndarray) -> Decoding:
        """See `PromptFormat.decoding`."""
        return decoding_of(options, self.model.stop_ids, pad_id=self.model.stop_ids[0])

    def text(self, output: str) -> str:
        """See `PromptFormat.text`."""
        return tidy(output)


def check_written(options: FunasrNanoWriting) -> None:
    """Raises `BadInput` if options ask for a beam search over the CTC branch, where only the language model writes."""
    if isinstance(options, FunasrNanoOptions) and options.searches:
        raise BadInput(
            "options of a CTC beam search are set, and the CTC branch of Fun-ASR-Nano runs on pytorch and gguf alone; "
            "open the model on one of them, or leave out these options"
        )


class NanoAudioEncoder(NanoPromptFormat):
    """Fun-ASR-Nano's audio encoder for `SpeechLanguagePipeline`."""

    def __init__(self, model: FunasrNanoModel, cmvn: Cmvn | None, network: NanoNetwork):
        super().__init__(model)
        self.network = network
        self.features = Features(model.frontend, cmvn)

    def embeddings(
        self, chunks: Sequence[np.ndarray], options: FunasrNanoOptions, recorder: Recorder | None = None
    ) -> tuple[Any, np.ndarray]:
        """See `AudioEncoder.embeddings`."""
        features = self.features.batch(chunks, options, recorder)
        return self.network.embed_audio(features, recorder)

    def input_gradient(self, samples: np.ndarray, options: FunasrNanoOptions, gradient: Any) -> np.ndarray:
        """See `workbench.pipelines.gradients.DifferentiatesRecordings`."""
        assert isinstance(self.network, DifferentiatesFeatures)
        feature_gradient = self.network.input_gradient(self.features(samples, options), gradient)
        return self.features.gradient(feature_gradient, len(samples), options)

    def close(self) -> None:
        """Frees the network."""
        close(self.network)
