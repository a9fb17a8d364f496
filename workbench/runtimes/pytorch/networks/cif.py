"""Continuous integrate-and-fire (CIF): counts Paraformer's tokens and locates them in time.

Dong and Xu, "CIF: Continuous Integrate-and-Fire for End-to-End Speech Recognition", ICASSP 2020; the predictors V2 and
V3 of FunASR (Gao et al., "Paraformer", Interspeech 2022; V3 adds a finer head for timestamps). Axes: B batch, T encoder
frames, N tokens, D width. This implementation is batched and differentiable, as training needs;
`workbench.decoding.cif` has the same on numpy arrays. This file knows no vocabulary.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from workbench.families.sanm.paraformer import CifConfig, token_count
from workbench.runtimes.pytorch.networks.sanm import length_mask
from workbench.runtimes.pytorch.tap import Tap, no_tap


class CifOutput(NamedTuple):
    """The predictor's result."""

    embeddings: Tensor  # [B, N, D]: one acoustic embedding per token
    counts: Tensor  # [B]: tokens per row, integers
    alphas: Tensor  # [B, T + 1]: weight of each frame; the last is the tail's


def integrate(alphas: Tensor) -> Tensor:
    """Returns the running sum of the weights [B, T] in float64, as float32 is too coarse for long recordings."""
    return alphas.cumsum(dim=1, dtype=torch.float64)


def fire(hidden: Tensor, alphas: Tensor, tokens: int) -> Tensor:
    """Returns acoustic embeddings [B, tokens, D]: each is the sum of frames, weighted by their part in its unit of the
    sum.

    A frame whose weight crosses a whole number is shared between two tokens.
    """
    after = integrate(alphas)
    before = F.pad(after, (1, 0))[:, :-1]
    number = torch.arange(tokens, dtype=after.dtype, device=after.device)[None, :, None]
    share = torch.minimum(after[:, None, :], number + 1) - torch.maximum(before[:, None, :], number)
    return torch.bmm(share.clamp(min=0).to(hidden.dtype), hidden)


class CifPredictor(nn.Module):
    """Predicts for each encoder frame how much of a token it completes."""

    def __init__(self, config: CifConfig):
        super().__init__()
        self.config = config
        width = config.width
        self.padding = (config.left_order, config.right_order)
        self.cif_conv1d = nn.Conv1d(width, width, config.left_order + config.right_order + 1)
        self.cif_output = nn.Linear(width, 1)
        if config.upsample:
            self.upsample_cnn = nn.ConvTranspose1d(width, width, config.upsample, config.upsample)
            self.blstm = nn.LSTM(width, width, 1, batch_first=True, bidirectional=True) if config.blstm else None
            self.cif_output2 = nn.Linear(2 * width if config.blstm else width, 1)

    def _local(self, encoded: Tensor, residual: bool = False) -> Tensor:
        local = self.cif_conv1d(F.pad(encoded.transpose(1, 2), self.padding)).transpose(1, 2)
        return F.relu(local + encoded if residual else local)

    def alphas(self, encoded: Tensor, lengths: Tensor | None = None, residual: bool = False) -> Tensor:
        """Returns the weight of each frame [B, T], zero in the padding; `residual` as in `forward`."""
        weights = torch.sigmoid(self.cif_output(self._local(encoded, residual))).squeeze(-1)
        weights = F.relu(weights * self.config.smooth_factor - self.config.noise_threshold)
        return weights if lengths is None else weights * length_mask(lengths, weights.shape[1])

    def forward(
        self, encoded: Tensor, lengths: Tensor | None = None, tap: Tap = no_tap, residual: bool = False
    ) -> CifOutput:
        """Counts and embeds the tokens of encoded frames [B, T, D].

        A tail weight is added after each row's last frame, so that a token that begins at the end still fires.

        Args:
            residual: add the encoded frames to the convolution before the ReLU, as FunASR's C++ runtime does.
        """
        if lengths is not None:  # the convolution and the tail look at the frames behind the last one, which are zeros
            encoded = encoded.masked_fill(~length_mask(lengths, encoded.shape[1])[..., None], 0.0)
        alphas = self.alphas(encoded, lengths, residual)
        batch, frames = alphas.shape
        ends = torch.full((batch,), frames, device=alphas.device) if lengths is None else lengths
        tail = torch.zeros_like(alphas[:, :1])
        alphas = torch.cat([alphas, tail], dim=1)
        alphas[torch.arange(batch, device=alphas.device), ends] += self.config.tail_threshold
        alphas = tap("predictor.alphas", alphas)
        totals = alphas.sum(dim=1)
        tokens = token_count(totals.detach().max().item())
        padded = torch.cat([encoded, torch.zeros_like(encoded[:, :1])], dim=1)
        embeddings = fire(padded, alphas, tokens)
        return CifOutput(tap("predictor.embeddings", embeddings), totals.floor().long(), alphas)

    def fine_alphas(self, encoded: Tensor, tokens: int) -> Tensor:
        """Returns weights at `config.upsample` times the frame rate [T * upsample], scaled to sum to `tokens`; one row
        only.

        Only a V3 predictor has this head.
        """
        source = self._local(encoded) if self.config.upsample_after_conv else encoded
        fine = self.upsample_cnn(source.transpose(1, 2)).transpose(1, 2)
        if self.blstm is not None:
            fine = self.blstm(fine)[0]
        weights = torch.sigmoid(self.cif_output2(fine)).squeeze(-1)
        weights = F.relu(weights * self.config.fine_smooth_factor - self.config.fine_noise_threshold)[0]
        return weights * (tokens / weights.sum())
