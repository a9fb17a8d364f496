"""Writes the directory of a language model that a plain GGUF file corresponds to: configuration and tokenizer, no
weights.

llama.cpp's keys describe a byte-level BPE tokenizer completely except for its pre-tokenizer, which they only name.
"""

from __future__ import annotations

import json
from typing import Any

from workbench.core.errors import BadInput
from workbench.formats.gguf_file import GgufFile
from workbench.runtimes.gguf.files.language_file import language_config, read_dimensions

PRE_TOKENIZERS = ("qwen2",)  # Qwen2, Qwen2.5 and Qwen3 share it
CONTROL, USER_DEFINED, UNUSED = 3, 4, 5  # types of tokens
END_OF_TEXT = "<|endoftext|>"  # ends a text of Qwen's models in every program, whatever their configuration says


def language_files(file: GgufFile) -> dict[str, bytes]:
    """Returns the small files of a directory in Hugging Face's form, by name.

    Raises `BadInput` for missing or contradictory keys, and for a tokenizer that is not Qwen's.
    """
    tokens, kinds = _tokens(file)
    special = {number: tokens[number] for number, kind in enumerate(kinds) if kind in (CONTROL, USER_DEFINED)}
    vocabulary = {
        token: number for number, token in enumerate(tokens) if number not in special and kinds[number] != UNUSED
    }
    merges = file.texts("tokenizer.ggml.merges")
    if merges is None:
        raise BadInput(f"{file.name} has no tokenizer.ggml.merges, which a byte-level BPE tokenizer needs")
    settings = _settings(file, tokens, kinds, special)
    return {
        "config.json": _json(_configuration(file, tokens)),
        "vocab.json": _json(vocabulary),
        "merges.txt": "\n".join(["#version: 0.2", *merges, ""]).encode(),
        "tokenizer_config.json": _json(settings),
    }


def _tokens(file: GgufFile) -> tuple[list[str], list[int]]:
    kind, pre = file.text("tokenizer.ggml.model"), file.text("tokenizer.ggml.pre", PRE_TOKENIZERS[0])
    if kind != "gpt2" or pre not in PRE_TOKENIZERS:
        raise BadInput(f"the tokenizer of {file.name} is {kind!r:.40} with {pre!r:.40}; expected 'gpt2' with 'qwen2'")
    tokens, kinds = file.texts("tokenizer.ggml.tokens"), file.numbers("tokenizer.ggml.token_type")
    if tokens is None or kinds is None or len(tokens) != len(kinds):
        raise BadInput(
            f"{file.name} has {len(tokens or ())} tokens (tokenizer.ggml.tokens) and "
            f"{0 if kinds is None else len(kinds)} types of them (tokenizer.ggml.token_type); expected as many"
        )
    rows = read_dimensions(file).vocabulary
    if len(tokens) > rows:
        raise BadInput(f"{file.name} has {len(tokens)} tokens, and tensor token_embd.weight has {rows} rows")
    return tokens, kinds.tolist()


def _configuration(file: GgufFile, tokens: list[str]) -> dict[str, Any]:
    config, sizes = language_config(file), read_dimensions(file)
    stops = list(config.stop_ids)
    if END_OF_TEXT in tokens and tokens.index(END_OF_TEXT) not in stops:
        stops.append(tokens.index(END_OF_TEXT))
    return {
        "model_type": config.model_type,
        "hidden_size": config.hidden_size,
        "intermediate_size": sizes.units,
        "num_hidden_layers": config.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.key_heads,
        "head_dim": sizes.head_width,
        "vocab_size": config.vocabulary,
        "max_position_embeddings": config.context,
        "eos_token_id": stops,
        "pad_token_id": config.pad_id,
    }


def _settings(file: GgufFile, tokens: list[str], kinds: list[int], special: dict[int, str]) -> dict[str, Any]:
    default_flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    settings: dict[str, Any] = {
        "add_prefix_space": False,
        "added_tokens_decoder": {
            str(number): {"content": token, "special": kinds[number] == CONTROL, **default_flags}
            for number, token in special.items()
        },
        "clean_up_tokenization_spaces": False,
        "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None,
    }
    for name, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding")):
        key_of_id = f"tokenizer.ggml.{key}_token_id"
        number = file.whole(key_of_id, maximum=len(tokens) - 1) if key_of_id in file.metadata else None
        settings[f"{name}_token"] = None if number is None else tokens[number]
    adds_bos = file.flag("tokenizer.ggml.add_bos_token", False)
    settings["add_bos_token"] = adds_bos
    if "tokenizer.chat_template" in file.metadata:
        settings["chat_template"] = file.text("tokenizer.chat_template")
    return settings


def _json(content: Any) -> bytes:
    return json.dumps(content, ensure_ascii=False).encode()
