"""The training loop of the demo models: optimiser, schedule, averaged weights. It knows no family's loss."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from workbench.training.data.augment import MaskOptions
from workbench.training.data.pool import Batch, FeaturePool

Draw = Callable[[np.random.Generator], Iterator[Any]]
"""Yields an endless stream of batches, drawn with a random generator."""


class Loss(Protocol):
    """A family's loss around its network; its own parameters (helper heads) are trained too."""

    @property
    def network(self) -> nn.Module:
        """The network, which stays after training."""
        ...

    def parameters(self) -> Iterator[nn.Parameter]:
        """Returns all trained parameters."""
        ...

    def __call__(self, batch: Any, rng: np.random.Generator) -> dict[str, Tensor]:
        """Returns the weighted parts of a batch's loss by name; their sum is minimised."""
        ...


@dataclass(frozen=True)
class TrainOptions:
    """The duration and speed of the training."""

    updates: int = 6000
    frames_per_batch: int = 1200  # LFR frames, padding included
    learning_rate: float = 2e-3
    warm_up: int = 300
    weight_decay: float = 0.01
    clip: float = 2.0  # largest norm of the gradient
    averaging: float = 0.998  # decay per update of the averaged weights
    dropout: float = 0.1
    seed: int = 0
    log_every: int = 100


def train(loss: Loss, draw: Draw, options: TrainOptions, log: Callable[[str], None]) -> nn.Module:
    """Minimises the loss over the batches; returns its network with exponentially averaged weights, in eval mode."""
    rng = np.random.default_rng(options.seed)
    network, parameters = loss.network, list(loss.parameters())
    decayed = [p for p in parameters if p.dim() > 1]
    undecayed = [p for p in parameters if p.dim() <= 1]
    optimiser = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": options.weight_decay}, {"params": undecayed, "weight_decay": 0.0}],
        lr=options.learning_rate,
        betas=(0.9, 0.98),
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda update: _rate(update, options))
    average = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(options.averaging))
    network.train()
    start_time, recent = time.monotonic(), []
    for update, batch in zip(range(1, options.updates + 1), draw(rng), strict=False):
        parts = loss(batch, rng)
        total = torch.stack(list(parts.values())).sum()
        optimiser.zero_grad(set_to_none=True)
        total.backward()
        nn.utils.clip_grad_norm_(parameters, options.clip)
        optimiser.step()
        schedule.step()
        average.update_parameters(network)
        recent.append({name: float(value.detach()) for name, value in parts.items()})
        if update % options.log_every == 0 or update == options.updates:
            means = ", ".join(f"{name} {np.mean([part[name] for part in recent]):.4f}" for name in recent[0])
            log(f"update {update} of {options.updates}: {means} ({time.monotonic() - start_time:.0f} s)")
            recent.clear()
    return average.module.eval()


def _rate(update: int, options: TrainOptions) -> float:
    """Returns the learning rate's factor: linear warm-up, then half a cosine down to a hundredth."""
    if update < options.warm_up:
        return (update + 1) / options.warm_up
    share = (update - options.warm_up) / max(1, options.updates - options.warm_up)
    return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(share, 1.0)))


def epochs(
    pool: FeaturePool, cmvn: tuple[np.ndarray, np.ndarray], frames: int, masks: MaskOptions | None = None
) -> Draw:
    """Yields masked batches of at most `frames` LFR frames after CMVN, epoch after epoch (see `FeaturePool.batch`)."""

    def draw(rng: np.random.Generator) -> Iterator[Batch]:
        while True:
            for numbers in pool.batches(frames, rng):
                yield pool.batch(numbers, *cmvn, rng, masks)

    return draw
