"""Writes language model directories that load in a moment: real configurations and a real tokenizer layout, tiny,
with seeded random weights.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch

from workbench.training.recognisers.language import QWEN2_SPECIAL, QWEN3_SPECIAL, write_tokenizer

VOCABULARY = 512
CONTEXT = 256
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "eos_token_id": 458,  # <|im_end|> of the Qwen2 layout
    "bos_token_id": None,
    "pad_token_id": 456,
}


@cache
def _tokenizer_files(special: tuple[str, ...]) -> dict[str, bytes]:
    """The files of a tokenizer, made once for all tests."""
    folder = Path(mkdtemp())
    write_tokenizer(folder, special)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    return files


def put_tokenizer(directory: Path, kind: str = "qwen3") -> None:
    """A byte-level tokenizer in Qwen's layout."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in _tokenizer_files(QWEN3_SPECIAL if kind == "qwen3" else QWEN2_SPECIAL).items():
        (directory / name).write_bytes(content)


def random_network(kind: str = "qwen3", seed: int = 1, device: str = "cpu", **changes: Any) -> Any:
    """A network of transformers' with weights large enough that its likeliest token changes from step to step.

    A GPU as `device` draws large weights sooner. The returned network is on the processor.
    """
    import transformers

    config = transformers.AutoConfig.for_model(
        kind, **{**SHAPE, **({"head_dim": 8} if kind == "qwen3" else {}), **changes}
    )
    draw = torch.random.fork_rng()
    with draw, torch.device(device):
        torch.manual_seed(seed)
        network = transformers.AutoModelForCausalLM.from_config(config)
        with torch.no_grad():
            for parameter in network.parameters():
                if parameter.ndim > 1:
                    parameter.normal_(0, 2 / parameter.shape[-1] ** 0.5)
    return network.to("cpu").eval()


def tiny_language(directory: Path, kind: str = "qwen3", seed: int = 1, shards: bool = False, **changes: Any) -> Path:
    """A language model's directory; returns it. `changes` are of the configuration."""
    network = random_network(kind, seed, **changes)
    network.save_pretrained(directory, max_shard_size="40KB" if shards else "50GB")
    put_tokenizer(directory, "qwen3" if kind == "qwen3" else "qwen2")
    return directory


def change_json(path: Path, **changes: Any) -> None:
    """Sets entries of a JSON file, or with None takes them out."""
    content = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))
