"""Writes FireRedASR-LLM checkpoint directories that load in a moment: the real format and network, tiny, with seeded
random weights.

What such a model writes is nonsense, but it depends on what it hears, and some of it ends by itself.
"""

from __future__ import annotations

import struct
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.support.tiny_checkpoints import drawn_tensors
from tests.support.tiny_language import SHAPE, put_tokenizer, random_network
from workbench.families.speech_llm.conformer import ConformerConfig
from workbench.families.speech_llm.fireredasr import CMVN, ENCODER_WEIGHTS, LANGUAGE_DIRECTORY, WEIGHTS
from workbench.runtimes.pytorch.fireredasr import AudioEmbeddingNetwork
from workbench.runtimes.pytorch.networks.conformer import relative_positions

WIDTH, HIDDEN, RANK = 16, SHAPE["hidden_size"], 4
ARGUMENTS = {
    "freeze_encoder": 0,
    "freeze_llm": 0,
    "use_lora": 1,
    "use_fp16": 1,
    "use_flash_attn": 0,
    "encoder_downsample_rate": 2,
    "encoder_path": "exp/encoder/asr_encoder.pth.tar",
    "llm_dir": "/of/the/machine/that/trained/Qwen2-7B-Instruct",
}
ENCODER_ARGUMENTS = {
    "idim": 80,
    "odim": 7832,
    "n_layers_enc": 2,
    "n_layers_dec": 16,
    "n_head": 2,
    "d_model": WIDTH,
    "d_inner": 4 * WIDTH,
    "kernel_size": 5,
    "pe_maxlen": 5000,
    "residual_dropout": 0.1,
    "dropout_rate": 0.1,
    "sos_id": 3,
    "eos_id": 4,
    "pad_id": 2,
}
CONFIG = ConformerConfig(idim=80, n_layers=2, n_head=2, d_model=WIDTH, kernel_size=5, pe_maxlen=5000)
LAYERS = {  # of the language model that LoRA changes, with their sizes (out, in)
    "self_attn.q_proj": (HIDDEN, HIDDEN),
    "self_attn.k_proj": (HIDDEN // 2, HIDDEN),
    "self_attn.v_proj": (HIDDEN // 2, HIDDEN),
    "self_attn.o_proj": (HIDDEN, HIDDEN),
    "mlp.gate_proj": (SHAPE["intermediate_size"], HIDDEN),
    "mlp.up_proj": (SHAPE["intermediate_size"], HIDDEN),
    "mlp.down_proj": (HIDDEN, SHAPE["intermediate_size"]),
}


def tiny_fireredasr(directory: Path, seed: int = 1, **changes: Any) -> Path:
    """A checkpoint of some ten thousand parameters, its language half changed by LoRA; returns the directory.

    `changes` are of the arguments in either file, by name; None takes one out.
    """
    write_language(directory / LANGUAGE_DIRECTORY, seed)
    write_statistics(directory / CMVN)
    tensors = {**hearing_tensors(seed), **lora_tensors(seed)}
    write_package(directory / WEIGHTS, changed(ARGUMENTS, changes), tensors)
    write_package(directory / ENCODER_WEIGHTS, changed(ENCODER_ARGUMENTS, changes), None)
    return directory


def write_language(directory: Path, seed: int = 1, **changes: Any) -> Path:
    """A Qwen2 directory with weights; its end is likelier than other tokens."""
    network = random_network("qwen2", seed, **changes)
    with torch.no_grad():
        network.lm_head.weight[SHAPE["eos_token_id"]] *= 1.5
    network.save_pretrained(directory)
    put_tokenizer(directory, "qwen2")
    return directory


def changed(arguments: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    own = set(arguments) | ({"lora_r", "lora_alpha", "length_rule"} if arguments is ARGUMENTS else set())
    merged = {**arguments, **{name: value for name, value in changes.items() if name in own}}
    return {name: value for name, value in merged.items() if value is not None}


def write_package(path: Path, arguments: dict[str, Any], tensors: dict[str, Tensor] | None) -> None:
    package = {"args": Namespace(**arguments)}
    torch.save(package if tensors is None else {**package, "model_state_dict": tensors}, path)


def hearing_tensors(seed: int = 1, config: ConformerConfig = CONFIG) -> dict[str, Tensor]:
    """Encoder, with the table of positions that the published files have, and adapter."""
    tensors = drawn_tensors(AudioEmbeddingNetwork(config, HIDDEN, 2), seed)
    tensors["encoder.positional_encoding.pe"] = relative_positions(50, config.d_model, torch.zeros(()))[None]
    return tensors


def lora_tensors(seed: int = 1, rank: int = RANK) -> dict[str, Tensor]:
    """The changes of every layer, by peft's names."""
    draw = torch.Generator().manual_seed(seed)
    tensors = {}
    for layer in range(SHAPE["num_hidden_layers"]):
        for name, (outputs, inputs) in LAYERS.items():
            prefix = f"llm.base_model.model.model.layers.{layer}.{name}"
            tensors[f"{prefix}.lora_A.default.weight"] = torch.randn(rank, inputs, generator=draw) / inputs**0.5
            tensors[f"{prefix}.lora_B.default.weight"] = 0.1 * torch.randn(outputs, rank, generator=draw)
    return tensors


def statistics(features: int = 80, seed: int = 1) -> np.ndarray:
    """Sums such as those of speech, float64 [2, features + 1]."""
    draw = np.random.default_rng(seed)
    count, means, deviations = 1000.0, draw.uniform(8, 14, features), draw.uniform(2, 4, features)
    return np.array([[*means * count, count], [*(means**2 + deviations**2) * count, 0]])


def write_statistics(path: Path, sums: np.ndarray | None = None, kind: str = "DM") -> Path:
    """A Kaldi matrix in binary form, without a key."""
    sums = statistics() if sums is None else sums
    header = b"\0B" + kind.encode() + b" " + struct.pack("<bibi", 4, sums.shape[0], 4, sums.shape[1])
    path.write_bytes(header + sums.astype("<f8" if kind == "DM" else "<f4").tobytes())
    return path
