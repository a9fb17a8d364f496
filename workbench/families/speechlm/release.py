"""A SpeechLM checkpoint as ESPnet releases it: one file of tensors, the yaml of the training, those of the inference.

The tokenizer, the sizes of the language model, the audio tower and the codec are in folders or repositories that the
training's yaml names. The special ids are a constant of ESPnet's code. This file opens no weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.core.errors import BadInput
from workbench.core.phrases import enumerated
from workbench.families.speechlm.directory import MODEL_TYPES, config_file, language_settings
from workbench.families.speechlm.parts import (
    CodecParts,
    Tower,
    named_folder,
    read_codec,
    read_integer,
    read_tower,
    require_folder,
)
from workbench.formats.json_files import read_json_file
from workbench.formats.text_files import read_text
from workbench.formats.yaml_files import LARGEST, read_yaml
from workbench.speech.layout import SPECIAL, SpeechLayout

JOB = "speechlm"
FIRST_TEXT = 256  # where the text interval begins, by ESPnet's code
WEIGHTS = ("model.pt", "mp_rank_00_model_states.pt", "base.pt")  # ESPnet's and DeepSpeed's names
MAX_PER_FRAME = 8  # streams that ESPnet takes of a codec that has more


@dataclass(frozen=True)
class Release:
    """What ESPnet's files say, weights aside."""

    layout: SpeechLayout
    settings: Mapping[str, Any]  # of the language model, by the names of transformers' Qwen3Config
    tokenizer: Path  # the folder of the text model's tokenizer
    tower: Tower | None
    codec: CodecParts
    folders: Mapping[str, Path]  # that the yaml names, by these names


def training_yamls(directory: Path) -> Iterator[Path]:
    """Yields the yamls of a SpeechLM's training in a directory: usually one, or none. Never raises an error."""
    return (path for path in sorted(directory.glob("*.yaml")) if _is_training(path))


def _is_training(path: Path) -> bool:
    try:
        return "job_type" in read_text(path, LARGEST) and read_yaml(path).get("job_type") == JOB
    except BadInput:
        return False


def read_release(directory: Path) -> Release:
    """Reads the yaml of the training and what it names.

    Raises `BadInput` if something is missing or does not fit together, `Unavailable` for a repository that it names and
    that is not on this machine.
    """
    training = _training_yaml(directory)
    where = f"{directory.name}/{training.name}"
    content = read_yaml(training)
    parts = _section(content, "multimodal_io", where)
    _check_order(parts, where)
    text, audio = _section(parts, "text", where), _section(parts, "discrete_audio", where)
    model = _section(content, "model", where)
    _check_kind(content, model, where)
    language = require_folder(directory, model.get("model_hf_tag"), "language model", where)
    tokenizer = require_folder(directory, text.get("tokenizer_name"), "tokenizer", where)
    settings = _language_settings(language)
    codec = _codec(directory, audio, where)
    # As many rows as the text model's configuration says, which is more than its tokenizer has tokens.
    rows = read_integer(read_json_file(tokenizer / "config.json"), "vocab_size", f"{tokenizer.name}/config.json")
    streams = min(codec.codebooks, read_integer(audio, "codec_max_token_per_frame", where, MAX_PER_FRAME))
    layer = codec.codes + 1
    weights = audio.get("stream_weights")
    if isinstance(weights, list) and len(weights) != streams:
        raise BadInput(
            f"{where} has {len(weights)} stream_weights and the codec {codec.name} has {streams} streams; "
            "expected the same: the number of streams differs"
        )
    codec_first = FIRST_TEXT + rows
    layout = SpeechLayout(
        vocabulary=codec_first + streams * layer,
        text_first=FIRST_TEXT,
        text_end=codec_first,
        codec_first=codec_first,
        streams=streams,
        layer_size=layer,
        **{name: number for number, name in enumerate(SPECIAL)},
    )
    return Release(
        layout=layout,
        settings=settings | {"vocab_size": layout.vocabulary, "tie_word_embeddings": False},
        tokenizer=tokenizer,
        tower=_tower(directory, parts, where),
        codec=codec,
        folders=_folders(directory, content),
    )


def _training_yaml(directory: Path) -> Path:
    """Returns the only yaml of a training; raises `BadInput` if there is none, or several."""
    yamls = list(training_yamls(directory))
    if not yamls:
        if (config := config_file(directory)).is_file():
            read_json_file(config)  # says what is wrong with a file that cannot be read
        raise BadInput(
            f"{directory.name} has neither a config.json with model_type {' or '.join(MODEL_TYPES)} nor a training "
            f"yaml with job_type: {JOB}; expected one of them"
        )
    if len(yamls) > 1:
        names = enumerated([path.name for path in yamls])
        raise BadInput(f"{directory.name} has several training yamls, {names}, with job_type: {JOB}; expected one")
    return yamls[0]


def weights_file(directory: Path) -> Path:
    """Returns the file with the tensors; raises `BadInput` if there is none, or several without a known name."""
    for name in WEIGHTS:
        if (directory / name).is_file():
            return directory / name
    files = sorted(directory.glob("*.pt"))
    if len(files) == 1:
        return files[0]
    state = f"has {len(files)} .pt files" if files else "has no weights"
    raise BadInput(f"{directory.name} {state}; expected {' or '.join(WEIGHTS)}")


def _check_order(parts: Mapping[str, Any], where: str) -> None:
    """Raises `BadInput` for a yaml in alphabetical order.

    Old versions of ESPnet numbered the vocabulary in the yaml's order, new ones put the text first in any case. The
    tensors have the same shapes either way, so only the order in the yaml is safe to trust.
    """
    names = list(parts)
    if "text" in names and "discrete_audio" in names and names.index("discrete_audio") < names.index("text"):
        raise BadInput(
            f"multimodal_io in {where} lists discrete_audio before text, and old versions of ESPnet then gave the "
            f"codec the ids from {FIRST_TEXT} on; expected text first, as the ids of this vocabulary are in doubt"
        )


def _check_kind(content: Mapping[str, Any], model: Mapping[str, Any], where: str) -> None:
    """Raises `BadInput` for another network than this one, and for audio that enters or leaves it in another way."""
    preprocessor = content.get("preprocessor")
    preprocessor = preprocessor if isinstance(preprocessor, Mapping) else {}
    has_audio_input = bool(content["multimodal_io"].get("continuous_audio"))
    for section, key, expected in (
        (model, "model_choice", "parallel"),
        *([(preprocessor, "audio_input", "continuous_audio")] if has_audio_input else []),
        (preprocessor, "audio_output", "discrete_audio"),
    ):
        value = section.get(key, expected)
        if value != expected:
            raise BadInput(f"{key} in {where} is {value!r:.80}; only {expected!r} is supported")


def _folders(directory: Path, content: Mapping[str, Any]) -> dict[str, Path]:
    """Returns the folders that the yaml names, those of missing configurations aside."""
    parts = content["multimodal_io"]
    names = [
        content["model"]["model_hf_tag"],
        parts["text"]["tokenizer_name"],
        parts["discrete_audio"]["codec_hf_model_tag"],
    ]
    if parts.get("continuous_audio"):
        names.append(parts["continuous_audio"]["encoder_hf_model_tag"])
    return {name: folder for name in names if (folder := named_folder(directory, name)) is not None}


def _language_settings(folder: Path) -> dict[str, Any]:
    config, where = read_json_file(folder / "config.json"), f"{folder.name}/config.json"
    if config.get("model_type") != "qwen3":
        raise BadInput(f"{where} is of model type {config.get('model_type')!r:.80}; expected qwen3")
    for name in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"):
        read_integer(config, name, where)
    read_integer(config, "max_position_embeddings", where)
    return language_settings(config, where)


def _codec(directory: Path, audio: Mapping[str, Any], where: str) -> CodecParts:
    choice, name = audio.get("codec_choice"), audio.get("codec_hf_model_tag")
    if choice != "Xcodec" or audio.get("ssl_choice") is not None or not isinstance(name, str):
        raise BadInput(
            f"discrete_audio in {where} has codec {choice!r:.80} ({name!r:.80}) and SSL model "
            f"{audio.get('ssl_choice')!r:.80}; expected an Xcodec alone"
        )
    if not audio.get("delay_interleave", False):
        raise BadInput(f"delay_interleave in {where} is off; expected the delay pattern")
    return read_codec(directory, name, where)


def _tower(directory: Path, parts: Mapping[str, Any], where: str) -> Tower | None:
    if not parts.get("continuous_audio"):
        return None
    section = _section(parts, "continuous_audio", where)
    folder = require_folder(directory, section.get("encoder_hf_model_tag"), "audio tower", where)
    config: Any = read_json_file(folder / "config.json")
    for name in ("thinker_config", "audio_config"):  # of the whole Qwen3-Omni, of its thinker, or of the tower alone
        section_of_tower = config.get(name)
        config = section_of_tower if isinstance(section_of_tower, Mapping) else config
    mel = folder / "preprocessor_config.json"
    mel_settings = read_json_file(mel) if mel.is_file() else {}
    # An image processor's `do_normalize` may be in this file. ESPnet's own code normalises the samples.
    mel_settings = {name: value for name, value in mel_settings.items() if name != "do_normalize"}
    return read_tower(config, mel_settings, f"{folder.name}/config.json")


def _section(content: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    section = content.get(name)
    if not isinstance(section, Mapping):
        raise BadInput(f"{where} has no section {name}; expected the yaml of an ESPnet SpeechLM training")
    return section
