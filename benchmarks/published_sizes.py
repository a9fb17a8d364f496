"""Fun-ASR-Nano and FireRedASR-LLM of the published sizes with random weights, to measure an engine's batching.

    python -m benchmarks.published_sizes FOLDER [--device cuda] [--layers N]

It writes FOLDER/nano and FOLDER/firered, in bfloat16; `benchmarks.serving --model FOLDER/nano` measures them. Their
output is nonsense, but it depends on the speech. `--layers` cuts the language models for a small machine.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from tests.support.tiny_checkpoints import drawn_tensors
from tests.support.tiny_fireredasr import (
    ARGUMENTS,
    ENCODER_ARGUMENTS,
    write_language,
    write_package,
    write_statistics,
)
from tests.support.tiny_funasr_nano import STOPS, tiny_funasr_nano
from workbench.families.speech_llm.conformer import ConformerConfig
from workbench.families.speech_llm.fireredasr import CMVN, ENCODER_WEIGHTS, LANGUAGE_DIRECTORY, WEIGHTS
from workbench.runtimes.pytorch.fireredasr import AudioEmbeddingNetwork

CONFORMER = ConformerConfig(idim=80, n_layers=16, n_head=20, d_model=1280, kernel_size=33, pe_maxlen=5000)
QWEN2 = {
    "hidden_size": 3584,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "intermediate_size": 18944,
    "vocab_size": 152064,
    "max_position_embeddings": 4096,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
}
QWEN3 = {
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 3072,
    "vocab_size": 151936,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
}
SANM = {"output_size": 512, "attention_heads": 4, "linear_units": 2048, "num_blocks": 50, "tp_blocks": 20,
        "kernel_size": 11}  # fmt: skip
ADAPTOR = {"downsample_rate": 1, "ffn_dim": 2048, "llm_dim": 1024, "encoder_dim": 512, "n_layer": 2}


def write_nano(directory: Path, layers: int, device: str) -> None:
    """Writes a Fun-ASR-Nano whose language model has `layers` layers."""
    sizes = {"audio_encoder_conf": SANM, "audio_adaptor_conf": ADAPTOR}
    language = {**QWEN3, "num_hidden_layers": layers, "eos_token_id": STOPS, "device": device}
    tiny_funasr_nano(directory, dtype=torch.bfloat16, language_changes=language, **sizes)


def write_firered(directory: Path, layers: int, device: str) -> None:
    """Writes a FireRedASR-LLM whose language model has `layers` layers, without LoRA."""
    write_language(directory / LANGUAGE_DIRECTORY, **QWEN2, num_hidden_layers=layers, device=device)
    write_statistics(directory / CMVN)
    encoder = {"n_layers_enc": CONFORMER.n_layers, "n_head": CONFORMER.n_head, "d_model": CONFORMER.d_model,
               "kernel_size": CONFORMER.kernel_size, "d_inner": 4 * CONFORMER.d_model}  # fmt: skip
    tensors = drawn_tensors(AudioEmbeddingNetwork(CONFORMER, QWEN2["hidden_size"], 2), 1)
    write_package(directory / WEIGHTS, {**ARGUMENTS, "use_lora": 0}, tensors)
    write_package(directory / ENCODER_WEIGHTS, {**ENCODER_ARGUMENTS, **encoder}, None)


def main() -> None:
    """Writes both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cpu", help="to draw the weights on (default: %(default)s)")
    parser.add_argument("--layers", type=int, default=28, help="of the language models (default: %(default)s)")
    options = parser.parse_args()
    torch.set_default_dtype(torch.bfloat16)
    write_nano(options.folder / "nano", options.layers, options.device)
    write_firered(options.folder / "firered", options.layers, options.device)


if __name__ == "__main__":
    main()
