"""Writes Fun-ASR-Nano checkpoint directories that load in a moment: the real format and network, tiny, random weights.

What such a model writes is nonsense, but it depends on what it hears, and it ends: a good part of the vocabulary are
stop tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import yaml

from tests.support.tiny_checkpoints import ENCODER, FRONTEND, WIDTH, drawn_tensors
from tests.support.tiny_language import put_tokenizer, random_network
from workbench.families.funasr_nano import read_funasr_nano
from workbench.runtimes.pytorch.nano_encoder import NanoEncoder

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
