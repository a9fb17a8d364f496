"""Paraformer around its network: features before it, text and token times after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from workbench.audio.cmvn import Cmvn
from workbench.core.resources import close
from workbench.decoding.cif import peaks
from workbench.families.paraformer import (
    MARKERS,
    PEAK,
    ParaformerModel,
    ParaformerOptions,
    join_pieces,
    peak_times,
    timed_tokens,
)
from workbench.pipelines.features import Features
from workbench.pipelines.speech_session import Recognition
from workbench.pipelines.traced import traced
from workbench.trace.recorder import Recorder, Stages
from workbench.trace.trace import StageFilter


class Decoded(NamedTuple):
    """What one pass over a stretch of speech gives."""

    logits: np.ndarray | None  # [N, V]; None where no token was counted
    alphas: np.ndarray  # [T + 1]: weight of each frame, the tail's last
    encoded: Any  # the encoder's output as the runtime has it, handed back to `ParaformerNetwork.fine_alphas`


class ParaformerNetwork(Protocol):
    """What a runtime computes: encoder, CIF predictor, decoder."""

    @property
    def dtype(self) -> str:
        """The name of its arithmetic's type."""
        ...

    def decode(self, features: np.ndarray, recorder: Recorder | None, cif_residual: bool = False) -> Decoded:
        """Encodes, counts and decodes; records `encoder.*`, `predictor.*`, `decoder.*` and `logits`.

        Args:
            features: [T, input], after LFR and CMVN.
            cif_residual: add the encoder's output to the predictor's convolution, before the ReLU. The finer head
                never does.
        """
        ...

    def fine_alphas(self, encoded: Any, tokens: int) -> np.ndarray:
        """Weights at the predictor's finer rate [T * upsample], scaled to sum to `tokens`; asked of BiCif models only.

        Args:
            encoded: as `decode` gave it.
            tokens: how many were decoded.
        """
        ...


class ParaformerPipeline:
    """Recognises one stretch of speech with a loaded Paraformer (see `Recogniser`)."""

    options_class = ParaformerOptions

    def __init__(self, model: ParaformerModel, cmvn: Cmvn | None, network: ParaformerNetwork):
        self.model = model
        self.network = network
        self.features = Features(model.frontend, cmvn)
        self.markers = {number for number, piece in enumerate(model.vocabulary.pieces) if piece in MARKERS}

    @property
    def dtype(self) -> str:
        """Of the network's arithmetic."""
        return self.network.dtype

    def recognise(
        self, samples: np.ndarray, options: ParaformerOptions, recorder: Recorder | None = None
    ) -> Recognition:
        """What is said in float32 samples [n] at the checkpoint's rate."""
        features = self.features(samples, options, recorder)
        decoded = self.network.decode(features, recorder, options.cif_residual)
        ids = () if decoded.logits is None else tuple(decoded.logits.argmax(axis=1).tolist())
        said = [number for number in ids if number not in self.markers]
        times = self._times(decoded, len(ids), len(said)) if options.timestamps and said else None
        return Recognition(
            text=self.text_of(said),
            language=None,
            tags={},
            tokens=timed_tokens(said, self.model.vocabulary, times),
            ids=ids,
        )

    def _times(self, decoded: Decoded, counted: int, tokens: int) -> list[tuple[float, float]] | None:
        """Token times from the finest integrator the model has; its weights are rescaled where the edges do not fit.

        The original takes a plain Paraformer's edges for starts too, and gives them to that function with weights and
        peaks exchanged; its times are a token late at best. Its BiCif times are these.

        Args:
            counted: tokens that were decoded.
            tokens: those of them that were said.
        """
        upsample, rate = self.model.predictor.upsample, self.model.frontend.frame_seconds
        fine = bool(upsample)
        if fine:
            alphas = self.network.fine_alphas(decoded.encoded, counted)
            rate /= upsample
            values = peaks(alphas, PEAK)
        else:
            alphas = decoded.alphas
            values = peaks(alphas, 1.0)  # where the embeddings were fired
        times = peak_times(values.tolist(), tokens, rate, fine)
        if times is None:
            values = peaks(alphas * ((tokens + 1) / alphas.sum()), PEAK)
            times = peak_times(values.tolist(), tokens, rate, fine)
        return times

    def text_of(self, ids: Sequence[int]) -> str:
        """The text of some of the tokens."""
        return join_pieces([self.model.vocabulary.pieces[number] for number in ids])

    def trace(
        self, samples: np.ndarray, options: ParaformerOptions, wanted: StageFilter, given: Stages | None = None
    ) -> dict[str, np.ndarray]:
        """As `workbench.pipelines.speech_session.Recogniser.trace`."""
        return traced(self.recognise, samples, options, wanted, given)

    def close(self) -> None:
        """Frees the network."""
        close(self.network)
