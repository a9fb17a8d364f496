"""The training of recognisers without a language model: a main phase, then strings that are cut tightly.

A trained checkpoint can be trained further, with strings some of which have no digits.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from workbench.audio.cmvn import read_am_mvn
from workbench.training.data.pool import cmvn_statistics
from workbench.training.loop import Loss, TrainOptions, epochs
from workbench.training.start import load_start
from workbench.training.training_run import CONTINUING_MASKS, TrainingRun

MAIN = TrainOptions()
FINISHING = TrainOptions(updates=2000, learning_rate=6e-4, warm_up=100)


def train_recogniser(
    run: TrainingRun,
    make_network: Callable[[float], nn.Module],
    make_loss: Callable[[Any], Loss],
    finishing_rounds: int,
) -> tuple[nn.Module, tuple[np.ndarray, np.ndarray]]:
    """Trains the network; returns it and its CMVN (shift, scale)."""
    pool = run.pool()
    cmvn = cmvn_statistics(pool)
    network = make_network(MAIN.dropout)
    draw = epochs(pool, cmvn, MAIN.frames_per_batch)
    network = run.train("training", make_loss(network), draw, MAIN, len(pool))
    pool = run.pool(0.5, finishing=True)
    draw = epochs(pool, cmvn, FINISHING.frames_per_batch)
    for number in range(finishing_rounds):
        phase = f"fine-tuning on tightly cut strings, round {number + 1} of {finishing_rounds}"
        training = TrainOptions(**{**vars(FINISHING), "seed": number})
        network = run.train(phase, make_loss(network), draw, training, len(pool))
    return network, cmvn


def train_recogniser_further(
    run: TrainingRun,
    directory: Path,
    network: nn.Module,
    make_loss: Callable[[Any], Any],
    heads: Callable[[Any], nn.Module | None] = lambda loss: None,
) -> tuple[nn.Module, tuple[np.ndarray, np.ndarray]]:
    """Trains the network further from the checkpoint in the directory; returns it and its CMVN, which stays as it was.

    `heads` returns the part of a loss that no checkpoint keeps and that is trained first.
    """
    load_start(network, directory / "model.pt")
    stored = read_am_mvn(directory / "am.mvn")
    cmvn = (stored.shift, stored.scale)
    pool = run.continuing_pool()
    training = run.continuing.training
    draw = epochs(pool, cmvn, training.frames_per_batch, CONTINUING_MASKS)
    loss = make_loss(network)
    head = heads(loss)
    if head is not None:
        run.train_heads(loss, head, draw)
    return run.train("continued, with recordings without digits", loss, draw, training, len(pool)), cmvn
