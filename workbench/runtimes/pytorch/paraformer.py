"""Paraformer on PyTorch: the network, and the recogniser that runs it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from workbench.audio.cmvn import read_am_mvn
from workbench.audio.frontend import Frontend
from workbench.families.paraformer import (
    MARKERS,
    PEAK,
    CifConfig,
    DecoderConfig,
    ParaformerModel,
    ParaformerOptions,
    join_pieces,
    peak_times,
    read_paraformer,
    timed_tokens,
)
from workbench.families.sanm import SanmConfig
from workbench.opening import Settings
from workbench.runtimes.pytorch.cif import CifOutput, CifPredictor, peaks
from workbench.runtimes.pytorch.device import prepare
from workbench.runtimes.pytorch.sanm import SanmEncoder
from workbench.runtimes.pytorch.sanm_decoder import SanmDecoder
from workbench.runtimes.pytorch.settle import settle
from workbench.runtimes.pytorch.tap import Recorder, Tap, no_tap
from workbench.runtimes.pytorch.weights import build, load_into, read_state_dict
from workbench.session import StageFilter
from workbench.transcription import Heard, SpeechSession


class ParaformerOutput(NamedTuple):
    """What one pass gives."""

    logits: Tensor | None  # [B, N, V]; None where no token was counted
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

    def forward(self, features: Tensor, lengths: Tensor | None = None, tap: Tap = no_tap) -> ParaformerOutput:
        """Decodes features [B, T, input], `lengths` [B] frames each (None when all rows are full)."""
        encoded = self.encoder(features, lengths, tap)
        cif = self.predictor(encoded, lengths, tap)
        if int(cif.counts.max()) < 1:
            return ParaformerOutput(None, cif, encoded)
        counts = None if lengths is None else cif.counts
        return ParaformerOutput(self.decoder(encoded, lengths, cif.embeddings, counts, tap), cif, encoded)


class Paraformer:
    """Recognises one stretch of speech with a loaded Paraformer."""

    options_class = ParaformerOptions
    dtype = "float32"

    def __init__(self, model: ParaformerModel, device: torch.device):
        self.model = model
        self.device = device
        self.frontend = Frontend(model.frontend, read_am_mvn(model.cmvn_file) if model.cmvn_file else None)
        self.frontend_without_cmvn = Frontend(model.frontend, None)
        self.network = build(ParaformerNetwork, model.encoder, model.predictor, model.decoder, len(model.vocabulary))
        weights = model.checkpoint.weights
        where = f"{weights.parent.name}/{weights.name}"
        load_into(self.network, read_state_dict(weights), where, model.unused_tensors, mapped_from=weights)
        settle(self.network, device, weights)
        self.markers = {number for number, piece in enumerate(model.vocabulary.pieces) if piece in MARKERS}

    @torch.inference_mode()
    def recognise(self, samples: np.ndarray, options: ParaformerOptions, recorder: Recorder | None = None) -> Heard:
        """What is said in float32 samples [n] at the checkpoint's rate."""
        tap: Tap = recorder or no_tap
        frontend = self.frontend_without_cmvn if options.cmvn == "off" else self.frontend
        front = frontend(samples, dither=options.dither)
        if recorder:
            for stage in ("fbank", "lfr", "features"):
                recorder.put(f"frontend.{stage}", getattr(front, stage))
        output = self.network(torch.from_numpy(front.features)[None].to(self.device), tap=tap)
        ids = () if output.logits is None else tuple(output.logits[0].argmax(dim=-1).tolist())
        said = [number for number in ids if number not in self.markers]
        times = self._times(output, len(said)) if options.timestamps and said else None
        return Heard(
            text=self.text_of(said),
            language=None,
            tags={},
            tokens=timed_tokens(said, self.model.vocabulary, times),
            ids=ids,
        )

    def _times(self, output: ParaformerOutput, tokens: int) -> list[tuple[float, float]] | None:
        """Token times from the finest integrator the model has; its weights are rescaled where the edges do not fit.

        The original takes a plain Paraformer's edges for starts too, and gives them to that function with weights and
        peaks exchanged; its times are a token late at best. Its BiCif times are these.
        """
        config, rate, fine = (
            self.model.predictor,
            self.model.frontend.frame_seconds,
            bool(self.model.predictor.upsample),
        )
        if fine:
            alphas = self.network.predictor.fine_alphas(output.encoded, int(output.cif.counts[0]))
            rate /= config.upsample
            values = peaks(alphas, PEAK)
        else:
            alphas = output.cif.alphas[0]
            values = peaks(alphas, 1.0)  # where the embeddings were fired
        times = peak_times(values.tolist(), tokens, rate, fine)
        if times is None:
            values = peaks(alphas * ((tokens + 1) / alphas.sum()), PEAK)
            times = peak_times(values.tolist(), tokens, rate, fine)
        return times

    def text_of(self, ids: Sequence[int]) -> str:
        """The text of some of the tokens."""
        return join_pieces([self.model.vocabulary.pieces[number] for number in ids])

    def trace(self, samples: np.ndarray, options: ParaformerOptions, wanted: StageFilter) -> dict[str, np.ndarray]:
        """The stages of one pass over the samples."""
        recorder = Recorder(wanted)
        heard = self.recognise(samples, options, recorder)
        recorder.put("tokens", np.array(heard.ids, dtype=np.int64))
        recorder.put("text", np.array(heard.text))
        return recorder.stages


def open_session(directory: Path, name: str, settings: Settings) -> SpeechSession:
    """A session of the checkpoint in `directory`, called `name` in its results."""
    device = prepare(settings)
    return SpeechSession(name, "pytorch", Paraformer(read_paraformer(directory), device))
