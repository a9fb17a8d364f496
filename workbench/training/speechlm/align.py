"""The first weights of the demo SpeechLM's adaptor: heard digits become nearly the embeddings of their words.

A language model that can copy words from a text then learns quickly to copy words from a recording.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from workbench.training.data.pool import FeaturePool
from workbench.training.speechlm.lm import SpeechLM
from workbench.training.speechlm.tower import TowerLoss, read_recordings

RECORDINGS = 900
BATCH_SIZE = 20  # recordings at a time
WEIGHT = 7.0  # of a position with a digit; there are seven times as many without
RIDGE = 0.1


@torch.no_grad()
def align_adaptor(network: SpeechLM, tower_loss: TowerLoss, pool: FeaturePool, words: Sequence[int]) -> None:
    """Sets the adaptor to a least-squares map from the tower's output to embeddings of words.

    The target is the embedding of the word at the first position where the tower's CTC head hears a digit, and zero
    elsewhere.

    Args:
        words: the id of each digit's word.
    """
    network.eval()
    embeddings = network.model.embed_tokens.weight[list(words)]
    rng = np.random.default_rng(0)
    outputs, targets = [], []
    for first in range(0, min(RECORDINGS, len(pool)), BATCH_SIZE):
        batch = read_recordings(pool, range(first, min(first + BATCH_SIZE, len(pool))), rng)
        encoded = network.tower(batch.mels, batch.frames).last_hidden_state
        outputs.append(encoded)
        targets.append(peak_embeddings(tower_loss.order(encoded).argmax(dim=-1), embeddings))
    weight, bias = weighted_least_squares(torch.cat(outputs), torch.cat(targets))
    adaptor = network.adaptor["continuous_audio"]
    adaptor.load_state_dict({"weight": weight, "bias": bias})


def peak_embeddings(ids: Tensor, embeddings: Tensor) -> Tensor:
    """Returns the target of each position [n, H] for the ids that the CTC head hears [n]: 0 is the blank, 1 is zero."""
    before = torch.cat([ids.new_zeros(1), ids[:-1]])
    begins = (ids > 0) & (ids != before)
    targets = embeddings.new_zeros(len(ids), embeddings.shape[1])
    targets[begins] = embeddings[ids[begins] - 1]
    return targets


def weighted_least_squares(inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Returns weight [H, width] and bias [H] of the map; positions with a target other than zero count more."""
    rows = torch.cat([inputs, inputs.new_ones(len(inputs), 1)], dim=1).double()
    weights = torch.where(targets.abs().sum(dim=1) > 0, WEIGHT, 1.0)[:, None].double()
    normal = rows.T @ (rows * weights) + RIDGE * torch.eye(rows.shape[1], dtype=torch.float64)
    solution = torch.linalg.solve(normal, (rows * weights).T @ targets.double()).float()
    return solution[:-1].T.contiguous(), solution[-1].clone()
