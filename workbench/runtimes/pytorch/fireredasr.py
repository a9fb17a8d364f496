"""FireRedASR-LLM on PyTorch: opens a session from a checkpoint directory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from workbench.audio.cmvn import read_cmvn_ark
from workbench.core.errors import BadInput
from workbench.core.settings import Settings
from workbench.families.speech_llm.conformer import ConformerConfig
from workbench.families.speech_llm.fireredasr import (
    ENCODER_WEIGHTS,
    LANGUAGE_DIRECTORY,
    UNUSED_TENSORS,
    WEIGHTS,
    FireRedAsrModel,
    check_files,
    read_fireredasr,
)
from workbench.pipelines.conversation.instructed_session import InstructedSession
from workbench.pipelines.recognition.fireredasr import FireRedAudioEncoder
from workbench.pipelines.recognition.speech_language import SpeechLanguagePipeline
from workbench.runtimes.pytorch.checkpoints.finalise_weights import finalise_weights
from workbench.runtimes.pytorch.checkpoints.fireredasr_package import Package, read_package
from workbench.runtimes.pytorch.checkpoints.lora import merge_pairs, replace_weights, sort_tensors
from workbench.runtimes.pytorch.checkpoints.weights import build, load_into
from workbench.runtimes.pytorch.inner_stages.gradients import input_gradient
from workbench.runtimes.pytorch.inner_stages.inside import looking_inside
from workbench.runtimes.pytorch.inner_stages.layer_maps import layers_of
from workbench.runtimes.pytorch.language_models.language import LanguageModel, language_dtype, open_language
from workbench.runtimes.pytorch.networks.conformer import ConformerEncoder, StackingAdaptor
from workbench.runtimes.pytorch.numerics.arithmetic import array_of, attention_in_steps
from workbench.runtimes.pytorch.numerics.device import prepare
from workbench.runtimes.pytorch.numerics.products import FLOAT32, Arithmetic, arithmetic_of
from workbench.runtimes.pytorch.tap import Tap, no_tap, tap_into
from workbench.trace.recorder import Recorder

LANGUAGE_PREFIX = "llm."
ENCODER_PREFIX = "encoder."
POSITIONS = "encoder.positional_encoding.pe"  # a table of sinusoids, which is computed here instead of loaded
BASE_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")


class AudioEmbeddingNetwork(nn.Module):
    """The encoder and the adapter, with the checkpoint's parameter names."""

    def __init__(self, encoder: ConformerConfig, width: int, downsample_rate: int, dropout: float = 0.0):
        super().__init__()
        self.encoder = ConformerEncoder(encoder, dropout)
        self.encoder_projector = StackingAdaptor(encoder.d_model, width, downsample_rate)

    def forward(self, features: Tensor, valid: Tensor, tap: Tap = no_tap) -> Tensor:
        """Maps features [B, L, mels] to embeddings [B, ceil(L / 4) // rate, H]; `valid` [B] counts the encoder frames
        of speech.
        """
        embeddings: Tensor = self.encoder_projector(self.encoder(features, valid, tap), tap)
        return embeddings


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A checkpoint's description, and the tensors of its two parts as stored in the files."""

    model: FireRedAsrModel
    weights: Path  # the file that the tensors are mapped from
    where: str  # the name of that file in messages
    audio: Mapping[str, Tensor]
    language: Mapping[str, Tensor]


def read_checkpoint(directory: Path) -> Checkpoint:
    """Reads both packages of a directory and what they describe; raises `BadInput` for missing or inconsistent
    parts.
    """
    directory = Path(directory).absolute()
    check_files(directory)
    package, encoder = read_package(directory / WEIGHTS), read_package(directory / ENCODER_WEIGHTS)
    model = read_fireredasr(directory, package.arguments, encoder.arguments)
    audio, language = _split(package, encoder)
    _check_widths(audio, model, package.where)
    return Checkpoint(model, package.path, package.where, audio, language)


def _split(package: Package, encoder: Package) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Returns (tensors of encoder and adapter, tensors of the language model by its own names).

    The encoder in `model.pth.tar` was trained further together with the language model, so it takes precedence.
    """
    unknown = [
        name
        for name in encoder.tensors
        if not name.startswith(ENCODER_PREFIX) and not any(fnmatchcase(name, glob) for glob in UNUSED_TENSORS)
    ]
    if unknown:
        raise BadInput(f"{encoder.where} has tensor {unknown[0]}, which FireRedASR's encoder does not have")
    audio = {name: value for name, value in encoder.tensors.items() if name.startswith(ENCODER_PREFIX)}
    language = {}
    for name, value in package.tensors.items():
        if name.startswith(LANGUAGE_PREFIX):
            language[name.removeprefix(LANGUAGE_PREFIX)] = value
        else:
            audio[name] = value
    audio.pop(POSITIONS, None)
    return audio, language


def _check_widths(audio: Mapping[str, Tensor], model: FireRedAsrModel, where: str) -> None:
    """Checks that the widths of the three parts match. Missing tensors are reported later, when the network is
    loaded.
    """
    first, last = (audio.get(f"encoder_projector.linear{n}.weight") for n in (1, 2))
    if first is None or last is None or first.ndim != 2 or last.ndim != 2:
        return
    size, rate, language = model.encoder.d_model, model.downsample_rate, model.language
    if first.shape[1] != size * rate:
        raise BadInput(
            f"{where}: the adapter takes {first.shape[1]} values and {rate} stacked encoder frames of {size} give "
            f"{size * rate}; expected the same"
        )
    if last.shape[0] != language.hidden_size:
        raise BadInput(
            f"{where}: the adapter gives embeddings {last.shape[0]} wide and the language model in "
            f"{language.directory.name} is {language.hidden_size} wide; expected the one it was trained with"
        )


class FireRedRunner:
    """The loaded encoder and adapter, numpy arrays in and embeddings out; see
    `workbench.pipelines.recognition.fireredasr.FireRedNetwork`.
    """

    def __init__(self, checkpoint: Checkpoint, device: torch.device, arithmetic: Arithmetic = FLOAT32):
        model = checkpoint.model
        self.device = device
        self.kind = arithmetic.values
        self.network = build(AudioEmbeddingNetwork, model.encoder, model.language.hidden_size, model.downsample_rate)
        load_into(
            self.network,
            checkpoint.audio,
            checkpoint.where,
            mapped_from=checkpoint.weights,
            described_in=f"the section args of {ENCODER_WEIGHTS}",
            dtype=self.kind,
        )
        finalise_weights(self.network, device, checkpoint.weights, arithmetic=arithmetic)

    @torch.inference_mode()
    def embed_audio(self, features: Sequence[np.ndarray], valid: Sequence[int], recorder: Recorder | None) -> Tensor:
        """See `FireRedNetwork.embed_audio`."""
        rows = [torch.from_numpy(row).to(self.kind) for row in features]
        padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        valid_counts = torch.tensor(valid, device=self.device)
        with attention_in_steps(self.kind), looking_inside(self.network, recorder):
            speech: Tensor = self.network(padded.to(self.device), valid_counts, tap_into(recorder))
        return speech.to(self.kind)

    def input_gradient(self, features: np.ndarray, gradient: Tensor, valid: int) -> np.ndarray:
        """See `workbench.pipelines.gradients.DifferentiatesFeatures`; `valid` as in `embed_audio`."""
        batch = torch.from_numpy(features)[None].to(self.device, self.kind)
        valid_counts = torch.tensor([valid], device=self.device)

        def embed(inputs: Tensor) -> Tensor:
            speech: Tensor = self.network(inputs, valid_counts)
            return speech[0]

        layers = layers_of(self.network)
        return array_of(input_gradient(batch, embed, gradient, layers, partial(attention_in_steps, self.kind))[0])


def open_fireredasr_language(
    checkpoint: Checkpoint, device: torch.device, dtype: str, stepwise: bool = False
) -> LanguageModel:
    """Opens the language model: the weights in its directory with the checkpoint's changes, or the checkpoint's own
    weights.
    """
    model = checkpoint.model
    language, where = model.language, checkpoint.where
    tensors = sort_tensors(checkpoint.language, where)
    dtype = language_dtype(language.directory, dtype)
    if not tensors.complete and not any(any(language.directory.glob(pattern)) for pattern in BASE_WEIGHTS):
        raise BadInput(
            f"language model directory {language.directory.name} has no weights, and {where} holds changes to them "
            f"alone; expected {BASE_WEIGHTS[0]}, as {LANGUAGE_DIRECTORY} is published"
        )
    base = f"the language model in {language.directory.name}"
    if tensors.complete:
        language_model = open_language(language, device, dtype, tensors.full, where, stepwise)
    else:
        language_model = open_language(language, device, dtype, stepwise=stepwise)
        replace_weights(language_model.network, tensors.full, where, base)
    merge_pairs(language_model.network, tensors.pairs, model.lora_alpha, model.lora_rank, where, base)
    return language_model


def open_session(directory: Path, name: str, settings: Settings) -> InstructedSession:
    """Opens a session for the checkpoint in `directory`; results call the model `name`."""
    device = prepare(settings)
    checkpoint = read_checkpoint(directory)
    model = checkpoint.model
    language = language_dtype(model.language.directory, settings.dtype)
    runner = FireRedRunner(checkpoint, device, arithmetic_of(settings, device, language))
    encoder = FireRedAudioEncoder(model, read_cmvn_ark(model.cmvn_file), runner)
    language_model = open_fireredasr_language(checkpoint, device, settings.dtype, settings.stepwise)
    return InstructedSession(name, "pytorch", SpeechLanguagePipeline(encoder, language_model), device=str(device))
