"""The parts of a SpeechLM checkpoint beside its language model: audio tower, mel features, codec, defaults.

Both forms of the checkpoint (`directory`, `release`) give these values. This file opens no weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from workbench.core.config_values import whole_number
from workbench.core.errors import BadInput, Unavailable
from workbench.formats.json_files import read_json_file

SAMPLE_RATE = 16000  # Hz, of what the audio tower hears
# n_window and n_window_infer: of Qwen3-Omni, with which ESPnet trained the published weights, and of the copy of these
# weights in Hugging Face's form, whose config.json says otherwise.
UPSTREAM_WINDOWS, COPY_WINDOWS = (50, 800), (100, 400)
MAX_STREAMS = 64
MAX_IDS = 1 << 24


@dataclass(frozen=True)
class Mel:
    """The log-mel features that the audio tower takes, as Whisper computes them."""

    bins: int
    hop: int  # samples between frames
    window: int  # samples of a frame
    normalise: bool  # bring the samples of a recording to mean 0 and variance 1 first


@dataclass(frozen=True)
class Tower:
    """The audio tower (Qwen3-Omni's audio encoder)."""

    settings: Mapping[str, Any]  # of transformers' Qwen3OmniMoeAudioEncoderConfig, by name
    mel: Mel
    width: int  # of its output

    @property
    def chunk(self) -> int:
        """The frames that its convolutions take at a time."""
        return 2 * int(self.settings["n_window"])

    def rows(self, samples: int) -> int:
        """Returns how many positions of a prompt a recording at 16 kHz fills.

        Three convolutions of stride 2 halve each chunk of mel frames, rounded up; the last chunk may be shorter.
        """
        full_chunks, remainder = divmod(samples // self.mel.hop, self.chunk)
        return full_chunks * _halved_thrice(self.chunk) + _halved_thrice(remainder)


def _halved_thrice(frames: int) -> int:
    for _ in range(3):
        frames = (frames + 1) // 2
    return frames


@dataclass(frozen=True)
class CodecParts:
    """The codec (Xcodec): its place and what its configuration says."""

    name: str  # as the checkpoint names it
    directory: Path | None  # with its config.json; None where there is no such folder here
    sample_rate: int
    hop: int  # samples per frame
    codes: int  # of each codebook
    codebooks: int
    where: str  # the file that names it

    def with_weights(self, inside: bool) -> Path | None:
        """Returns the directory with the codec's weights; None if they are inside the checkpoint.

        Raises `Unavailable` if they are not on this machine.
        """
        if inside:
            return None
        if self.directory is not None and any(self.directory.glob("model*.safetensors")):
            return self.directory
        raise Unavailable(
            f"the codec is missing: {self.where} names {self.name}, whose weights are neither in the checkpoint nor in "
            f"a folder beside it nor in the Hugging Face cache; {how_to_fetch(self.name)}"
        )


@dataclass(frozen=True)
class SpeechDefaults:
    """What a checkpoint says about generation, for options that the user leaves open."""

    modalities: str = "auto"
    text_temperature: float = 0.6
    audio_temperature: float = 0.8
    text_top_k: int = 20
    audio_top_k: int = 20
    cfg: float = 1.0
    max_text_tokens: int = 2048
    min_text_tokens: int = 1
    max_audio_rows: int = 2048
    min_audio_rows: int = 1


def read_tower(settings: Mapping[str, Any], mel: Mapping[str, Any], where: str) -> Tower:
    """Reads the audio tower's section of a configuration, and the mel features' file (empty if there is none).

    ESPnet always normalises the samples, and its files do not say so. A `do_normalize` in the file takes precedence.
    """
    tower_settings = {name: value for name, value in settings.items() if name != "model_type"}
    bins = read_integer(tower_settings, "num_mel_bins", where)
    if "n_window" not in tower_settings or "n_window_infer" not in tower_settings:
        raise BadInput(f"{where} lacks n_window or n_window_infer, the windows of the audio tower; expected both")
    window, inference_window = (
        read_integer(tower_settings, "n_window", where),
        read_integer(tower_settings, "n_window_infer", where),
    )
    if inference_window % (2 * window):
        raise BadInput(
            f"n_window_infer in {where} is {inference_window}; expected a multiple of 2 * n_window = {2 * window}"
        )
    mel_bins = read_integer(mel, "feature_size", "preprocessor_config.json", bins)
    rate = read_integer(mel, "sampling_rate", "preprocessor_config.json", SAMPLE_RATE)
    if (mel_bins, rate) != (bins, SAMPLE_RATE):
        raise BadInput(
            f"preprocessor_config.json has {mel_bins} mel bins at {rate} Hz; the audio tower of {where} takes "
            f"{bins} at {SAMPLE_RATE} Hz"
        )
    if mel.get("dither"):
        raise BadInput(
            f"dither in preprocessor_config.json is {mel['dither']!r:.80}; only features without noise are supported"
        )
    features = Mel(
        bins=bins,
        hop=read_integer(mel, "hop_length", "preprocessor_config.json", 160),
        window=read_integer(mel, "n_fft", "preprocessor_config.json", 400),
        normalise=bool(mel.get("do_normalize", True)),
    )
    return Tower(tower_settings, features, read_integer(tower_settings, "output_dim", where))


def window_notes(tower: Tower) -> tuple[str, ...]:
    """Returns a note if the tower has `COPY_WINDOWS`, with which the published weights were not trained.

    A checkpoint with other windows was trained with its own.
    """
    if (int(tower.settings["n_window"]), int(tower.settings["n_window_infer"])) != COPY_WINDOWS:
        return ()
    return (
        f"the audio tower runs in windows of {COPY_WINDOWS[0]} and {COPY_WINDOWS[1]} frames, as config.json says; "
        f"ESPnet trained the published weights with {UPSTREAM_WINDOWS[0]} and {UPSTREAM_WINDOWS[1]}",
    )


def read_codec(directory: Path, name: str, where: str) -> CodecParts:
    """Reads the configuration of the codec that a checkpoint names; Xcodec's defaults stand for a missing one."""
    folder = named_folder(directory, name)
    config = read_json_file(folder / "config.json") if folder is not None else {}
    if folder is not None and config.get("model_type") != "xcodec":
        raise BadInput(
            f"{folder.name}/config.json, the codec that {where} names, is of model type {config.get('model_type')!r}; "
            "expected xcodec"
        )
    place = f"{folder.name}/config.json" if folder is not None else where
    acoustic = config.get("acoustic_model_config", {})
    if not isinstance(acoustic, Mapping):
        raise BadInput(f"acoustic_model_config in {place} is {type(acoustic).__name__}; expected a mapping")
    hop = math.prod(map(int, _numbers(acoustic, "downsampling_ratios", place, (8, 5, 4, 2), minimum=1)))
    rate, codes = (
        read_integer(config, "sample_rate", place, SAMPLE_RATE),
        read_integer(config, "codebook_size", place, 1024, minimum=2),
    )
    widest = max(_numbers(config, "target_bandwidths", place, (0.5, 1, 1.5, 2, 4)))  # kbit/s
    bits = math.ceil(math.log2(codes)) * math.ceil(rate / hop)  # a second, of one codebook
    return CodecParts(name, folder, rate, hop, codes, int(1000 * widest // bits), where)


def _numbers(
    section: Mapping[str, Any], key: str, where: str, default: Sequence[float], minimum: float = 0.001
) -> Sequence[float]:
    """Returns a list of numbers; raises `BadInput` for another value."""
    values = section.get(key, default)
    fits = isinstance(values, (list, tuple)) and all(_is_number(each) and each >= minimum for each in values)
    if not fits or not values:
        raise BadInput(f"{key} in {where} is {values!r:.80}; expected a list of numbers of at least {minimum:g}")
    return list(values)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= MAX_IDS


def named_folder(directory: Path, name: str) -> Path | None:
    """Returns the folder that a checkpoint names: beside its files, an absolute path, or of the Hugging Face cache."""
    for place in (directory / name, directory / Path(name).name):
        if name and (place / "config.json").is_file():
            return place
    if name.count("/") != 1 or name.startswith(("/", ".")):
        return None
    from huggingface_hub import try_to_load_from_cache

    try:
        cached = try_to_load_from_cache(name, "config.json")
    except ValueError:  # no name of a repository
        return None
    return Path(cached).parent if isinstance(cached, str) else None


def require_folder(directory: Path, name: Any, description: str, where: str) -> Path:
    """Returns the folder that a checkpoint names; raises `Unavailable`, which says how to get it, if it is missing."""
    if not isinstance(name, str) or not name:
        raise BadInput(f"{where} names no {description}; expected a folder or a repository")
    folder = named_folder(directory, name)
    if folder is None:
        raise Unavailable(
            f"{where} names the {description} {name}, which is neither a folder beside it nor in the Hugging Face "
            f"cache; {how_to_fetch(name)}"
        )
    return folder


def how_to_fetch(name: str) -> str:
    """Returns how to get a folder that a checkpoint names."""
    folder = Path(name).name
    if name.count("/") == 1 and not name.startswith(("/", ".")):
        return f"put it there as {folder}, or run: hf download {name}"
    return f"put the folder {folder} there"


def with_inference(
    defaults: SpeechDefaults, settings: Mapping[str, Any], where: str, separator: str = "."
) -> SpeechDefaults:
    """Returns the defaults, with those changed that an ESPnet inference yaml sets.

    Args:
        where: the name of the file in messages.
        separator: between section and key, as the file has them.

    Raises `BadInput` for a value that is not a number.
    """
    field_names = {
        ("text", "temperature"): "text_temperature",
        ("text", "topk"): "text_top_k",
        ("text", "max_step"): "max_text_tokens",
        ("text", "min_step"): "min_text_tokens",
        ("audio", "temperature"): "audio_temperature",
        ("audio", "topk"): "audio_top_k",
        ("audio", "max_step"): "max_audio_rows",
        ("audio", "min_step"): "min_audio_rows",
        ("audio", "cfg"): "cfg",
    }
    for section in ("text", "audio"):
        if not isinstance(settings.get(section) or {}, Mapping):
            raise BadInput(f"{section} in {where} is {settings[section]!r:.80}; expected a mapping")
    values = {field.name: getattr(defaults, field.name) for field in fields(defaults)}
    for (section, key), name in field_names.items():
        value = (settings.get(section) or {}).get(key)
        if value is None:
            continue
        kind = type(values[name])
        if not _is_number(value) or value < 0 or (kind is int and value != int(value)):
            expected = "a number" if kind is float else "a whole number"
            raise BadInput(f"{section}{separator}{key} in {where} is {value!r:.80}; expected {expected} of at least 0")
        values[name] = kind(value)
    enforced_types = settings.get("enforce_modality")
    enforced_types = (
        tuple(enforced_types)
        if isinstance(enforced_types, list) and all(isinstance(each, str) for each in enforced_types)
        else ()
    )
    modalities_by_types = {("text",): "text", ("audio",): "audio", ("text", "audio"): "text_audio"}
    values["modalities"] = modalities_by_types.get(enforced_types, values["modalities"])
    return SpeechDefaults(**values)


def read_integer(section: Mapping[str, Any], key: str, where: str, default: int | None = None, minimum: int = 1) -> int:
    """Returns a whole number of a configuration; raises `BadInput` if it is missing or cannot be used."""
    return whole_number(section, key, f"{key} in {where}", default, minimum, MAX_IDS)
