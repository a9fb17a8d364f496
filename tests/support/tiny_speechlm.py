"""Writes SpeechLM (Bagpiper) checkpoints that load in a moment: the real formats and networks, tiny, seeded random
weights.

There are both forms: the directory in Hugging Face's form, and ESPnet's own release. Dimensions, intervals, and in the
first form the special ids, are those of no published checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import yaml
from safetensors.torch import save_file
from torch import Tensor

from tests.support.tiny_language import put_tokenizer
from workbench.speech.layout import SpeechLayout
from workbench.training.recognisers.language import QWEN3_SPECIAL

HIDDEN = 32
TEXT = 512  # rows of the text interval; the tokenizer has fewer tokens
CODES = 16  # of each codebook
STREAMS = 5
CONTEXT = 600
ROLES = ("pad", "bos", "eos", "eot", "system", "user", "assistant", "text", "audio")
NAMED = (*ROLES, "image", "video", "toolcall")  # the order of ESPnet's special ids
SHUFFLED = (0, 2, 7, 4, 5, 9, 6, 11, 8, 10, 1, 3)  # the special ids of the first form; only pad is where ESPnet's is
NATIVE_SPECIALS = 256  # ESPnet's code says so, no file of its releases

LANGUAGE: dict[str, Any] = {
    "hidden_size": HIDDEN,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 12,
    "hidden_act": "silu",
    "rope_theta": 50000.0,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": CONTEXT,
    "tie_word_embeddings": False,
}
TOWER: dict[str, Any] = {
    "num_mel_bins": 32,
    "encoder_layers": 2,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "d_model": 16,
    "output_dim": 20,
    "n_window": 20,  # chunks of 40 frames
    "n_window_infer": 80,
    "conv_chunksize": 20,
    "downsample_hidden_size": 6,
    "max_source_positions": 200,
}
MEL = {
    "feature_extractor_type": "WhisperFeatureExtractor",
    "feature_size": TOWER["num_mel_bins"],
    "sampling_rate": 16000,
    "hop_length": 160,
    "n_fft": 400,
    "chunk_length": 30,
    "padding_value": 0.0,
}
ACOUSTIC = {
    "model_type": "dac",
    "encoder_hidden_size": 4,
    "decoder_hidden_size": 32,
    "hidden_size": 8,
    "downsampling_ratios": [8, 5, 4, 2],
    "upsampling_ratios": [8, 5, 4, 2],
}
SEMANTIC = {
    "model_type": "hubert",
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "conv_dim": [8] * 7,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
}
TOWER_PREFIX = "multimodal_io_dict.continuous_audio.model.audio_tower."
CODEC_PREFIX = "multimodal_io_dict.discrete_audio.codec_model."
TEMPLATE = """\
{%- for message in messages %}
{%- if loop.first %}{{ '<|bos|>' }}{% endif %}
{{- '<|' + message.role + '|>' + ('' if '<|audio|>' in message.content else '<|text|>') + message.content + '<|eos|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}
"""


@dataclass(frozen=True)
class TinySpeechLm:
    """A checkpoint on disk, and what is in it."""

    directory: Path
    layout: SpeechLayout
    tensors: Mapping[str, Tensor]  # all that the language model's file holds, by ESPnet's names
    codec: Mapping[str, Tensor]  # of the codec, by transformers' names


def tiny_layout(streams: int = STREAMS, native: bool = False, text: int = TEXT) -> SpeechLayout:
    """The intervals and ids of the tiny checkpoints."""
    numbers = range(len(NAMED)) if native else SHUFFLED
    ids = dict(zip(NAMED, numbers))
    first = NATIVE_SPECIALS if native else 20
    codec_first = first + text
    return SpeechLayout(
        vocabulary=codec_first + streams * (CODES + 1),
        text_first=first,
        text_end=codec_first,
        codec_first=codec_first,
        streams=streams,
        layer_size=CODES + 1,
        **{role: ids[role] for role in ROLES},
    )


def tiny_speechlm(
    directory: Path,
    seed: int = 1,
    dtype: torch.dtype = torch.float32,
    streams: int = STREAMS,
    codec_inside: bool = False,
    model_type: str = "bagpiper",
    language: Mapping[str, Any] = {},
    **changes: Any,
) -> TinySpeechLm:
    """A directory in Hugging Face's form: several shards, tokenizer, template, mel settings, codec in `xcodec`.

    Args:
        dtype: of the tensors; the published ones have bfloat16.
        codec_inside: the codec's tensors are among the checkpoint's, and `xcodec` has its configuration alone.
        model_type: `bagpiper`, or the old name `speechlm`.
        language: changes of the language model's configuration.
        changes: of `config.json`; None takes an entry out.
    """
    layout = tiny_layout(streams)
    directory.mkdir(parents=True, exist_ok=True)
    shape = {**LANGUAGE, **language, "vocab_size": layout.vocabulary}
    kind = model_type.capitalize() if model_type == "bagpiper" else "SpeechLM"
    config = {
        "architectures": [f"{kind}ForConditionalGeneration"],
        "model_type": model_type,
        "audio_config": {"model_type": f"{model_type}_audio_encoder", **TOWER},
        "text_config": {"model_type": f"{model_type}_text", **shape},
        "num_stream": streams,
        "adaptor_input_dim": TOWER["output_dim"],
        "vocab_size": layout.vocabulary,
        "hidden_size": shape["hidden_size"],
        "codec_base_offset": layout.codec_first,
        "codec_layer_size": layout.layer_size,
        "text_token_offset": layout.text_first,
        "text_token_end": layout.text_end,
        **{f"{role}_token_id": getattr(layout, role) for role in ROLES},
        "audio_placeholder_token_id": layout.audio,
        "audio_temperature": 0.7,
        "audio_topk": 6,
        "text_temperature": 0.5,
        "text_topk": 9,
        "xcodec_hf_model_tag": "xcodec",
        "xcodec_sample_rate": 16000,
        **changes,
    }
    write_json(directory / "config.json", {key: value for key, value in config.items() if value is not None})
    stops = {f"{role}_token_id": getattr(layout, role) for role in ("bos", "eos", "pad")}
    write_json(directory / "generation_config.json", stops)
    write_json(directory / "preprocessor_config.json", MEL)
    write_global_tokenizer(directory, layout)
    codec = write_codec(directory / "xcodec", streams, seed, weights=not codec_inside)
    tensors = language_tensors(layout, shape, seed)
    if codec_inside:
        tensors |= {CODEC_PREFIX + name: value for name, value in codec.items()}
    tensors = _typed(tensors, dtype)
    write_shards(directory, tensors)
    return TinySpeechLm(directory, layout, tensors, codec)


def tiny_espnet_release(
    directory: Path,
    seed: int = 1,
    dtype: torch.dtype = torch.float32,
    streams: int = STREAMS,
    weights: str = "model.pt",
    order: Sequence[str] = ("text", "discrete_audio", "continuous_audio"),
    language: Mapping[str, Any] = {},
) -> TinySpeechLm:
    """ESPnet's own release: one file of tensors, the codec's among them, the yaml of the training, those of the
    inference, and a folder for each part that the yaml names.

    Args:
        weights: the name of the file; DeepSpeed's is `mp_rank_00_model_states.pt`.
        order: of the yaml's inputs and outputs; old versions of ESPnet numbered the vocabulary in that order.
        language: changes of the language model's configuration.
    """
    layout = tiny_layout(streams, native=True)
    directory.mkdir(parents=True, exist_ok=True)
    parts: dict[str, dict[str, Any]] = {
        "text": {"tokenizer_name": "tiny/Qwen3-tiny-Base"},
        "discrete_audio": {
            "codec_choice": "Xcodec",
            "codec_hf_model_tag": "tiny/xcodec-tiny",
            "ssl_choice": None,
            "ssl_hf_model_tag": None,
            "delay_interleave": True,
            "stream_weights": [1 / streams] * streams,
        },
        "continuous_audio": {
            "encoder_choice": "huggingface",
            "encoder_hf_model_tag": "tiny/Qwen3-Omni-tiny",
            "attn_implementation": "flash_attention_3",
            "dtype": "bfloat16",
        },
    }
    training = {
        "job_type": "speechlm",
        "multimodal_io": {name: parts[name] for name in order},
        "model": {
            "model_choice": "parallel",
            "model_hf_tag": "tiny/Qwen3-tiny-Base",
            "model_conf": {"attn_implementation": "flash_attention_3", "dtype": "bfloat16"},
        },
        "preprocessor": {
            "audio_input": "continuous_audio",
            "audio_output": "discrete_audio",
            "loss_region": "assistant",
            "audio_cfg": 0.05,
        },
    }
    (directory / "train_stage3_tiny.yaml").write_text(yaml.safe_dump(training, sort_keys=False), encoding="utf-8")
    for name, modalities in (("text", ["text"]), ("audio", ["text", "audio"])):
        inference = {
            "dtype": "bfloat16",
            "num_hypo": 1,
            "enforce_modality": modalities,
            "audio": {"temperature": 0.7, "topk": 6, "cfg": 3, "max_step": 300, "min_step": 4},
            "text": {"temperature": 0.5, "topk": 9, "cfg": 1, "max_step": 200, "min_step": 1},
        }
        (directory / f"inference_{name}.yaml").write_text(yaml.safe_dump(inference), encoding="utf-8")
    shape = {**LANGUAGE, **language, "vocab_size": TEXT}
    put_tokenizer(directory / "Qwen3-tiny-Base")
    write_json(directory / "Qwen3-tiny-Base" / "config.json", {"model_type": "qwen3", **shape})
    omni = {"model_type": "qwen3_omni_moe", "thinker_config": {"audio_config": TOWER}}
    write_json(directory / "Qwen3-Omni-tiny" / "config.json", omni)
    write_json(directory / "Qwen3-Omni-tiny" / "preprocessor_config.json", MEL)
    codec = write_codec(directory / "xcodec-tiny", streams, seed, weights=False)
    tensors = language_tensors(layout, {**shape, "vocab_size": layout.vocabulary}, seed)
    tensors |= {CODEC_PREFIX + name: value for name, value in codec.items()}
    tensors = _typed(tensors, dtype)
    torch.save({"module": tensors}, directory / weights)
    return TinySpeechLm(directory, layout, tensors, codec)


def _typed(tensors: Mapping[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """The tensors in a checkpoint's type; the weights of the loss stay float32, as in the published files."""
    return {
        name: value.to(dtype) if value.is_floating_point() and name != "vocab_weight" else value
        for name, value in tensors.items()
    }


def language_tensors(layout: SpeechLayout, shape: Mapping[str, Any], seed: int = 1) -> dict[str, Tensor]:
    """All tensors but the codec's, by ESPnet's names, large enough that the likeliest token changes from step to
    step."""
    import transformers
    from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import Qwen3OmniMoeAudioEncoder

    draw = torch.Generator().manual_seed(seed)
    settings: Any = transformers.Qwen3Config(**dict(shape))
    network = transformers.Qwen3ForCausalLM(settings)
    tower = Qwen3OmniMoeAudioEncoder(transformers.AutoConfig.for_model("qwen3_omni_moe_audio_encoder", **TOWER))
    tensors = {name: _drawn(value, draw) for name, value in network.state_dict().items()}
    for number in (layout.eos, layout.eot):  # so that some texts end by themselves
        tensors["lm_head.weight"][number] *= 1.8
    hidden = shape["hidden_size"]
    tensors["stream_emb.weight"] = 0.5 * torch.randn(layout.streams, hidden, generator=draw)
    tensors["adaptor.continuous_audio.weight"] = _drawn(torch.empty(hidden, TOWER["output_dim"]), draw)
    tensors["adaptor.continuous_audio.bias"] = _drawn(torch.empty(hidden), draw)
    tensors |= {TOWER_PREFIX + name: _drawn(value, draw) for name, value in tower.state_dict().items()}
    tensors["vocab_weight"] = torch.ones(layout.vocabulary)
    tensors["vocab_weight"][layout.codec_first :] = 1 / layout.streams
    return tensors


def _drawn(value: Tensor, draw: torch.Generator) -> Tensor:
    drawn = torch.randn(value.shape, generator=draw)
    if value.ndim > 1:
        return 2 * drawn / value[0].numel() ** 0.5
    return 1 + 0.1 * drawn if bool((value == 1).all()) else 0.1 * drawn


def write_codec(directory: Path, streams: int = STREAMS, seed: int = 1, weights: bool = True) -> dict[str, Tensor]:
    """An Xcodec directory whose codebooks are filled; without weights it has the configuration alone."""
    import transformers

    bandwidths = [0.2 * count for count in (1, 2, streams)]  # kbps of codebooks with 16 codes at 50 frames a second
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = transformers.XcodecModel(
            transformers.XcodecConfig(
                acoustic_model_config=ACOUSTIC,
                semantic_model_config=SEMANTIC,
                codebook_size=CODES,
                target_bandwidths=[round(each, 3) for each in bandwidths],
            )
        ).eval()
        for quantizer in network.quantizer.quantizers:
            quantizer.codebook.embed.normal_()
            quantizer.codebook.embed_avg.copy_(quantizer.codebook.embed)
    assert len(network.quantizer.quantizers) == streams
    network.save_pretrained(directory)
    if not weights:
        (directory / "model.safetensors").unlink()
    return {name: value.contiguous() for name, value in network.state_dict().items()}


def write_shards(directory: Path, tensors: Mapping[str, Tensor], shards: int = 2) -> None:
    """Safetensors files of about equal size, with their index."""
    names = list(tensors)
    groups = [names[number::shards] for number in range(shards)]
    index = {}
    for number, group in enumerate(groups, 1):
        file = f"model-{number:05d}-of-{shards:05d}.safetensors"
        save_file({name: tensors[name].contiguous() for name in group}, directory / file)
        index |= dict.fromkeys(group, file)
    size = sum(value.numel() * value.element_size() for value in tensors.values())
    write_json(directory / "model.safetensors.index.json", {"metadata": {"total_size": size}, "weight_map": index})


def special_names(layout: SpeechLayout) -> dict[str, int]:
    """The special tokens below the text interval, with their ids."""
    named = {f"<|{name}|>": number for name, number in zip(NAMED, SHUFFLED)}
    used = set(named.values())
    return named | {f"<|unused_{number}|>": number for number in range(layout.text_first) if number not in used}


@cache
def _text_tokenizer() -> dict[str, Any]:
    """The tokenizer of the language model alone, as its `tokenizer.json` has it."""
    with TemporaryDirectory() as folder:
        put_tokenizer(Path(folder))
        content: dict[str, Any] = json.loads((Path(folder) / "tokenizer.json").read_text())
    return content


def write_global_tokenizer(directory: Path, layout: SpeechLayout) -> None:
    """A tokenizer whose ids are those of the whole vocabulary, as the published directories have one."""
    text = _text_tokenizer()
    special = special_names(layout)
    own = {entry["content"]: entry["id"] + layout.text_first for entry in text["added_tokens"]}
    assert set(own) == set(QWEN3_SPECIAL)
    shifted = {token: number + layout.text_first for token, number in text["model"]["vocab"].items()}
    codec: dict[str, int] = {}
    for stream in range(layout.streams):
        first, _ = layout.interval(stream)
        codec[f"<codec_layer{stream}_pad>"] = first
        codec |= {f"<codec_layer{stream}_code{code}>": first + 1 + code for code in range(layout.codes)}
    model = {**text["model"], "vocab": special | shifted | own | codec}
    write_json(directory / "tokenizer.json", {**text, "model": model, "added_tokens": []})
    write_json(directory / "vocab.json", shifted)
    plain = dict.fromkeys(("lstrip", "normalized", "rstrip", "single_word"), False)
    ordered = sorted((special | codec).items(), key=lambda each: each[1])
    added = {str(number): {"content": token, **plain, "special": True} for token, number in ordered}
    settings = {
        "model_type": "bagpiper",
        "text_offset": layout.text_first,
        "codec_base_offset": layout.codec_first,
        "codec_layer_size": layout.layer_size,
        "num_streams": layout.streams,
        "vocab_size": layout.vocabulary,
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|bos|>",
        "eos_token": "<|eos|>",
        "pad_token": "<|pad|>",
        "unk_token": None,
        "clean_up_tokenization_spaces": False,
        "added_tokens_decoder": added,
        "chat_template": TEMPLATE,
    }
    write_json(directory / "tokenizer_config.json", settings)
    (directory / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Writes a mapping as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
