"""Reads the weights of a language model in Hugging Face's form: safetensors or torch files, one or several."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from workbench.core.errors import BadInput
from workbench.formats.json_files import read_json_file
from workbench.runtimes.pytorch.checkpoints.memory_mapping import mapped_regions
from workbench.runtimes.pytorch.checkpoints.weights import read_safetensors, read_state_dict

SINGLE_FILES = ("model.safetensors", "pytorch_model.bin")
BODY, HEAD = "model.", "lm_head."  # prefixes of the names of tensors
EMBEDDINGS = "embed_tokens.weight"  # has no prefix in the files of embedding models
POSITIONS = ".rotary_emb.inv_freq"  # the end of the names of tables that the network computes itself
INDEX = ".index.json"  # the suffix of the index file of several parts


def read_language_weights(directory: Path) -> tuple[dict[str, Tensor], list[tuple[int, int]]]:
    """Returns tensors by transformers' names, mapped from their files, and the mapped regions.

    Raises `BadInput` if there are none, a part is missing, or a file is damaged.
    """
    files = _files(directory)
    tensors: dict[str, Tensor] = {}
    regions = []
    for file in files:
        tensors |= read_safetensors(file) if file.suffix == ".safetensors" else read_state_dict(file)
        regions += mapped_regions(file)
    return _usual_names(tensors), regions


def _usual_names(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns the tensors as transformers reads them: without the tables of positions that old files have, and with the
    prefix that files of embedding models lack.
    """
    kept = {name: value for name, value in tensors.items() if not name.endswith(POSITIONS)}
    if EMBEDDINGS not in kept:
        return kept
    return {name if name.startswith(HEAD) else f"{BODY}{name}": value for name, value in kept.items()}


def _files(directory: Path) -> list[Path]:
    for name in SINGLE_FILES:
        if (directory / name).is_file():
            return [directory / name]
        index = directory / f"{name}{INDEX}"
        if not index.is_file():
            continue
        index_name = f"{directory.name}/{index.name}"
        try:
            names = sorted(set(read_json_file(index)["weight_map"].values()))
        except (BadInput, TypeError, KeyError, AttributeError) as error:
            raise BadInput(f"{index_name} is damaged; expected the file of every tensor under weight_map") from error
        files = [directory / Path(str(part)).name for part in names]
        missing = [file.name for file in files if not file.is_file()]
        if missing:
            raise BadInput(f"{index_name} names {missing[0]}, and there is no such file in {directory.name}")
        return files
    raise BadInput(f"language model directory {directory.name} has no weights; expected {' or '.join(SINGLE_FILES)}")
