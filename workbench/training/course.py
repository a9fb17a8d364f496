"""The environment of a demo recipe: training strings, the training loop, and the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from workbench.training.corpus import CorpusOptions
from workbench.training.digits import Take
from workbench.training.loop import Draw, Loss, TrainOptions, train
from workbench.training.pool import FeaturePool, generate_pool

GATED_SHARE = 0.4  # of the takes in the strings of the finishing phase


@dataclass(frozen=True)
class DemoOptions:
    """The user's options for the training."""

    strings: int = 24_000  # with speech; recipes use all or a part of them
    workers: int = 2  # processes that make the pool
    threads: int = 2  # of torch
    cache: Path | None = None  # folder of the synthetic voices and the pool; temporary by default
    seed: int = 0
    updates_scale: float = 1.0  # of every phase's number of updates: below 1 trains a worse model sooner


@dataclass(frozen=True)
class Phase:
    """One phase of the training."""

    name: str
    training: TrainOptions
    strings: int | None  # with speech; None for a phase without speech


@dataclass
class Course:
    """The training of one demo; counts the updates of its recipe."""

    options: DemoOptions
    takes: Sequence[Take]
    cache: Path
    log: Callable[[str], None]
    phases: list[Phase] = field(default_factory=list)  # the phases that are finished

    def pool(
        self, share: float = 1.0, finishing: bool = False, window: str = "hamming", front_end: str = "kaldi"
    ) -> FeaturePool:
        """Returns a share of the training strings; with `finishing`, of words that are cut more tightly.

        Recordings of single words are often cut by level, which removes weak consonants.
        """
        corpus = CorpusOptions(window=window, gated_share=GATED_SHARE if finishing else 0.0, front_end=front_end)
        strings = round(share * self.options.strings)
        seed = self.options.seed + int(finishing)

        def progress(share: float) -> None:
            self.log(f"making training strings: {share:.0%}")

        return generate_pool(self.takes, self.cache, strings, seed, corpus, self.options.workers, progress)

    def train(self, phase: str, loss: Loss, draw: Draw, training: TrainOptions, strings: int | None = None) -> Any:
        """Minimises the loss; returns its network with averaged weights.

        `phase` names what is learnt, `strings` is the number of recordings.
        """
        updates = max(1, round(training.updates * self.options.updates_scale))
        training = replace(
            training, updates=updates, seed=training.seed + self.options.seed, warm_up=min(training.warm_up, updates)
        )
        self.log(f"{phase}: {updates} updates of {sum(p.numel() for p in loss.parameters()):,} parameters")
        self.phases.append(Phase(phase, training, strings))
        return train(loss, draw, training, self.log)
