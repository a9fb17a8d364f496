"""Writes Fun-ASR-Nano checkpoint directories that load in a moment: the real format and network, tiny, random weights.

What such a model writes is nonsense, but it depends on what it hears, and it ends: a good part of the vocabulary are
stop tokens.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import yaml

from tests.support.tiny_checkpoints import ENCODER, FRONTEND, WIDTH, drawn_tensors
from tests.support.tiny_language import put_tokenizer, random_network
from workbench.families.speech_llm.funasr_nano import CtcBranch, read_funasr_nano
from workbench.runtimes.pytorch.nano_ctc import CtcBranchNetwork
from workbench.runtimes.pytorch.networks.nano_encoder import NanoEncoder

HIDDEN = 32  # width of the language model
LANGUAGE_DIRECTORY = "Qwen3-tiny"
STOPS = list(range(0, 456, 10))  # a token in ten ends a text: the texts of a batch end at different steps

CONFIG: dict[str, Any] = {
    "model": "FunASRNano",
    "audio_encoder": "SenseVoiceEncoderSmall",
    "audio_encoder_conf": {**ENCODER, "tp_blocks": 1, "freeze": True, "feat_permute": True},
    "llm": "Qwen3-0.6b",
    "llm_conf": {"hub": "hf", "freeze": True, "llm_dtype": "bf16", "init_param_path": LANGUAGE_DIRECTORY},
    "audio_adaptor": "Transformer",
    "audio_adaptor_conf": {
        "downsample_rate": 1,
        "use_low_frame_rate": True,
        "ffn_dim": 48,
        "llm_dim": HIDDEN,
        "encoder_dim": WIDTH,
        "n_layer": 2,
        "freeze": True,
    },
    "frontend": "WavFrontend",
    "frontend_conf": FRONTEND,
    "dataset_conf": {},
}


CTC_TOKENS = (b"a", b" the", "你".encode(), "好".encode()[:1], "好".encode()[1:], b" b", b"c", b".")
CTC_OUTPUTS = 12  # the others are special; the last one is the blank
CTC_BRANCH: dict[str, Any] = {
    "ctc_decoder": "Transformer",
    "ctc_decoder_conf": {"downsample_rate": 1, "ffn_dim": 24, "llm_dim": WIDTH, "encoder_dim": WIDTH, "n_layer": 2},
    "ctc_vocab_size": CTC_OUTPUTS,
}


def add_ctc_branch(directory: Path, seed: int = 2) -> Path:
    """Gives a checkpoint of `tiny_funasr_nano` a CTC branch; returns the file of its tokens."""
    config = yaml.safe_load((directory / "config.yaml").read_text(encoding="utf-8"))
    (directory / "config.yaml").write_text(yaml.safe_dump(config | CTC_BRANCH, allow_unicode=True), encoding="utf-8")
    tokens = directory / "multilingual.tiktoken"
    lines = [f"{base64.b64encode(content).decode()} {place}" for place, content in enumerate(CTC_TOKENS)]
    tokens.write_text("\n".join(lines) + "\n", encoding="utf-8")
    branch = read_funasr_nano(directory).ctc
    assert isinstance(branch, CtcBranch)
    drawn = drawn_tensors(CtcBranchNetwork(branch), seed)
    torch.save(torch.load(directory / "model.pt", weights_only=True) | drawn, directory / "model.pt")
    return tokens


def add_lora(directory: Path, outputs: int = HIDDEN, **conf: Any) -> Path:
    """Gives a checkpoint low-rank changes to its query projections, as FunASR's training saves them; returns it.

    Args:
        outputs: rows of the second factors; the projections have `HIDDEN`.
        conf: of `llm_conf.lora_conf`.
    """
    tensors = torch.load(directory / "model.pt", weights_only=True)
    draw = torch.Generator().manual_seed(5)
    for layer in range(3):
        prefix = f"llm.model.layers.{layer}.self_attn.q_proj.lora"
        tensors[f"{prefix}_A"] = torch.randn(3, HIDDEN, generator=draw)
        tensors[f"{prefix}_B"] = torch.randn(outputs, 3, generator=draw)
    torch.save(tensors, directory / "model.pt")
    config = yaml.safe_load((directory / "config.yaml").read_text(encoding="utf-8"))
    config["llm_conf"] |= {"use_lora": True, "lora_conf": {"r": 3, "lora_alpha": 7, **conf}}
    (directory / "config.yaml").write_text(yaml.safe_dump(config, allow_unicode=True), encoding="utf-8")
    return directory


def tiny_funasr_nano(
    directory: Path,
    seed: int = 1,
    dtype: torch.dtype = torch.float32,
    language_changes: Mapping[str, Any] = {},
    **sections: Any,
) -> Path:
    """A Fun-ASR-Nano checkpoint of some ten thousand parameters; returns the directory.

    Args:
        dtype: of the tensors in the file; the published one has bfloat16.
        language_changes: of the language model's configuration.
        sections: what `config.yaml` has instead of `CONFIG`'s; mappings are merged into its own.
    """
    config = {
        name: {**CONFIG[name], **sections[name]} if isinstance(sections.get(name), Mapping) else sections.get(name, own)
        for name, own in CONFIG.items()
    }
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.yaml").write_text(yaml.safe_dump(config, allow_unicode=True), encoding="utf-8")
    (directory / "model.pt").touch()  # for the reader of the configuration, which asks whether it is there
    language = write_language_directory(directory / LANGUAGE_DIRECTORY, seed, **language_changes)
    model = read_funasr_nano(directory)
    tensors = drawn_tensors(NanoEncoder(model.encoder, model.adaptor), seed)
    tensors |= {f"llm.{name}": value for name, value in language.state_dict().items()}
    torch.save({name: value.to(dtype, copy=True) for name, value in tensors.items()}, directory / "model.pt")
    return directory


def write_language_directory(directory: Path, seed: int = 1, **changes: Any) -> Any:
    """A Qwen3 directory without weights, as the checkpoint has one beside its own; returns the network it is of."""
    usual = {"hidden_size": HIDDEN, "max_position_embeddings": 2048, "eos_token_id": STOPS}
    network = random_network("qwen3", seed, **{**usual, **changes})
    network.config.save_pretrained(directory)
    put_tokenizer(directory)
    return network
