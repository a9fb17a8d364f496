"""Writes tiny language models as GGUF files, in llama.cpp's layout, with the `gguf` package's own writer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
from transformers import AutoTokenizer

from tests.support.tiny_language import put_tokenizer, random_network

FLOATS = {"f32": gguf.GGMLQuantizationType.F32, "f16": gguf.GGMLQuantizationType.F16}


def put_keys(writer: gguf.GGUFWriter, network: Any) -> None:
    """The keys of the architecture that a network of transformers' has."""
    config = network.config
    heads = config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(width)
    writer.add_value_length(width)
    writer.add_rope_freq_base(float((config.rope_parameters or {}).get("rope_theta", 10000.0)))
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)


def put_tensors(writer: gguf.GGUFWriter, network: Any, quantization: str = "f32") -> None:
    """A network's tensors by llama.cpp's names, matrices quantised where their rows allow it."""
    config = network.config
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[config.model_type.upper()], config.num_hidden_layers)
    for name, tensor in network.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        found = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert found, name
        values = tensor.float().numpy()
        if config.model_type == "llama" and found.endswith(("attn_q.weight", "attn_k.weight")):
            values = _paired(values, config)
        kind = FLOATS.get(quantization) or gguf.GGMLQuantizationType[quantization.upper()]
        if values.ndim == 1 or values.shape[1] % gguf.GGML_QUANT_SIZES[kind][0]:
            kind = FLOATS["f32"]
        writer.add_tensor(found, gguf.quants.quantize(values, kind), raw_dtype=kind)


def _paired(rows: np.ndarray, config: Any) -> np.ndarray:
    """Rows in the order of llama.cpp's llama network, which turns neighbours, where transformers turns halves."""
    width = config.hidden_size // config.num_attention_heads
    return rows.reshape(-1, 2, width // 2, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)


def put_vocabulary(writer: gguf.GGUFWriter, directory: Path, rows: int) -> None:
    """The byte-level tokenizer of a directory, with names of their own for rows that it leaves spare."""
    tokenizer = AutoTokenizer.from_pretrained(str(directory))
    pieces = {number: piece for piece, number in tokenizer.get_vocab().items()}
    added = tokenizer.added_tokens_decoder
    tokens, kinds = [], []
    for number in range(rows):
        spare = number not in pieces
        tokens.append(f"[PAD{number}]" if spare else pieces[number])
        if spare:
            kinds.append(gguf.TokenType.UNUSED)
        elif number in added:
            kinds.append(gguf.TokenType.CONTROL if added[number].special else gguf.TokenType.USER_DEFINED)
        else:
            kinds.append(gguf.TokenType.NORMAL)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    merges = (directory / "merges.txt").read_text(encoding="utf-8").splitlines()
    writer.add_token_merges([line for line in merges if line and not line.startswith("#version")])
    if tokenizer.chat_template:
        writer.add_chat_template(tokenizer.chat_template)
    writer.add_add_bos_token(False)


def tiny_gguf(
    path: Path, kind: str = "qwen3", quantization: str = "f32", seed: int = 1, eos: int | None = 458, **changes: Any
) -> Any:
    """Writes a plain language model with a vocabulary; returns the network of transformers' that it holds."""
    network = random_network(kind, seed, **changes)
    writer = gguf.GGUFWriter(path, kind)
    put_keys(writer, network)
    tokenizer = path.with_suffix(".tokenizer")
    put_tokenizer(tokenizer, kind)
    put_vocabulary(writer, tokenizer, network.config.vocab_size)
    if eos is not None:
        writer.add_eos_token_id(eos)
    put_tensors(writer, network, quantization)
    _write(writer)
    return network


def tiny_halves(path: Path, kind: str = "qwen3", quantization: str = "f32", seed: int = 1, **changes: Any) -> Any:
    """Writes a file whose language half stands among tensors of a hearing half; returns the language half's network."""
    network = random_network(kind, seed, **changes)
    writer = gguf.GGUFWriter(path, kind)
    writer.add_string("workbench.language.architecture", kind)
    put_keys(writer, network)
    writer.kv_data[0]["general.architecture"].value = "funasr-nano"
    writer.add_tensor("audio_encoder.after_norm.weight", np.ones(24, np.float32))
    put_tensors(writer, network, quantization)
    writer.add_tensor("audio_adaptor.linear1.weight", np.zeros((6, 24), np.float32))
    _write(writer)
    return network


def _write(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
