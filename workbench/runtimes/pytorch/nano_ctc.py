"""Fun-ASR-Nano's CTC branch in PyTorch, with the published parameter names.

Axes: B batch, T frames, D width of the encoder, V tokens of the branch.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from workbench.core.errors import BadInput
from workbench.core.phrases import name_in_folder
from workbench.families.speech_llm.funasr_nano import CTC_PREFIXES, CtcBranch
from workbench.runtimes.pytorch.checkpoints.finalise_weights import finalise_weights
from workbench.runtimes.pytorch.checkpoints.weights import build, load_into
from workbench.runtimes.pytorch.networks.nano_encoder import Adaptor
from workbench.runtimes.pytorch.numerics.products import Arithmetic
from workbench.runtimes.pytorch.sensevoice import CtcHead
from workbench.runtimes.pytorch.tap import Tap, no_tap


class CtcBranchNetwork(nn.Module):
    """Transformer blocks over the encoder's output, then a linear layer to the tokens."""

    def __init__(self, branch: CtcBranch):
        super().__init__()
        self.ctc_decoder = Adaptor(branch.decoder, "ctc")
        self.ctc = CtcHead(branch.decoder.llm_dim, branch.count)

    def forward(self, encoded: Tensor, tap: Tap = no_tap) -> Tensor:
        """Maps [B, T, D] to logits [B, ceil(T / downsample rate), V]."""
        logits: Tensor = self.ctc(self.ctc_decoder(encoded, tap=tap))
        return logits


def branch_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns the checkpoint's tensors that belong to the CTC branch, by name."""
    return {name: value for name, value in tensors.items() if name.startswith(CTC_PREFIXES)}


def open_ctc_branch(
    branch: CtcBranch | str, tensors: Mapping[str, Tensor], weights: Path, device: torch.device, arithmetic: Arithmetic
) -> CtcBranchNetwork | str:
    """Returns the branch with the weights in a checkpoint's file, or why there is none that can be used.

    The rest of the model works without it, as in the original.
    """
    if isinstance(branch, str):
        return branch
    network = build(CtcBranchNetwork, branch)
    try:
        where = name_in_folder(weights)
        load_into(network, branch_tensors(tensors), where, mapped_from=weights, dtype=arithmetic.values)
    except BadInput as error:
        return str(error)
    finalise_weights(network, device, weights, arithmetic=arithmetic)
    return network
