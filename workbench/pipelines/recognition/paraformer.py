"""Paraformer around its network: features before it, text and token times after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from workbench.audio.cmvn import Cmvn
from workbench.core.finite import check_logits
from workbench.core.resources import close
from workbench.decoding.confidence import finite_or_none, probabilities
from workbench.families.sanm.paraformer import (
    MARKERS,
    PEAK_SHIFT,
    SEACO,
    ParaformerModel,
    ParaformerOptions,
    SeacoOptions,
    join_pieces,
    timed_tokens,
    token_times,
)
from workbench.families.sanm.seaco import Hotwords
from workbench.pipelines.features import Features, front_end_times
from workbench.pipelines.gradients import Differentiates
from workbench.pipelines.recognition.batches import (
    ComputesBatches,
    RunsInParallel,
    max_batch_seconds,
    recognise_joined,
)
from workbench.pipelines.recognition.recogniser import Recognition
from workbench.pipelines.recognition.traced import traced
from workbench.trace.recorder import Recorder, Stages
from workbench.trace.times import RowTimes
from workbench.trace.trace import StageFilter

FINE = "predictor.fine_alphas"  # the weights that give the token times of BiCif models


class Decoded(NamedTuple):
    """The result of one pass over a chunk of speech."""

    logits: np.ndarray | None  # [N, V]; None if CIF fired no token
    alphas: np.ndarray  # [T + 1]: weight of each frame; the last is the tail's
    encoded: Any  # the encoder's output as the runtime has it, passed back to `ParaformerNetwork.fine_alphas`


class ParaformerNetwork(Protocol):
    """The network that each runtime implements: encoder, CIF predictor, decoder."""

    @property
    def dtype(self) -> str:
        """The name of the type that it computes in."""
        ...

    def decode(
        self, features: np.ndarray, recorder: Recorder | None, cif_residual: bool = False, hotwords: Hotwords = ()
    ) -> Decoded:
        """Runs encoder, predictor and decoder; records `encoder.*`, `predictor.*`, `decoder.*` and `logits`.

        Args:
            features: [T, input], after LFR and CMVN.
            cif_residual: add the encoder's output to the predictor's convolution before the ReLU; the finer head never
                adds it.
            hotwords: their ids, see `workbench.families.sanm.seaco`; only of a network with the branch.
        """
        ...

    def fine_alphas(self, encoded: Any, tokens: int) -> np.ndarray:
        """Returns weights at the predictor's finer rate [T * upsample], scaled to sum to `tokens`; only for BiCif
        models.

        Args:
            encoded: the encoder's output from `decode`.
            tokens: the number of tokens that were decoded.
        """
        ...


@runtime_checkable
class DecodesInBatches(ComputesBatches, Protocol):
    """A network that computes several chunks in one pass."""

    def decode_batch(
        self, features: Sequence[np.ndarray], cif_residual: bool = False, hotwords: Hotwords = ()
    ) -> list[Decoded]:
        """Returns for each chunk's features what `ParaformerNetwork.decode` gives for one."""
        ...


@runtime_checkable
class DecodesJoined(RunsInParallel, Protocol):
    """A network that computes several chunks joined in one pass."""

    def decode_joined(
        self, features: Sequence[np.ndarray], cif_residual: bool = False, hotwords: Hotwords = ()
    ) -> Iterator[Decoded]:
        """Yields for each chunk's features what `ParaformerNetwork.decode` gives for one."""
        ...


class ParaformerPipeline:
    """Recognises one chunk of speech with a loaded Paraformer (see `Recogniser`)."""

    def __init__(self, model: ParaformerModel, cmvn: Cmvn | None, network: ParaformerNetwork):
        self.model = model
        self.network = network
        self.features = Features(model.frontend, cmvn)
        self.markers = {number for number, piece in enumerate(model.vocabulary.pieces) if piece in MARKERS}

    @property
    def options_class(self) -> type[ParaformerOptions]:
        """The options of the checkpoint: only SeACo's have hotwords."""
        return SeacoOptions if self.model.checkpoint.model == SEACO else ParaformerOptions

    def _hotwords(self, options: ParaformerOptions) -> Hotwords:
        """Returns the ids of the hotwords; raises `BadInput` for hotwords that the model cannot take."""
        return self.model.hotword_ids(options.hotwords) if isinstance(options, SeacoOptions) else ()

    @property
    def dtype(self) -> str:
        """The name of the type that the network computes in."""
        return self.network.dtype

    @property
    def row_times(self) -> Mapping[str, RowTimes]:
        """See `workbench.trace.times.TimesRows`. Rows of weights are at the times that the tokens' borders have."""
        frame = self.model.frontend.frame_seconds
        fine = frame / (self.model.predictor.upsample or 1)
        return {
            **front_end_times(self.model.frontend),
            "encoder.*": RowTimes(0.0, frame),
            "predictor.alphas": RowTimes(PEAK_SHIFT * frame, frame),
            FINE: RowTimes(PEAK_SHIFT * fine, fine),
        }

    def pieces(self, ids: Sequence[int]) -> tuple[str, ...]:
        """See `workbench.pipelines.recognition.recogniser.NamesPieces`."""
        return self.model.vocabulary.pieces_of(ids)

    def recognise(
        self, samples: np.ndarray, options: ParaformerOptions, recorder: Recorder | None = None
    ) -> Recognition:
        """Returns what is said in float32 samples [n] at the checkpoint's rate."""
        hotwords = self._hotwords(options)
        features = self.features(samples, options, recorder)
        decoded = self.network.decode(features, recorder, options.cif_residual, hotwords)
        return self._recognition(decoded, options, recorder)

    @property
    def max_batch_seconds(self) -> float:
        """See `workbench.pipelines.recognition.recogniser.PaddingRecogniser`."""
        return max_batch_seconds(self.network)

    @property
    def pads(self) -> bool:
        """See `workbench.pipelines.recognition.recogniser.PaddingRecogniser`."""
        return not isinstance(self.network, RunsInParallel)

    def recognise_batch(self, chunks: Sequence[np.ndarray], options: ParaformerOptions) -> list[Recognition]:
        """See `workbench.pipelines.recognition.recogniser.PaddingRecogniser`."""
        hotwords = self._hotwords(options)
        if isinstance(self.network, RunsInParallel):
            recognise = partial(self._recognise_joined, options=options, hotwords=hotwords)
            return recognise_joined(self.network, chunks, self.model.frontend.frames, recognise)
        assert isinstance(self.network, DecodesInBatches)
        features = self.features.batch(chunks, options)
        decoded_batch = self.network.decode_batch(features, options.cif_residual, hotwords)
        return [self._recognition(decoded, options) for decoded in decoded_batch]

    def _recognise_joined(
        self, chunks: Sequence[np.ndarray], options: ParaformerOptions, hotwords: Hotwords
    ) -> list[Recognition]:
        """Returns the recognitions of chunks from one pass."""
        assert isinstance(self.network, DecodesJoined)
        features = [self.features(samples, options) for samples in chunks]
        all_decoded = self.network.decode_joined(features, options.cif_residual, hotwords)
        return [self._recognition(decoded, options) for decoded in all_decoded]

    def _recognition(
        self, decoded: Decoded, options: ParaformerOptions, recorder: Recorder | None = None
    ) -> Recognition:
        """Returns the recognition in what the network gave for one chunk."""
        best, best_probabilities = np.empty(0, int), []
        if decoded.logits is not None:
            best = decoded.logits.argmax(axis=1)
            check_logits(decoded.logits[np.arange(len(best)), best])
            best_probabilities = [*map(finite_or_none, probabilities(decoded.logits, best).tolist())]
        ids = tuple(best.tolist())
        spoken_ids = [number for number in ids if number not in self.markers]
        spoken_probabilities = [
            each for number, each in zip(ids, best_probabilities, strict=True) if number not in self.markers
        ]
        times = self._times(decoded, len(ids), len(spoken_ids), recorder) if options.timestamps and spoken_ids else None
        return Recognition(
            text=self.text_of(spoken_ids),
            language=None,
            tags={},
            tokens=timed_tokens(spoken_ids, self.model.vocabulary, times, spoken_probabilities),
            ids=ids,
        )

    def _times(
        self, decoded: Decoded, decoded_tokens: int, text_tokens: int, recorder: Recorder | None
    ) -> list[tuple[float, float]] | None:
        """Returns token times from the finest CIF weights of the model (see `token_times`).

        Args:
            decoded_tokens: the number of tokens that were decoded.
            text_tokens: the number of them that are text.
        """
        upsample, rate = self.model.predictor.upsample, self.model.frontend.frame_seconds
        if not upsample:
            return token_times(decoded.alphas, text_tokens, rate, fine=False).times
        alphas = self.network.fine_alphas(decoded.encoded, decoded_tokens)
        if recorder is not None and recorder.wanted(FINE):
            recorder.put(FINE, alphas)
        return token_times(alphas, text_tokens, rate / upsample, fine=True).times

    def text_of(self, ids: Sequence[int]) -> str:
        """Returns the text of some of the tokens."""
        return join_pieces([self.model.vocabulary.pieces[number] for number in ids])

    def trace(
        self,
        samples: np.ndarray,
        options: ParaformerOptions,
        requested_stages: StageFilter,
        given: Stages | None = None,
    ) -> dict[str, np.ndarray]:
        """See `workbench.pipelines.recognition.recogniser.Recogniser.trace`."""
        gradients_of = partial(self._gradients, samples, options) if isinstance(self.network, Differentiates) else None
        return traced(self.recognise, samples, options, requested_stages, given, gradients_of)

    def _gradients(
        self, samples: np.ndarray, options: ParaformerOptions, ids: Sequence[int], places: Sequence[int]
    ) -> Iterator[np.ndarray]:
        """Yields the gradients of some tokens (see `GradientsOf`)."""
        assert isinstance(self.network, Differentiates)
        hotwords = self._hotwords(options)
        features = self.features(samples, options)
        choices = [(place, ids[place]) for place in places]
        how: dict[str, Any] = {"cif_residual": options.cif_residual, "hotwords": hotwords}
        for gradient in self.network.gradients(features, lambda _: choices, **how):
            yield self.features.gradient(gradient, len(samples), options)

    def close(self) -> None:
        """Frees the network."""
        close(self.network)
