"""Fun-ASR-Nano's CTC branch: its definition, and a checkpoint whose branch hears something else in most frames."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tests.support.tiny_funasr_nano import add_ctc_branch, tiny_funasr_nano
from workbench.core.settings import Settings
from workbench.runtimes.pytorch.funasr_nano import open_session

HEADS = 8


def lively_checkpoint(directory: Path, sound: tuple[np.ndarray, int]) -> Path:
    """Writes a checkpoint whose branch hears something else in most frames of a sound; returns the directory."""
    add_ctc_branch(tiny_funasr_nano(directory))
    session = open_session(directory, "nano", Settings())
    logits = torch.from_numpy(np.array(session.trace(sound, "ctc.logits", beam_size=1)["ctc.logits"]))
    session.close()
    weights = torch.load(directory / "model.pt", weights_only=True)
    sharper = 16.0 / logits.std(0).mean()
    weights["ctc.ctc_lo.weight"] *= sharper
    weights["ctc.ctc_lo.bias"] = sharper * (weights["ctc.ctc_lo.bias"] - logits.mean(0))
    torch.save(weights, directory / "model.pt")
    return directory


def branch_by_definition(x: Tensor, tensors: Mapping[str, Tensor]) -> Tensor:
    """Two linear layers, then pre-norm blocks of attention and feed-forward parts, then the output layer."""

    def linear(name: str, x: Tensor) -> Tensor:
        return x @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"]

    def norm(name: str, x: Tensor) -> Tensor:
        centred = x - x.mean(1, keepdim=True)
        spread = (centred.square().mean(1, keepdim=True) + 1e-12).sqrt()
        return centred / spread * tensors[f"{name}.weight"] + tensors[f"{name}.bias"]

    x = linear("ctc_decoder.linear2", linear("ctc_decoder.linear1", x).clamp(min=0))
    for number in range(2):
        block = f"ctc_decoder.blocks.{number}"
        inner = norm(f"{block}.norm1", x)
        q, k, v = (linear(f"{block}.self_attn.linear_{name}", inner).reshape(len(x), HEADS, -1) for name in "qkv")
        weights = torch.einsum("qhd,khd->hqk", q, k).div(q.shape[2] ** 0.5).softmax(2)
        context = torch.einsum("hqk,khd->qhd", weights, v).flatten(1)
        x = x + linear(f"{block}.self_attn.linear_out", context)
        inner = linear(f"{block}.feed_forward.w_1", norm(f"{block}.norm2", x)).clamp(min=0)
        x = x + linear(f"{block}.feed_forward.w_2", inner)
    return linear("ctc.ctc_lo", x)
