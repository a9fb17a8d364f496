"""The environment of a demo recipe: training strings, the training loop, and the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import nn

from workbench.training.data.augment import MaskOptions
from workbench.training.data.corpus import CorpusOptions
from workbench.training.data.digits import Take
from workbench.training.data.pool import FeaturePool, generate_pool
from workbench.training.loop import Draw, Loss, TrainOptions, train

GATED_SHARE = 0.4  # of the takes in the strings of the finishing phase
# Of the takes of a digit: cut to their voiced part. A "six" that is cut so far sounds like "eight".
VOICED_SHARE = {6: 0.5, 7: 0.15, 5: 0.15, 4: 0.12, 3: 0.12, 2: 0.12, 8: 0.12, 9: 0.08, 1: 0.08, 0: 0.08}
CONTINUING = CorpusOptions(  # more short strings than at first, and much in which there is nothing to write
    human_share=0.6,
    silent_share=0.04,
    music_share=0.05,
    speech_share=0.14,
    gated_share=0.25,
    voiced_share=VOICED_SHARE,
    warp=0.22,
    lengths=dict(enumerate([24, 18, 14, 13, 12, 10, 9, 4, 3, 3] + 14 * [0.25], start=1)),
)
CUT_MORE = replace(  # "six" is cut more often, and nearer to its vowel
    CONTINUING, voiced_share={**VOICED_SHARE, 6: 0.6}, consonant_seconds=(0.08, 0.05)
)
CONTINUING_MASKS = MaskOptions(stretch=0.1)
HEADS = TrainOptions(updates=80, frames_per_batch=800, learning_rate=1e-2, warm_up=5)


@dataclass(frozen=True)
class DemoOptions:
    """The user's options for the training."""

    strings: int = 24_000  # with speech; recipes use all or a part of them
    workers: int = 2  # processes that make the pool
    threads: int = 2  # of torch
    cache: Path | None = None  # folder of the synthetic voices and the pool; temporary by default
    seed: int = 0
    updates_scale: float = 1.0  # of every phase's number of updates: below 1 trains a worse model sooner
    start: Path | None = None  # a checkpoint of the same recipe to train further; None trains from the beginning
    # Folders for a continued training: recordings of speech without English digits, and digits of more speakers.
    other_speech: Path | None = None
    more_speakers: Path | None = None


@dataclass(frozen=True)
class ContinuingRound:
    """How a training continues: with which strings, and with which updates for models without a language model."""

    corpus: CorpusOptions
    strings: int  # at most
    training: TrainOptions


# One after another. The last one, with fewer digits and small steps, teaches silence once more.
CONTINUING_ROUNDS = (
    ContinuingRound(CONTINUING, 8_000, TrainOptions(updates=2400, learning_rate=8e-4, warm_up=100)),
    ContinuingRound(CUT_MORE, 8_000, TrainOptions(updates=1800, learning_rate=7e-4, warm_up=100)),
    ContinuingRound(
        replace(CUT_MORE, silent_share=0.05, music_share=0.09, speech_share=0.30),
        4_000,
        TrainOptions(updates=600, learning_rate=4e-4, warm_up=50),
    ),
)

# With digits of more speakers, most strings are of people.
_OF_PEOPLE = replace(CUT_MORE, human_share=0.75)
MORE_SPEAKERS_ROUNDS = (
    ContinuingRound(_OF_PEOPLE, 12_000, TrainOptions(updates=2400, learning_rate=8e-4, warm_up=100)),
    ContinuingRound(
        replace(_OF_PEOPLE, silent_share=0.05, music_share=0.09, speech_share=0.30),
        4_000,
        TrainOptions(updates=600, learning_rate=4e-4, warm_up=50),
    ),
)


@dataclass(frozen=True)
class Phase:
    """One phase of the training."""

    name: str
    training: TrainOptions
    strings: int | None  # with speech; None for a phase without speech


@dataclass
class TrainingRun:
    """The training of one demo; counts the updates of its recipe."""

    options: DemoOptions
    takes: Sequence[Take]
    cache: Path
    log: Callable[[str], None]
    earlier_rounds: int = 0  # rounds of the same kind in which the training of this checkpoint continued before
    phases: list[Phase] = field(default_factory=list)  # the phases that are finished

    @property
    def continuing(self) -> ContinuingRound:
        """The round in which a checkpoint's training continues: the next one, or the last one again."""
        rounds = CONTINUING_ROUNDS if self.options.more_speakers is None else MORE_SPEAKERS_ROUNDS
        return rounds[min(self.earlier_rounds, len(rounds) - 1)]

    def pool(
        self, share: float = 1.0, finishing: bool = False, window: str = "hamming", front_end: str = "kaldi"
    ) -> FeaturePool:
        """Returns a share of the training strings; with `finishing`, of words that are cut more tightly.

        Recordings of single words are often cut by level, which removes weak consonants.
        """
        corpus = CorpusOptions(window=window, gated_share=GATED_SHARE if finishing else 0.0, front_end=front_end)
        return self._generate(corpus, round(share * self.options.strings), self.options.seed + int(finishing))

    def continuing_pool(self, window: str = "hamming") -> FeaturePool:
        """Returns the strings of the round; at least a fifth of them have no digits.

        `takes` must hold some without digits.
        """
        strings = min(self.options.strings, self.continuing.strings)
        return self._generate(replace(self.continuing.corpus, window=window), strings, self.options.seed + 2)

    def _generate(self, corpus: CorpusOptions, strings: int, seed: int) -> FeaturePool:
        def progress(share: float) -> None:
            self.log(f"making training strings: {share:.0%}")

        return generate_pool(self.takes, self.cache, strings, seed, corpus, self.options.workers, progress)

    def train_heads(self, loss: Any, heads: nn.Module, draw: Draw) -> None:
        """Trains only the heads that a loss needs for the training; no checkpoint keeps them."""
        learnt = [parameter for parameter in loss.parameters() if parameter.requires_grad]
        loss.requires_grad_(False)
        heads.requires_grad_(True)
        self.train("auxiliary heads, used only in training", loss, draw, HEADS)
        for parameter in learnt:
            parameter.requires_grad_(True)

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
