"""The language half of a directory for vLLM: its tensors by transformers' names, checked against its configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from workbench.conversion.vllm_checkpoint.tensors import StoredTensor, stored
from workbench.core.errors import BadInput
from workbench.families.language import LanguageConfig
from workbench.runtimes.pytorch.weights import check_tensors

EMBEDDINGS, OUTPUT = "model.embed_tokens.weight", "lm_head.weight"
COMPARED = 1024  # rows of two tables compared at a time

Store = Callable[[str, Tensor], StoredTensor]
"""Makes a tensor of transformers' name one of the file, under the name that it has there."""


def prefixed(prefix: str, regions: Sequence[tuple[int, int]], where: str) -> Store:
    """Stores tensors as they are, `prefix` before their names; the other arguments are those of `tensors.stored`."""
    return lambda name, tensor: stored(prefix + name, tensor, regions, where)


def language_tensors(
    language: LanguageConfig, tensors: Mapping[str, Tensor], store: Store, where: str
) -> tuple[list[StoredTensor], dict[str, Any]]:
    """(the tensors of a language model, what config.json has to say otherwise than the model's own).

    An output matrix that is the embeddings again is left out; one that is not, where the configuration says that it
    would be, changes the configuration.

    Args:
        tensors: by transformers' names.
        where: names their file in messages.

    Raises `BadInput` for tensors that are missing, extra or misshapen.
    """
    import transformers

    described = f"{language.directory.name}/config.json"
    try:
        config: Any = transformers.AutoConfig.from_pretrained(
            str(language.directory), local_files_only=True, trust_remote_code=False
        )
        network_class: Any = transformers.MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
        with torch.device("meta"):
            wanted = dict(network_class(config).state_dict())
    except Exception as error:  # whatever its reader stumbles over
        raise BadInput(f"{described} cannot be read: {' '.join(str(error).split())[:200]}") from error
    kept: dict[str, Tensor] = dict(tensors)
    changes: dict[str, Any] = {} if config.architectures else {"architectures": [network_class.__name__]}
    if config.tie_word_embeddings:
        if EMBEDDINGS not in kept and OUTPUT in kept:
            kept[EMBEDDINGS] = kept.pop(OUTPUT)
        if OUTPUT not in kept or _equal(kept[OUTPUT], kept[EMBEDDINGS]):
            kept.pop(OUTPUT, None)
            wanted.pop(OUTPUT, None)
        else:
            changes["tie_word_embeddings"] = False
    check_tensors(wanted, kept, where, described_in=described)
    return [store(name, kept[name]) for name in wanted], changes


def _equal(one: Tensor, other: Tensor) -> bool:
    """Whether output matrix and embeddings hold the same numbers, compared a few rows at a time."""
    if one.shape != other.shape or one.data_ptr() == other.data_ptr():
        return one.shape == other.shape
    steps = range(0, len(one), COMPARED)
    return all(torch.equal(one[at : at + COMPARED], other[at : at + COMPARED].to(one.dtype)) for at in steps)
