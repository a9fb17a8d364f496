"""Loads the weights of a checkpoint into a network that is to be trained further."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn

from workbench.core.phrases import name_in_folder
from workbench.runtimes.pytorch.checkpoints.weights import check_tensors, read_state_dict


def load_start(network: nn.Module, path: Path) -> None:
    """Copies a file's tensors into the network, in float32; raises `BadInput` if they are not those of the network."""
    copy_tensors(network, read_state_dict(path), name_in_folder(path))


def copy_tensors(network: nn.Module, tensors: Mapping[str, Tensor], where: str) -> None:
    """Copies tensors into the network, in float32; raises `BadInput` that calls their file `where` if one is missing,
    unknown or of another shape.
    """
    check_tensors(network.state_dict(), tensors, where, described_in="this demo's recipe")
    network.load_state_dict({name: value.float().clone() for name, value in tensors.items()})
