"""FSMN-VAD on PyTorch: the network, and a session opened from a checkpoint directory.

The published tensor names are used, so `model.pt` loads unchanged. Axes: B batch, T frames of 10 ms, W width, M width
of the memory, P frames of memory from earlier calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from workbench.audio.cmvn import read_am_mvn
from workbench.audio.frontend import Frontend
from workbench.core.errors import BadInput
from workbench.core.settings import Settings
from workbench.families.voice_activity.fsmn_vad import FsmnConfig, read_fsmn_vad
from workbench.families.voice_activity.fsmn_vad_onnx import read_onnx_weights
from workbench.pipelines.detection.detection_session import DetectionSession
from workbench.pipelines.detection.fsmn_vad import FsmnVad
from workbench.runtimes.pytorch.checkpoints.weights import build, load_into, read_state_dict
from workbench.runtimes.pytorch.numerics.arithmetic import array_of, name_of, network_dtype
from workbench.runtimes.pytorch.numerics.device import prepare


class _Linear(nn.Module):
    """A linear layer inside a module, as the published checkpoints name it one level deeper."""

    def __init__(self, inputs: int, outputs: int, bias: bool = True):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.linear(x))


class _Memory(nn.Module):
    """Adds to each frame a weighted sum of the last frames, each channel separately: x [B, T, M] and past [B, P, M]."""

    def __init__(self, config: FsmnConfig):
        super().__init__()
        width = config.proj_dim
        self.past = (config.lorder - 1) * config.lstride
        self.conv_left = nn.Conv2d(
            width, width, (config.lorder, 1), dilation=(config.lstride, 1), groups=width, bias=False
        )

    def forward(self, x: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        extended = torch.cat([past, x], dim=1)
        remembered = self.conv_left(extended.transpose(1, 2).unsqueeze(-1)).squeeze(-1).transpose(1, 2)
        return x + remembered, extended[:, extended.shape[1] - self.past :]


class _Block(nn.Module):
    """Projects down to the memory, applies it, and projects up again: x [B, T, W]."""

    def __init__(self, config: FsmnConfig):
        super().__init__()
        self.linear = _Linear(config.linear_dim, config.proj_dim, bias=False)
        self.fsmn_block = _Memory(config)
        self.affine = _Linear(config.proj_dim, config.linear_dim)

    def forward(self, x: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        remembered, past = self.fsmn_block(self.linear(x), past)
        return F.relu(self.affine(remembered)), past


class _Encoder(nn.Module):
    def __init__(self, config: FsmnConfig):
        super().__init__()
        self.in_linear1 = _Linear(config.input_dim, config.input_affine_dim)
        self.in_linear2 = _Linear(config.input_affine_dim, config.linear_dim)
        self.fsmn = nn.ModuleList(_Block(config) for _ in range(config.fsmn_layers))
        self.out_linear1 = _Linear(config.linear_dim, config.output_affine_dim)
        self.out_linear2 = _Linear(config.output_affine_dim, config.output_dim)

    def forward(self, features: Tensor, past: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        x = F.relu(self.in_linear2(self.in_linear1(features)))
        memories = []
        for block, before in zip(self.fsmn, past):
            x, memory = block(x, before)
            memories.append(memory)
        return self.out_linear2(self.out_linear1(x)), memories


class FsmnNetwork(nn.Module):
    """Maps features to class probabilities, one block at a time. It only looks back, so blocks give the same as one
    long call.
    """

    def __init__(self, config: FsmnConfig):
        super().__init__()
        self.config = config
        self.encoder = _Encoder(config)

    def start(self, batch: int = 1) -> list[Tensor]:
        """Returns the memory before the first frame: zeros, one [B, P, M] per layer."""
        weight = self.encoder.in_linear1.linear.weight
        past = (self.config.lorder - 1) * self.config.lstride
        shape = (batch, past, self.config.proj_dim)
        return [weight.new_zeros(shape) for _ in range(self.config.fsmn_layers)]

    def forward(self, features: Tensor, past: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Returns probabilities [B, T, classes] of features [B, T, width], and the memory for the next call."""
        logits, after = self.encoder(features, past)
        return logits.softmax(dim=-1), after


class FsmnRunner:
    """A loaded network with numpy arrays in and out.

    It implements `workbench.pipelines.detection.fsmn_vad.FsmnNetwork`.
    """

    def __init__(self, network: FsmnNetwork, device: str | torch.device):
        self.network = network.to(device).eval()
        self.classes = network.config.output_dim

    @property
    def dtype(self) -> str:
        """The name of the type that it computes in."""
        return name_of(next(self.network.parameters()).dtype)

    def start(self) -> list[Tensor]:
        """See `FsmnNetwork.start`."""
        return self.network.start()

    @torch.inference_mode()
    def score(self, features: np.ndarray, past: Sequence[Tensor]) -> tuple[np.ndarray, list[Tensor]]:
        """See `FsmnNetwork.score`."""
        scores, after = self.network(torch.from_numpy(features)[None].to(past[0]), past)
        return array_of(scores[0]), after


def open_fsmn_vad(path: str | Path, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32) -> FsmnVad:
    """Opens the detector of a FunASR directory, or of a directory with an ONNX file and its am.mvn.

    Raises `BadInput` for files that are missing, damaged or inconsistent.
    """
    model = read_fsmn_vad(path)
    cmvn = read_am_mvn(model.cmvn_file)
    where = f"{model.name}/{model.weights.name}"
    if model.network is None:
        config, arrays = read_onnx_weights(model.weights)
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        if config.input_dim != model.frontend.width:
            raise BadInput(f"{where} takes {config.input_dim} features; expected {model.frontend.width}")
    else:
        config, tensors = model.network, read_state_dict(model.weights)
    network = build(FsmnNetwork, config)
    assert isinstance(network, FsmnNetwork)
    load_into(network, tensors, where, dtype=dtype)
    return FsmnVad(FsmnRunner(network, device), Frontend(model.frontend, cmvn), model.detector)


def open_detector(path: str | Path, device: str = "cpu") -> FsmnVad:
    """Opens the detector that a recogniser uses in its own process. Raises the same errors as `open_fsmn_vad`."""
    return open_fsmn_vad(path, device)


def open_session(directory: Path, name: str, settings: Settings) -> DetectionSession:
    """Opens a session for the detector in `directory`; results call the model `name`."""
    detector = open_fsmn_vad(directory, prepare(settings), network_dtype(settings.dtype, settings.stepwise))
    return DetectionSession(name, "pytorch", detector)
