"""The training of recognisers without a language model: a main phase, then strings that are cut tightly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import nn

from workbench.training.course import Course
from workbench.training.loop import Loss, TrainOptions, epochs
from workbench.training.pool import cmvn_statistics

MAIN = TrainOptions()
FINISHING = TrainOptions(updates=2000, learning_rate=6e-4, warm_up=100)


def teach_recogniser(
    course: Course,
    make_network: Callable[[float], nn.Module],
    make_loss: Callable[[Any], Loss],
    finishing_rounds: int,
) -> tuple[nn.Module, tuple[np.ndarray, np.ndarray]]:
    """Trains the network; returns it and its CMVN (shift, scale)."""
    pool = course.pool()
    cmvn = cmvn_statistics(pool)
    network = make_network(MAIN.dropout)
    draw = epochs(pool, cmvn, MAIN.frames_per_batch)
    network = course.train("training", make_loss(network), draw, MAIN, len(pool))
    pool = course.pool(0.5, finishing=True)
    draw = epochs(pool, cmvn, FINISHING.frames_per_batch)
    for number in range(finishing_rounds):
        phase = f"finishing on strings cut more tightly, round {number + 1} of {finishing_rounds}"
        training = TrainOptions(**{**vars(FINISHING), "seed": number})
        network = course.train(phase, make_loss(network), draw, training, len(pool))
    return network, cmvn
