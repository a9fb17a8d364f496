"""SenseVoiceSmall on PyTorch: the network, and a session opened from a checkpoint directory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from workbench.audio.cmvn import read_am_mvn
from workbench.core.phrases import name_in_folder
from workbench.core.settings import Settings
from workbench.decoding.ctc import BestPath
from workbench.families.sanm.encoder import SanmConfig
from workbench.families.sanm.sensevoice import QUERIES, SenseVoiceModel, read_sensevoice
from workbench.pipelines.gradients import Choose
from workbench.pipelines.recognition.sensevoice import SenseVoicePipeline
from workbench.pipelines.recognition.speech_session import SpeechSession
from workbench.runtimes.pytorch.best_path import best_paths
from workbench.runtimes.pytorch.checkpoints.finalise_weights import finalise_weights
from workbench.runtimes.pytorch.checkpoints.weights import build, load_into, read_state_dict
from workbench.runtimes.pytorch.inner_stages.gradients import choice_gradients
from workbench.runtimes.pytorch.inner_stages.inside import looking_inside
from workbench.runtimes.pytorch.inner_stages.layer_maps import layers_of
from workbench.runtimes.pytorch.networks.sanm import SanmEncoder
from workbench.runtimes.pytorch.numerics.arithmetic import array_of, attention_in_steps
from workbench.runtimes.pytorch.numerics.batches import max_batch_seconds, padded_rows
from workbench.runtimes.pytorch.numerics.device import prepare
from workbench.runtimes.pytorch.numerics.products import FLOAT32, Arithmetic, arithmetic_of
from workbench.runtimes.pytorch.tap import Tap, no_tap, tap_into
from workbench.trace.recorder import Recorder


class CtcHead(nn.Module):
    """The linear layer from encoder output to the vocabulary."""

    def __init__(self, size: int, vocabulary: int):
        super().__init__()
        self.ctc_lo = nn.Linear(size, vocabulary)

    def forward(self, encoded: Tensor) -> Tensor:
        """Maps [B, T, D] to logits [B, T, V]."""
        return self.ctc_lo(encoded)


class SenseVoiceNetwork(nn.Module):
    """Query frames, SAN-M encoder, CTC head."""

    def __init__(self, encoder: SanmConfig, vocabulary: int, dropout: float = 0.0):
        super().__init__()
        self.encoder = SanmEncoder(encoder, dropout)
        self.ctc = CtcHead(encoder.output_size, vocabulary)
        # Not nn.Embedding's own normal_: on tensors without memory, torch would import sympy, which takes seconds.
        queries = torch.empty(QUERIES, encoder.input_size).uniform_(-(3**0.5), 3**0.5)
        self.embed = nn.Embedding.from_pretrained(queries, freeze=False)

    def forward(self, features: Tensor, queries: Tensor, lengths: Tensor | None = None, tap: Tap = no_tap) -> Tensor:
        """Returns CTC logits [B, 4 + T, V].

        Args:
            features: [B, T, input], after LFR and CMVN.
            queries: rows of the query embedding [B, 4].
            lengths: frames of each row [B], or None if all rows are full.
        """
        x = torch.cat([self.embed(queries), features], dim=1)
        encoded = self.encoder(x, None if lengths is None else lengths + queries.shape[1], tap)
        logits: Tensor = self.ctc(encoded)
        return logits


class SenseVoiceRunner:
    """A loaded network with numpy arrays in and out.

    It implements `workbench.pipelines.recognition.sensevoice.SenseVoiceNetwork`.
    """

    def __init__(self, model: SenseVoiceModel, device: torch.device, arithmetic: Arithmetic = FLOAT32):
        self.device = device
        self.arithmetic = arithmetic
        self.kind = arithmetic.values
        self.network = build(SenseVoiceNetwork, model.encoder, len(model.vocabulary))
        weights = model.checkpoint.weights
        where = name_in_folder(weights)
        load_into(self.network, read_state_dict(weights), where, mapped_from=weights, dtype=self.kind)
        finalise_weights(self.network, device, weights, arithmetic=arithmetic)
        self.network.encoder.replay_on(device)

    @property
    def dtype(self) -> str:
        """The name of the type that it computes in."""
        return self.arithmetic.name

    @torch.inference_mode()
    def logits(self, features: np.ndarray, queries: tuple[int, ...], recorder: Recorder | None) -> Iterator[np.ndarray]:
        """See `SenseVoiceNetwork.logits`; yields one block."""
        batch = torch.from_numpy(features)[None].to(self.device, self.kind)
        with attention_in_steps(self.kind), looking_inside(self.network, recorder):
            logits = self.network(batch, torch.tensor([queries], device=self.device), tap=tap_into(recorder))
        yield array_of(logits[0])

    @property
    def max_batch_seconds(self) -> float:
        """See `workbench.pipelines.recognition.sensevoice.LogitsInBatches`."""
        return max_batch_seconds(self.device)

    @torch.inference_mode()
    def batch_logits(self, features: Sequence[np.ndarray], queries: tuple[int, ...]) -> list[np.ndarray]:
        """See `workbench.pipelines.recognition.sensevoice.LogitsInBatches`."""
        logits = self._padded_logits(features, queries)
        return [array_of(row[: len(queries) + len(rows)]) for row, rows in zip(logits, features, strict=True)]

    def _padded_logits(self, features: Sequence[np.ndarray], queries: tuple[int, ...]) -> Tensor:
        padded, lengths = padded_rows(features, self.device, self.kind)
        with attention_in_steps(self.kind):
            logits: Tensor = self.network(padded, torch.tensor([queries] * len(features), device=self.device), lengths)
        return logits

    def gradients(self, features: np.ndarray, choose: Choose, queries: tuple[int, ...]) -> Iterator[np.ndarray]:
        """See `workbench.pipelines.gradients.Differentiates`; queries as in `logits`."""
        batch = torch.from_numpy(features)[None].to(self.device, self.kind)
        rows = torch.tensor([queries], device=self.device)

        def logits_of(inputs: Tensor) -> Tensor:
            logits: Tensor = self.network(inputs, rows)
            return logits[0]

        arithmetic = partial(attention_in_steps, self.kind)
        for gradient in choice_gradients(batch, logits_of, choose, layers_of(self.network), arithmetic):
            yield array_of(gradient[0])


class SenseVoiceOnDevice(SenseVoiceRunner):
    """A network whose logits are on a GPU.

    It implements `workbench.pipelines.recognition.sensevoice.FindsBestPaths` as well.

    A processor has them already, and numpy finds the largest of a row sooner than torch does.
    """

    @torch.inference_mode()
    def best_paths(
        self, features: Sequence[np.ndarray], queries: tuple[int, ...], blank: int, banned: int | None
    ) -> list[BestPath]:
        """See `workbench.pipelines.recognition.sensevoice.FindsBestPaths`."""
        frames = [len(queries) + len(rows) for rows in features]
        return best_paths(self._padded_logits(features, queries), frames, blank, banned)


def open_sensevoice(
    model: SenseVoiceModel, device: torch.device, arithmetic: Arithmetic = FLOAT32
) -> SenseVoicePipeline:
    """Returns the recogniser of a checkpoint that has been read; raises `BadInput` if its weights do not fit."""
    cmvn = read_am_mvn(model.cmvn_file) if model.cmvn_file else None
    runner = SenseVoiceRunner if device.type == "cpu" else SenseVoiceOnDevice
    return SenseVoicePipeline(model, cmvn, runner(model, device, arithmetic))


def open_session(directory: Path, name: str, settings: Settings) -> SpeechSession:
    """Opens a session for the checkpoint in `directory`; results call the model `name`."""
    device = prepare(settings)
    model = read_sensevoice(directory)
    pipeline = open_sensevoice(model, device, arithmetic_of(settings, device))
    return SpeechSession(name, "pytorch", pipeline, device=str(device))
