"""A SpeechLM checkpoint in Hugging Face's form: `config.json`, safetensors, and the tokenizer of the whole vocabulary.

All sizes, intervals and special ids are in `config.json`. This file opens no weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from workbench.core.errors import BadInput
from workbench.families.language.directory import FULL, check_followed
from workbench.families.speechlm.parts import (
    MAX_STREAMS,
    SpeechDefaults,
    Tower,
    read_integer,
    read_tower,
    with_inference,
)
from workbench.formats.json_files import read_json_file
from workbench.formats.yaml_files import read_yaml
from workbench.speech.layout import SPECIAL, SpeechLayout

MODEL_TYPES = ("bagpiper", "speechlm")  # the second is the old name
# Of a directory converted for vLLM, whose config.json is of the language model alone.
VLLM_CONFIG, VLLM_CODEC = "speechlm.json", "xcodec"
TEXT_TOKENIZER, WHOLE_TOKENIZER = "text", "whole"  # whose ids a tokenizer has: the text model's, or the vocabulary's
INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
LANGUAGE_KEYS = (  # of transformers' Qwen3Config
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "head_dim", "hidden_act", "max_position_embeddings", "rms_norm_eps", "rope_theta"),
    *("rope_scaling", "rope_parameters", "tie_word_embeddings", "attention_bias"),
)


def config_file(directory: Path) -> Path:
    """Returns the file that describes a directory of this form."""
    vllm_config = directory / VLLM_CONFIG
    return vllm_config if vllm_config.is_file() else directory / "config.json"


def is_directory_form(directory: Path) -> bool:
    """Returns whether `config.json` is one of a SpeechLM. Never raises an error."""
    try:
        return read_json_file(config_file(directory)).get("model_type") in MODEL_TYPES
    except BadInput:
        return False


def read_layout(config: Mapping[str, Any], where: str) -> SpeechLayout:
    """Returns the vocabulary that a `config.json` describes.

    Raises `BadInput` if entries are missing, or intervals and special ids do not fit together.
    """
    ids = {name: read_integer(config, f"{name}_token_id", where, minimum=0) for name in SPECIAL}
    streams = read_integer(config, "num_stream", where)
    if streams > MAX_STREAMS:
        raise BadInput(f"num_stream in {where} is {streams}; expected at most {MAX_STREAMS}")
    layout = SpeechLayout(
        vocabulary=read_integer(config, "vocab_size", where),
        text_first=read_integer(config, "text_token_offset", where),
        text_end=read_integer(config, "text_token_end", where),
        codec_first=read_integer(config, "codec_base_offset", where),
        streams=streams,
        layer_size=read_integer(config, "codec_layer_size", where, minimum=2),
        **ids,
    )
    check_layout(layout, where)
    return layout


def check_layout(layout: SpeechLayout, where: str) -> None:
    """Raises `BadInput` if the intervals or special ids of a vocabulary do not fit together."""
    if not layout.text_first < layout.text_end <= layout.codec_first:
        raise BadInput(
            f"the text interval in {where} is {layout.text_first} to {layout.text_end} and the codec's begins at "
            f"{layout.codec_first}; expected the text first, then the codec"
        )
    if layout.codec_end != layout.vocabulary:
        raise BadInput(
            f"{layout.streams} streams of {layout.layer_size} ids from {layout.codec_first} on end at "
            f"{layout.codec_end} and vocab_size in {where} is {layout.vocabulary}; expected the same: the number of "
            "streams differs"
        )
    ids = [getattr(layout, name) for name in SPECIAL]
    if len(set(ids)) < len(ids) or max(ids) >= layout.text_first:
        raise BadInput(
            f"the special ids in {where} are {', '.join(map(str, ids))}; expected different ones below "
            f"{layout.text_first}, where text begins"
        )


def read_language_settings(config: Mapping[str, Any], layout: SpeechLayout, where: str) -> Mapping[str, Any]:
    """Returns the settings of the language model's network, by the names of transformers' Qwen3Config."""
    section = config.get("text_config")
    if not isinstance(section, Mapping):
        raise BadInput(f"{where} has no text_config; expected the settings of the language model")
    settings = language_settings(section, f"text_config of {where}")
    rows = read_integer(settings, "vocab_size", f"text_config of {where}", layout.vocabulary)
    if rows != layout.vocabulary:
        raise BadInput(
            f"vocab_size in text_config of {where} is {rows} and that of the model {layout.vocabulary}; "
            "expected the same"
        )
    hidden = config.get("hidden_size", settings.get("hidden_size"))
    if hidden != settings.get("hidden_size"):
        raise BadInput(
            f"hidden_size in {where} is {hidden!r:.80} and that of its text_config "
            f"{settings.get('hidden_size')!r:.80}; expected the same"
        )
    for name in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"):
        read_integer(settings, name, f"text_config of {where}")
    read_integer(settings, "max_position_embeddings", f"text_config of {where}")
    return settings | {"vocab_size": rows, "tie_word_embeddings": bool(settings.get("tie_word_embeddings", False))}


def language_settings(section: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Returns the entries that the network follows; raises `BadInput` for others that would change what it computes."""
    check_followed(section, "qwen3", where)
    windows = section.get("use_sliding_window"), section.get("layer_types")
    if windows[0] or (isinstance(windows[1], list) and {*windows[1]} - {FULL}):
        key = "use_sliding_window" if windows[0] else "layer_types"
        raise BadInput(
            f"{key} in {where} is {section[key]!r:.80}; only attention to the whole conversation is supported"
        )
    settings = {name: section[name] for name in LANGUAGE_KEYS if section.get(name) is not None}
    if "num_key_value_heads" in section and "num_attention_heads" in settings:
        # Null stands for as many as there are heads; a missing entry for the default of transformers.
        settings.setdefault("num_key_value_heads", settings["num_attention_heads"])
    return settings


def read_directory_tower(directory: Path, config: Mapping[str, Any], where: str) -> Tower | None:
    """Returns the audio tower of the directory; None if it has none."""
    section = config.get("audio_config")
    if section is None:
        return None
    if not isinstance(section, Mapping):
        raise BadInput(f"audio_config in {where} is {type(section).__name__}; expected the settings of the audio tower")
    mel = directory / "preprocessor_config.json"
    tower = read_tower(section, read_json_file(mel) if mel.is_file() else {}, f"audio_config of {where}")
    width = read_integer(config, "adaptor_input_dim", where, tower.width)
    if width != tower.width:
        raise BadInput(f"adaptor_input_dim in {where} is {width} and the audio tower's output {tower.width} wide")
    return tower


def read_defaults(directory: Path, config: Mapping[str, Any], where: str) -> SpeechDefaults:
    """Returns what the checkpoint says about generation: `config.json`, then ESPnet's yaml files beside it."""
    sections = {
        "text": {"temperature": config.get("text_temperature"), "topk": config.get("text_topk")},
        "audio": {"temperature": config.get("audio_temperature"), "topk": config.get("audio_topk")},
    }
    return read_inference(directory, with_inference(SpeechDefaults(), sections, where, "_"))


def read_inference(directory: Path, defaults: SpeechDefaults) -> SpeechDefaults:
    """Returns the defaults as ESPnet's `inference*.yaml` files change them.

    Where there are several, those for text are read first: the text section is that of the file for text, the audio
    section and the usual modalities are those of the file for audio.
    """
    contents = [(path.name, read_yaml(path)) for path in sorted(directory.glob("inference*.yaml"))]
    contents.sort(key=lambda each: "audio" in str(each[1].get("enforce_modality")))
    text: SpeechDefaults | None = None
    for name, content in contents:
        defaults = with_inference(defaults, content, name)
        text = text or defaults
    if text is None:
        return defaults
    names = ("text_temperature", "text_top_k", "max_text_tokens", "min_text_tokens")
    return replace(defaults, **{name: getattr(text, name) for name in names})


def weight_files(directory: Path) -> tuple[Path, ...]:
    """Returns the safetensors files that hold the weights; raises `BadInput` if one is missing."""
    if not (directory / INDEX).is_file():
        if not (directory / SINGLE).is_file():
            raise BadInput(f"{directory.name} has no weights; expected {SINGLE} or {INDEX}")
        return (directory / SINGLE,)
    places = read_json_file(directory / INDEX).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(each, str) for each in places.values()):
        raise BadInput(f"{directory.name}/{INDEX} has no weight_map of file names")
    names = sorted(set(places.values()))
    for name in names:
        if Path(name).name != name or not (directory / name).is_file():
            raise BadInput(f"{directory.name}/{INDEX} names the file {name}, which is not in {directory.name}")
    return tuple(directory / name for name in names)
