"""SpeechLM on PyTorch: opens a session of a checkpoint directory of either form: language model, audio tower, codec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from workbench.core.errors import BadInput, message_of
from workbench.core.settings import Settings
from workbench.families.speechlm.model import SpeechLmModel, read_speechlm
from workbench.formats.json_files import read_json_file
from workbench.pipelines.conversation.conversation_session import ConversationSession
from workbench.runtimes.pytorch.checkpoints.speechlm_weights import STREAM_TABLE, SpeechLmTensors, read_tensors
from workbench.runtimes.pytorch.checkpoints.weights import read_safetensors
from workbench.runtimes.pytorch.language_models.language import TORCH_DTYPES, LanguageModel, open_language
from workbench.runtimes.pytorch.language_models.speechlm_network import SpeechLmNetwork
from workbench.runtimes.pytorch.networks.xcodec import Xcodec
from workbench.runtimes.pytorch.numerics.device import prepare
from workbench.runtimes.pytorch.numerics.products import Arithmetic, arithmetic_of
from workbench.runtimes.pytorch.speechlm_tower import AudioEncoder


def open_session(directory: Path, name: str, settings: Settings) -> ConversationSession:
    """Opens a session of the checkpoint in `directory`; results call the model `name`."""
    model, network, codec = open_speechlm(directory, settings)
    return ConversationSession(name, "pytorch", model, network, codec, model.audio_notes)


def open_speechlm(directory: Path, settings: Settings) -> tuple[SpeechLmModel, SpeechLmNetwork, Xcodec | None]:
    """Opens the checkpoint in `directory`; the codec is None if the checkpoint does not speak.

    Raises `BadInput` for a damaged checkpoint, or one with missing, extra or misshapen tensors, `Unavailable` if the
    codec's weights are not on this machine.
    """
    device = prepare(settings)
    model = read_speechlm(directory)
    parts = read_tensors(model.weights)
    arithmetic = arithmetic_of(settings, device, _language_dtype(parts, settings))
    audio_encoder = _audio_encoder(model, parts, device, arithmetic)
    codec = _codec(model, parts, device)
    language = _language(model, parts, device, settings)
    streams = stream_table(model, parts)
    return model, SpeechLmNetwork(language, model.layout, streams, audio_encoder), codec


def stream_table(model: SpeechLmModel, parts: SpeechLmTensors) -> torch.Tensor:
    """Returns the tensor `stream_emb` [streams, hidden]; raises `BadInput` if it is missing or misshapen."""
    streams = parts.streams.get(STREAM_TABLE)
    expected = model.layout.streams, model.hidden_size
    if streams is None or streams.shape != expected:
        fault = "lacks" if streams is None else f"has the shape {tuple(streams.shape)} for"
        raise BadInput(f"{parts.where} {fault} tensor {STREAM_TABLE}; expected {expected}")
    return streams


def open_codec(model: SpeechLmModel) -> Xcodec | None:
    """Opens the codec of a checkpoint alone, on the processor; None if the checkpoint does not speak.

    Raises the same errors as `open_speechlm`.
    """
    return _codec(model, read_tensors(model.weights), torch.device("cpu"))


def _language(model: SpeechLmModel, parts: SpeechLmTensors, device: torch.device, settings: Settings) -> LanguageModel:
    dtype = _language_dtype(parts, settings)
    return open_language(
        model.language, device, dtype, parts.language, parts.where, settings.stepwise, architecture(model, parts.where)
    )


def _language_dtype(parts: SpeechLmTensors, settings: Settings) -> str:
    """Returns the dtype of the language model: the requested one, or for `auto` the one that its weights have."""
    if settings.dtype != "auto":
        return settings.dtype
    stored = {str(value.dtype).removeprefix("torch.") for value in parts.language.values()}
    return stored.pop() if len(stored) == 1 and stored <= set(TORCH_DTYPES) - {"float64"} else "float32"


def architecture(model: SpeechLmModel, where: str) -> Any:
    """Returns transformers' configuration of the language model; `where` names its weights in messages.

    Raises `BadInput` for settings that do not fit together.
    """
    from transformers import Qwen3Config

    try:
        return Qwen3Config(**dict(model.settings))
    except Exception as error:  # transformers raises many kinds
        raise BadInput(f"the settings of the language model of {where} do not fit: {message_of(error)}") from error


def _audio_encoder(
    model: SpeechLmModel, parts: SpeechLmTensors, device: torch.device, arithmetic: Arithmetic
) -> AudioEncoder | None:
    check_audio_tensors(model, parts)
    if model.tower is None:
        return None
    return AudioEncoder(model.tower, parts.audio, model.hidden_size, device, parts.where, parts.files, arithmetic)


def check_audio_tensors(model: SpeechLmModel, parts: SpeechLmTensors) -> None:
    """Raises `BadInput` for tensors of an audio tower that the configuration does not have."""
    if model.tower is None and parts.audio:
        raise BadInput(f"{parts.where} has tensor {next(iter(parts.audio))}, and its configuration has no audio tower")


def _codec(model: SpeechLmModel, parts: SpeechLmTensors, device: torch.device) -> Xcodec | None:
    source = codec_source(model, parts)
    if source is None:
        return None
    return Xcodec(source.settings, source.tensors, model.layout.streams, device, source.where, source.files)


@dataclass(frozen=True, eq=False)
class CodecSource:
    """The codec's configuration and tensors, from the checkpoint or from a folder of the codec."""

    settings: Mapping[str, Any]  # of its config.json; empty for transformers' defaults
    tensors: Mapping[str, torch.Tensor]  # by transformers' names
    where: str  # the name of the weights in messages
    files: tuple[Path, ...]  # from which the tensors are mapped


def codec_source(model: SpeechLmModel, parts: SpeechLmTensors) -> CodecSource | None:
    """Returns the codec of a checkpoint; None if it has none.

    Raises `BadInput` for tensors of a codec that the configuration does not name, `Unavailable` if the codec's weights
    are not on this machine.
    """
    if model.codec is None:
        if parts.codec:
            raise BadInput(f"{parts.where} has tensors of a codec, and its configuration names none")
        return None
    folder = model.codec.with_weights(bool(parts.codec))
    place = folder or model.codec.directory
    settings = read_json_file(place / "config.json") if place is not None else {}
    if folder is None:
        return CodecSource(settings, parts.codec, parts.where, parts.files)
    files = sorted(folder.glob("model*.safetensors"))
    tensors = {name: value for file in files for name, value in read_safetensors(file).items()}
    return CodecSource(settings, tensors, folder.name, tuple(files))
