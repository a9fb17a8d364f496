"""Paraformer on PyTorch: the network, and a session opened from a checkpoint directory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from workbench.audio.cmvn import read_am_mvn
from workbench.core.phrases import name_in_folder
from workbench.core.settings import Settings
from workbench.families.sanm.decoder import DecoderConfig
from workbench.families.sanm.encoder import SanmConfig
from workbench.families.sanm.paraformer import CifConfig, ParaformerModel, read_paraformer
from workbench.families.sanm.seaco import Hotwords
from workbench.pipelines.gradients import Choose
from workbench.pipelines.recognition.paraformer import Decoded, ParaformerPipeline
from workbench.pipelines.recognition.speech_session import SpeechSession
from workbench.runtimes.pytorch.checkpoints.finalise_weights import finalise_weights
from workbench.runtimes.pytorch.checkpoints.weights import build, load_into, read_state_dict
from workbench.runtimes.pytorch.hotwords import HotwordBias
from workbench.runtimes.pytorch.inner_stages.gradients import choice_gradients
from workbench.runtimes.pytorch.inner_stages.inside import looking_inside
from workbench.runtimes.pytorch.inner_stages.layer_maps import layers_of
from workbench.runtimes.pytorch.networks.cif import CifOutput, CifPredictor
from workbench.runtimes.pytorch.networks.sanm import SanmEncoder
from workbench.runtimes.pytorch.networks.sanm_decoder import Bias, SanmDecoder
from workbench.runtimes.pytorch.numerics.arithmetic import array_of, attention_in_steps
from workbench.runtimes.pytorch.numerics.batches import max_batch_seconds, padded_rows
from workbench.runtimes.pytorch.numerics.device import prepare
from workbench.runtimes.pytorch.numerics.products import FLOAT32, Arithmetic, arithmetic_of
from workbench.runtimes.pytorch.tap import Tap, no_tap, tap_into
from workbench.trace.recorder import Recorder


class ParaformerOutput(NamedTuple):
    """The result of one pass."""

    logits: Tensor | None  # [B, N, V]; None if CIF fired no token
    cif: CifOutput
    encoded: Tensor  # [B, T, D]


class ParaformerNetwork(nn.Module):
    """SAN-M encoder, CIF predictor, SAN-M decoder."""

    def __init__(
        self, encoder: SanmConfig, predictor: CifConfig, decoder: DecoderConfig, vocabulary: int, dropout: float = 0.0
    ):
        super().__init__()
        self.encoder = SanmEncoder(encoder, dropout)
        self.predictor = CifPredictor(predictor)
        self.decoder = SanmDecoder(decoder, encoder.output_size, vocabulary, dropout)

    def forward(
        self,
        features: Tensor,
        lengths: Tensor | None = None,
        tap: Tap = no_tap,
        cif_residual: bool = False,
        bias: Bias | None = None,
    ) -> ParaformerOutput:
        """Decodes features [B, T, input] with `lengths` [B] frames each (None if all rows are full).

        `cif_residual` as in `workbench.pipelines.recognition.paraformer.ParaformerNetwork.decode`, `bias` as in
        `SanmDecoder`.
        """
        encoded = self.encoder(features, lengths, tap)
        cif = self.predictor(encoded, lengths, tap, cif_residual)
        if not cif.embeddings.shape[1]:
            return ParaformerOutput(None, cif, encoded)
        counts = None if len(features) == 1 else cif.counts  # rows of equal length may fire fewer tokens than others
        return ParaformerOutput(self.decoder(encoded, lengths, cif.embeddings, counts, tap, bias), cif, encoded)


class ParaformerRunner:
    """A loaded network with numpy arrays in and out.

    It implements `workbench.pipelines.recognition.paraformer.ParaformerNetwork`.
    """

    def __init__(self, model: ParaformerModel, device: torch.device, arithmetic: Arithmetic = FLOAT32):
        self.device = device
        self.arithmetic = arithmetic
        self.kind = arithmetic.values
        self.network = build(ParaformerNetwork, model.encoder, model.predictor, model.decoder, len(model.vocabulary))
        weights = model.checkpoint.weights
        where = name_in_folder(weights)
        tensors = read_state_dict(weights)
        model = model.with_branch(tensors)
        load_into(self.network, tensors, where, model.unused_tensors, mapped_from=weights, dtype=self.kind)
        finalise_weights(self.network, device, weights, arithmetic=arithmetic, exact=("predictor.*",))
        self.network.encoder.replay_on(device)
        self.model = model
        self.hotwords = HotwordBias(model, model.seaco, tensors, device, arithmetic) if model.seaco else None

    @property
    def dtype(self) -> str:
        """The name of the type that it computes in."""
        return self.arithmetic.name

    def _bias(self, hotwords: Hotwords, recorder: Recorder | None = None) -> Bias | None:
        """Returns the function that changes logits by the hotwords; None without hotwords."""
        if not hotwords:
            return None
        assert self.hotwords is not None, "asked of a model without the branch"
        return self.hotwords.bias(hotwords, recorder)

    @torch.inference_mode()
    def decode(
        self, features: np.ndarray, recorder: Recorder | None, cif_residual: bool = False, hotwords: Hotwords = ()
    ) -> Decoded:
        """See `ParaformerNetwork.decode`."""
        batch = torch.from_numpy(features)[None].to(self.device, self.kind)
        with attention_in_steps(self.kind), looking_inside(self.network, recorder):
            bias = self._bias(hotwords, recorder)
            logits, cif, encoded = self.network(batch, None, tap_into(recorder), cif_residual, bias)
        row_logits = None if logits is None else array_of(logits[0])
        return Decoded(row_logits, array_of(cif.alphas[0]), encoded)

    @property
    def max_batch_seconds(self) -> float:
        """See `workbench.pipelines.recognition.paraformer.DecodesInBatches`."""
        return max_batch_seconds(self.device)

    @torch.inference_mode()
    def decode_batch(
        self, features: Sequence[np.ndarray], cif_residual: bool = False, hotwords: Hotwords = ()
    ) -> list[Decoded]:
        """See `workbench.pipelines.recognition.paraformer.DecodesInBatches`."""
        padded, lengths = padded_rows(features, self.device, self.kind)
        with attention_in_steps(self.kind):
            logits, cif, encoded = self.network(padded, lengths, no_tap, cif_residual, self._bias(hotwords))
        decoded = []
        for row, (rows, count) in enumerate(zip(features, cif.counts.tolist(), strict=True)):
            tokens = array_of(logits[row, :count]) if logits is not None and count else None
            alphas = array_of(cif.alphas[row, : len(rows) + 1])
            decoded.append(Decoded(tokens, alphas, encoded[row : row + 1, : len(rows)]))
        return decoded

    def gradients(
        self, features: np.ndarray, choose: Choose, cif_residual: bool = False, hotwords: Hotwords = ()
    ) -> Iterator[np.ndarray]:
        """See `workbench.pipelines.gradients.Differentiates`; the gradient goes through the CIF weights too."""
        batch = torch.from_numpy(features)[None].to(self.device, self.kind)

        def logits_of(inputs: Tensor) -> Tensor:
            logits = self.network(inputs, None, no_tap, cif_residual, self._bias(hotwords)).logits
            assert logits is not None
            row_logits: Tensor = logits[0]
            return row_logits

        arithmetic = partial(attention_in_steps, self.kind)
        for gradient in choice_gradients(batch, logits_of, choose, layers_of(self.network), arithmetic):
            yield array_of(gradient[0])

    @torch.inference_mode()
    def fine_alphas(self, encoded: Any, tokens: int) -> np.ndarray:
        """See `ParaformerNetwork.fine_alphas`."""
        return array_of(self.network.predictor.fine_alphas(encoded, tokens))


def open_paraformer(
    model: ParaformerModel, device: torch.device, arithmetic: Arithmetic = FLOAT32
) -> ParaformerPipeline:
    """Returns the recogniser of a checkpoint that has been read; raises `BadInput` if its weights do not fit."""
    cmvn = read_am_mvn(model.cmvn_file) if model.cmvn_file else None
    runner = ParaformerRunner(model, device, arithmetic)
    return ParaformerPipeline(runner.model, cmvn, runner)


def open_session(directory: Path, name: str, settings: Settings) -> SpeechSession:
    """Opens a session for the checkpoint in `directory`; results call the model `name`."""
    device = prepare(settings)
    model = read_paraformer(directory)
    pipeline = open_paraformer(model, device, arithmetic_of(settings, device))
    return SpeechSession(name, "pytorch", pipeline, device=str(device))
