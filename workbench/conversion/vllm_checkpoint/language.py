"""The language model of a directory for vLLM: its tensors by transformers' names, checked against its configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from workbench.conversion.language_network import OUTPUT, without_equal_output
from workbench.conversion.vllm_checkpoint.tensors import StoredTensor, stored_tensor
from workbench.core.errors import BadInput, message_of
from workbench.families.language.directory import LanguageConfig
from workbench.runtimes.pytorch.checkpoints.weights import check_tensors

Store = Callable[[str, Tensor], StoredTensor]
"""Turns a tensor by transformers' name into a tensor of the file, with its name there."""


def prefixed(prefix: str, regions: Sequence[tuple[int, int]], where: str) -> Store:
    """Returns a function that stores tensors unchanged, with `prefix` before their names; other arguments as in
    `tensors.stored`.
    """
    return lambda name, tensor: stored_tensor(prefix + name, tensor, regions, where)


def language_tensors(
    language: LanguageConfig, tensors: Mapping[str, Tensor], store: Store, where: str
) -> tuple[list[StoredTensor], dict[str, Any]]:
    """Returns (the tensors of a language model, the entries of config.json that differ from the model's own).

    An output matrix that equals the embeddings is left out. If the configuration says that both are equal and they are
    not, the configuration is changed.

    Args:
        tensors: by transformers' names.
        where: the name of their file in messages.

    Raises `BadInput` for missing, extra or misshapen tensors.
    """
    import transformers

    config_name = f"{language.directory.name}/config.json"
    try:
        config: Any = transformers.AutoConfig.from_pretrained(
            str(language.directory), local_files_only=True, trust_remote_code=False
        )
        network_class: Any = transformers.MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
        with torch.device("meta"):
            expected = dict(network_class(config).state_dict())
    except Exception as error:  # its reader raises many kinds
        raise BadInput(f"{config_name} cannot be read: {message_of(error)}") from error
    available: dict[str, Tensor] = dict(tensors)
    changes: dict[str, Any] = {} if config.architectures else {"architectures": [network_class.__name__]}
    if config.tie_word_embeddings:
        available = without_equal_output(available)
        if OUTPUT in available:
            changes["tie_word_embeddings"] = False
        else:
            expected.pop(OUTPUT, None)
    check_tensors(expected, available, where, described_in=config_name)
    return [store(name, available[name]) for name in expected], changes
