"""FireRedASR-LLM's audio encoder around its network: features before it, and the prompt that the speech is put into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from workbench.audio.cmvn import Cmvn
from workbench.core.resources import close
from workbench.decoding.generation import Decoding, decoding_of
from workbench.families.speech_llm.conformer import SUBSAMPLING, valid_frames
from workbench.families.speech_llm.fireredasr import (
    FireRedAsrModel,
    FireRedAsrOptions,
    check_length,
    prompt_ids,
    speech_tokens,
    tidy,
)
from workbench.pipelines.features import Features, front_end_times
from workbench.pipelines.gradients import DifferentiatesFeatures
from workbench.pipelines.recognition.speech_language import BasePromptFormat
from workbench.trace.recorder import Recorder
from workbench.trace.times import RowTimes

STAGES = ("fbank", "features")  # stages of the front end; it stacks no frames


class FireRedNetwork(Protocol):
    """The network that each runtime implements: encoder and adapter, computed in float32 or wider."""

    def embed_audio(self, features: Sequence[np.ndarray], valid: Sequence[int], recorder: Recorder | None) -> Any:
        """Returns speech embeddings [B, frames, H] as arrays of the runtime's language model.

        Records `encoder.*` and `adaptor.*` of the first chunk. In a batch, the features of shorter chunks are padded
        with zeros, as in training.

        Args:
            features: of each chunk [L, mels], after CMVN; each long enough for one embedding.
            valid: the number of encoder frames of each chunk that count as speech.
        """
        ...


class FireRedPromptFormat(BasePromptFormat):
    """FireRedASR's prompt around the speech; implements `speech_language.PromptFormat`."""

    options_class = FireRedAsrOptions
    model: FireRedAsrModel

    def __init__(self, model: FireRedAsrModel):
        super().__init__(model)
        self.placeholder = model.speech_id

    @property
    def row_times(self) -> Mapping[str, RowTimes]:
        """See `workbench.trace.times.TimesRows`."""
        frame = SUBSAMPLING * self.model.frontend.frame_seconds
        return {
            **front_end_times(self.model.frontend),
            "encoder.*": RowTimes(0.0, frame),
            "adaptor.*": RowTimes(0.0, frame * self.model.downsample_rate),
        }

    def count(self, samples: int) -> int:
        """See `PromptFormat.count`."""
        frames = self.model.frontend.frames(samples)
        check_length(samples, frames, self.model)
        return speech_tokens(frames, self.model.downsample_rate)

    def speech_frames(self, frames: int, options: FireRedAsrOptions) -> int:
        """Returns how many encoder frames of `frames` feature frames count as speech; at least one."""
        rule = self.model.length_rule if options.length_rule == "checkpoint" else options.length_rule
        return max(valid_frames(frames, rule), 1)

    def prompt_ids(self, options: FireRedAsrOptions) -> np.ndarray:
        """See `PromptFormat.prompt_ids`."""
        return prompt_ids(self.model, self.instruction)

    def decoding(self, options: FireRedAsrOptions, counts: np.ndarray) -> Decoding:
        """See `PromptFormat.decoding`."""
        return decoding_of(
            options,
            (self.model.stop_id,),
            max_new_tokens=options.max_new_tokens or counts,
            beam_size=options.beam_size,
            length_penalty=options.length_penalty,
            pad_id=self.model.pad_id,
        )

    def text(self, output: str) -> str:
        """See `PromptFormat.text`."""
        return tidy(output)


class FireRedAudioEncoder(FireRedPromptFormat):
    """FireRedASR's audio encoder for `SpeechLanguagePipeline`."""

    def __init__(self, model: FireRedAsrModel, cmvn: Cmvn, network: FireRedNetwork):
        super().__init__(model)
        self.network = network
        self.features = Features(model.frontend, cmvn, STAGES)

    def embeddings(
        self, chunks: Sequence[np.ndarray], options: FireRedAsrOptions, recorder: Recorder | None = None
    ) -> tuple[Any, np.ndarray]:
        """See `AudioEncoder.embeddings`."""
        model = self.model
        features = self.features.batch(chunks, options, recorder)
        counts = np.array([self.count(len(samples)) for samples in chunks])
        valid = [self.speech_frames(len(row), options) for row in features]
        # Pads the normalised features with zeros, as in training, so that even the shortest audio gives an embedding.
        features = [_at_least(row, SUBSAMPLING * model.downsample_rate) for row in features]
        return self.network.embed_audio(features, valid, recorder), counts

    def input_gradient(self, samples: np.ndarray, options: FireRedAsrOptions, gradient: Any) -> np.ndarray:
        """See `workbench.pipelines.gradients.DifferentiatesRecordings`."""
        assert isinstance(self.network, DifferentiatesFeatures)
        features = self.features(samples, options)
        valid = self.speech_frames(len(features), options)
        padded = _at_least(features, SUBSAMPLING * self.model.downsample_rate)
        feature_gradient = self.network.input_gradient(padded, gradient, valid=valid)
        return self.features.gradient(feature_gradient[: len(features)], len(samples), options)

    def close(self) -> None:
        """Frees the network."""
        close(self.network)


def _at_least(features: np.ndarray, frames: int) -> np.ndarray:
    """Returns features [L, mels], padded with zeros to `frames` frames if they are fewer."""
    return np.pad(features, ((0, max(frames - len(features), 0)), (0, 0)))
