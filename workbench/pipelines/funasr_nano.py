"""Fun-ASR-Nano's hearing half around its network: features before it, and the prompt that the speech stands in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from workbench.audio.cmvn import Cmvn
from workbench.audio.frontend import Frontend
from workbench.closing import close
from workbench.decoding.generation import Decoding, decoding_of
from workbench.families.funasr_nano import SPEECH, FunasrNanoModel, FunasrNanoOptions, prompt_ids, tidy
from workbench.stages import Recorder


class Network(Protocol):
    """What a runtime computes: encoder and adaptor, in float32, since their values overflow half precision."""

    def hear(self, features: Sequence[np.ndarray], recorder: Recorder | None) -> tuple[Any, np.ndarray]:
        """(speech embeddings [B, frames, H], how many of the frames are each stretch's [B]).

        Records `encoder.*` and `adaptor.*` of the first stretch. The embeddings are of the kind that the runtime's
        language model takes.

        Args:
            features: of each stretch [T, input], after LFR and CMVN.
        """
        ...


class NanoEar:
    """Fun-ASR-Nano's half of a `SpeechLanguagePipeline`."""

    options_class = FunasrNanoOptions
    placeholder = SPEECH

    def __init__(self, model: FunasrNanoModel, cmvn: Cmvn | None, network: Network):
        self.model = model
        self.network = network
        self.frontend = Frontend(model.frontend, cmvn)
        self.frontend_without_cmvn = Frontend(model.frontend, None)

    def embeddings(
        self, stretches: Sequence[np.ndarray], options: FunasrNanoOptions, recorder: Recorder | None = None
    ) -> tuple[Any, np.ndarray]:
        """As `Ear.embeddings`."""
        frontend = self.frontend_without_cmvn if options.cmvn == "off" else self.frontend
        fronts = [frontend(samples, dither=options.dither) for samples in stretches]
        if recorder:
            for stage in ("fbank", "lfr", "features"):
                recorder.put(f"frontend.{stage}", getattr(fronts[0], stage))
        return self.network.hear([front.features for front in fronts], recorder)

    def prompt_ids(self, options: FunasrNanoOptions) -> np.ndarray:
        """As `Ear.prompt_ids`."""
        return prompt_ids(self.model, options)

    def decoding(self, options: FunasrNanoOptions, counts: np.ndarray) -> Decoding:
        """As `Ear.decoding`."""
        return decoding_of(options, self.model.stop_ids, pad_id=self.model.stop_ids[0])

    def text(self, written: str) -> str:
        """As `Ear.text`."""
        return tidy(written)

    def close(self) -> None:
        """Frees the network."""
        close(self.network)
