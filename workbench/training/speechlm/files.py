"""The files of the demo SpeechLM: tokenizer, configuration, weights in shards, all in the published directory's form.

The tokenizer is a byte-level BPE after 256 special tokens, so it takes any text. Codes of the codec have ids after the
text's, but no names in the tokenizer: names for 8,200 codes would be most of its file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from workbench.audio.constants import FRAME_SHIFT, NUM_MELS, SAMPLE_RATE
from workbench.speech.layout import SPECIAL, SpeechLayout
from workbench.system.atomic_files import follow_umask
from workbench.training.data.digits import WORDS
from workbench.training.recognisers.language import SPLIT
from workbench.training.speechlm.codec import CODES, LEVELS
from workbench.training.speechlm.tasks import HELP, NOTHING, SPEECH_INPUT_TASKS, SPOKEN_VERBS, TALK
from workbench.training.speechlm.voices import VOICES

NAMED_TOKENS = (*SPECIAL, "image", "video", "toolcall")
SPECIALS = (
    *(f"<|{name}|>" for name in NAMED_TOKENS),
    *(f"<|unused_{number}|>" for number in range(len(NAMED_TOKENS), 256)),
)
TEXT = 512  # ids of text
LAYOUT = SpeechLayout(
    vocabulary=len(SPECIALS) + TEXT + LEVELS * (CODES + 1),
    text_first=len(SPECIALS),
    text_end=len(SPECIALS) + TEXT,
    codec_first=len(SPECIALS) + TEXT,
    streams=LEVELS,
    layer_size=CODES + 1,
    **{name: SPECIALS.index(f"<|{name}|>") for name in SPECIAL},
)
SHARD_BYTES = 9_000_000  # hubs keep files above 10 MB only in large-file storage
CODEC = "xcodec"  # its folder
CHAT_TEMPLATE = (
    "{{- '<|bos|>' }}"
    "{%- for message in messages %}"
    "{{- '<|' + message['role'] + '|>' }}"
    "{%- if message['content'] is string %}"
    "{%- if not message['content'].startswith('<|audio|>') %}{{- '<|text|>' }}{%- endif %}"
    "{{- message['content'] }}"
    "{%- else %}"
    "{%- for part in message['content'] %}"
    "{%- if not loop.first %}{{- '<|eot|><|' + message['role'] + '|>' }}{%- endif %}"
    "{%- if part['type'] == 'text' %}{{- '<|text|>' + part['text'] }}{%- else %}{{- '<|audio|>' }}{%- endif %}"
    "{%- endfor %}"
    "{%- endif %}"
    "{%- if not loop.last and loop.nextitem['role'] == message['role'] %}{{- '<|eot|>' }}"
    "{%- else %}{{- '<|eos|>' }}{%- endif %}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|assistant|>' }}{%- endif %}"
)


def make_tokenizer() -> Any:
    """Returns the tokenizer (of the package tokenizers): special tokens from id 0, text from id 256."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    def dressed(model: Any) -> Any:
        tokenizer: Any = Tokenizer(model)
        tokenizer.normalizer = normalizers.NFC()
        split = pre_tokenizers.Split(Regex(SPLIT), behavior="isolated")
        bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_])
        tokenizer.decoder = decoders.ByteLevel()
        return tokenizer

    learnt = dressed(models.BPE())
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=TEXT, initial_alphabet=alphabet, show_progress=False)
    learnt.train_from_iterator(_texts(), trainer)
    pieces = json.loads(learnt.to_str())["model"]
    vocabulary = {name: number for number, name in enumerate(SPECIALS)}
    vocabulary.update({name: number + len(SPECIALS) for name, number in pieces["vocab"].items()})
    tokenizer = dressed(models.BPE(vocab=vocabulary, merges=[tuple(pair) for pair in pieces["merges"]]))
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIALS])
    return tokenizer


def _texts() -> Iterator[str]:
    """Yields the texts from which the merges are learnt: the words of the requests, frequent ones often."""
    for _ in range(60):
        for word in WORDS:
            yield f"{word} {word}"
            yield f"{word.capitalize()} {word.upper()}"
        yield from (f"in the voice of {voice}, as voice {voice}: {voice}" for voice in VOICES)
        yield from (f"{verb} {verb.capitalize()} write Write spell Spell please" for verb in SPOKEN_VERBS)
        yield from (f"{instruction} {instruction.capitalize()}" for instruction, _, _ in SPEECH_INPUT_TASKS)
        yield from (
            "count from to",
            "Count down from to",
            HELP,
            NOTHING,
            "Voice: Speak speak in the voice of",
            "You are a helpful assistant.",
        )
    yield from TALK


def write_tokenizer(directory: Path) -> None:
    """Writes tokenizer.json, tokenizer_config.json, chat_template.jinja and generation_config.json."""
    make_tokenizer().save(str(directory / "tokenizer.json"))
    added = {
        str(number): {
            "content": name,
            "lstrip": False,
            "normalized": False,
            "rstrip": False,
            "single_word": False,
            "special": True,
        }
        for number, name in enumerate(SPECIALS)
    }
    settings = {
        "add_bos_token": False,
        "added_tokens_decoder": added,
        "bos_token": "<|bos|>",
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|eos|>",
        "model_max_length": CONTEXT,
        "pad_token": "<|pad|>",
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": None,
    }
    _write_json(directory / "tokenizer_config.json", settings)
    (directory / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    ends = {"bos_token_id": LAYOUT.bos, "eos_token_id": LAYOUT.eos, "pad_token_id": LAYOUT.pad}
    _write_json(directory / "generation_config.json", ends)


CONTEXT = 2048


def write_configuration(directory: Path, language: Mapping[str, Any], tower: Mapping[str, Any]) -> None:
    """Writes config.json and preprocessor_config.json.

    Args:
        language: dimensions of the language model, by transformers' names.
        tower: dimensions of the audio tower, by transformers' names.
    """
    ids = {f"{name}_token_id": getattr(LAYOUT, name) for name in SPECIAL}
    configuration = {
        "architectures": ["BagpiperForConditionalGeneration"],
        "model_type": "bagpiper",
        "audio_config": {"model_type": "bagpiper_audio_encoder", **tower},
        "text_config": {
            "model_type": "bagpiper_text",
            **language,
            "vocab_size": LAYOUT.vocabulary,
            "max_position_embeddings": CONTEXT,
        },
        "num_stream": LAYOUT.streams,
        "adaptor_input_dim": tower["output_dim"],
        "vocab_size": LAYOUT.vocabulary,
        "hidden_size": language["hidden_size"],
        "codec_base_offset": LAYOUT.codec_first,
        "codec_layer_size": LAYOUT.layer_size,
        "text_token_offset": LAYOUT.text_first,
        "text_token_end": LAYOUT.text_end,
        **ids,
        "audio_placeholder_token_id": LAYOUT.audio,
        "audio_temperature": 0.8,
        "audio_topk": 20,
        "text_temperature": 0.6,
        "text_topk": 20,
        "xcodec_hf_model_tag": CODEC,
        "xcodec_sample_rate": SAMPLE_RATE,
        "dtype": "float32",
    }
    _write_json(directory / "config.json", configuration)
    extractor = {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "feature_size": NUM_MELS,
        "sampling_rate": SAMPLE_RATE,
        "hop_length": FRAME_SHIFT,
        "n_fft": 400,
        "chunk_length": 30,
        "do_normalize": True,  # the waveform, as in ESPnet
        "padding_value": 0.0,
        "return_attention_mask": False,
    }
    _write_json(directory / "preprocessor_config.json", extractor)


def write_weights(directory: Path, tensors: Mapping[str, Tensor]) -> int:
    """Writes the tensors as shards of safetensors with an index; returns the number of parameters."""
    from huggingface_hub import split_torch_state_dict_into_shards
    from safetensors.torch import save_file

    tensors = {name: value.detach().contiguous().clone() for name, value in tensors.items()}
    split = split_torch_state_dict_into_shards(
        tensors, filename_pattern="model{suffix}.safetensors", max_shard_size=SHARD_BYTES
    )
    for name, members in split.filename_to_tensors.items():
        save_file({key: tensors[key] for key in members}, directory / name, metadata={"format": "pt"})
    follow_umask(directory)
    index = {"metadata": split.metadata, "weight_map": split.tensor_to_filename}
    _write_json(directory / "model.safetensors.index.json", index)
    return sum(value.numel() for value in tensors.values())


def read_weights(directory: Path) -> dict[str, Tensor]:
    """Returns the tensors of a folder written by `write_weights`."""
    from safetensors.torch import load_file

    found: dict[str, Tensor] = {}
    for path in sorted(directory.glob("model*.safetensors")):
        found.update(load_file(path))
    return found


def write_codec(directory: Path, codec: Any) -> int:
    """Writes the codec's folder; returns its number of parameters, its codebooks included."""
    codec.save_pretrained(directory / CODEC, max_shard_size=f"{SHARD_BYTES // 1_000_000}MB")
    follow_umask(directory / CODEC)
    return sum(value.numel() for value in codec.state_dict().values())


def read_codec(directory: Path) -> Any:
    """Returns the codec in a folder written by `write_codec`."""
    from transformers import XcodecModel

    return XcodecModel.from_pretrained(directory / CODEC, dtype=torch.float32).eval()


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
