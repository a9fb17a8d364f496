"""Opens FireRedASR's `.pth.tar` files: the hyper-parameters of a training and its tensors by name.

A file is a pickle of `{"args": argparse.Namespace, "model_state_dict": ...}`. Only tensors and plain values in such a
namespace are unpickled. This file knows neither the meaning of the arguments nor the tensors of a network.
"""

from __future__ import annotations

import argparse
import math
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import torch
from torch import Tensor

from workbench.core.errors import BadInput
from workbench.core.phrases import name_in_folder
from workbench.formats.weight_files import check_downloaded
from workbench.runtimes.pytorch.checkpoints.weights import check_layouts, plain_name


@dataclass(frozen=True, eq=False)
class Package:
    """The contents of one file."""

    path: Path
    arguments: Mapping[str, Any]
    tensors: Mapping[str, Tensor]  # empty if the file has only hyper-parameters

    @property
    def where(self) -> str:
        """The file's name in messages."""
        return name_in_folder(self.path)

    @property
    def plain_arguments(self) -> dict[str, Any]:
        """The arguments that can be written as JSON."""
        return {name: value for name, value in self.arguments.items() if _is_plain(value)}


def read_package(path: Path) -> Package:
    """Reads the arguments and tensors of a file; memory-maps them if the format allows.

    Raises `BadInput` if the file is truncated, is not a torch file, contains code or other objects, or has another
    structure.
    """
    where = name_in_folder(path)
    check_downloaded(path, where)
    expected = "expected args and model_state_dict saved with torch.save"
    try:
        with torch.serialization.safe_globals([argparse.Namespace]):
            loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=is_zipfile(path))
    except pickle.UnpicklingError as error:
        if "Unsupported operand" not in str(error):  # that message means a byte that starts no pickle instruction
            raise BadInput(
                f"{where} holds objects other than tensors and plain arguments, which are not loaded; {expected}"
            ) from error
        raise BadInput(f"{where} is damaged or not a torch file; {expected}") from error
    except Exception as error:
        # On a damaged file, torch's reader fails in many ways: assertions, errors of zip and struct.
        size = path.stat().st_size if path.is_file() else 0
        raise BadInput(f"{where} ({size} bytes) is truncated, damaged or not a torch file; {expected}") from error
    if not isinstance(loaded, Mapping) or "args" not in loaded:
        raise BadInput(f"{where} holds no args; {expected}")
    return Package(path, _arguments(loaded["args"], where), _tensors(loaded.get("model_state_dict", {}), where))


def _arguments(value: object, where: str) -> dict[str, Any]:
    values = vars(value) if isinstance(value, argparse.Namespace) else value
    if not isinstance(values, Mapping):
        raise BadInput(f"args in {where} is a {type(value).__name__}; expected an argparse.Namespace")
    return {str(name): each for name, each in values.items()}


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, (str, bool, int)) or (isinstance(value, float) and math.isfinite(value))


def _tensors(value: object, where: str) -> dict[str, Tensor]:
    if not isinstance(value, Mapping):
        raise BadInput(f"model_state_dict in {where} is a {type(value).__name__}; expected tensors by name")
    for name, each in value.items():
        if not isinstance(each, Tensor):
            kind = type(each).__name__
            raise BadInput(f"model_state_dict in {where} holds a {kind} under {name!r:.80}; expected tensors by name")
    check_layouts(value, where)
    return {plain_name(str(name)): each for name, each in value.items()}
