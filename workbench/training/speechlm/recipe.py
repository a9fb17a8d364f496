"""The demo SpeechLM: it says strings of digits in four voices, counts, and understands spoken strings.

The codec is computed (`codec`). The audio tower learns alone (`tower`). Then the language model learns (`lm`), and the
tower stays as it is: when both learned together, the tower understood unseen speakers worse. `tasks` has the tasks of
the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from workbench.training.data.digits import WORDS, Take
from workbench.training.data.pool import JoinedPools, Strings
from workbench.training.loop import TrainOptions
from workbench.training.model_card import CardFacts, Measured
from workbench.training.speechlm.align import align_adaptor
from workbench.training.speechlm.card import measure, write_speechlm_card
from workbench.training.speechlm.codec import FRAME, CodecOptions, fit_codec
from workbench.training.speechlm.files import (
    make_tokenizer,
    write_codec,
    write_configuration,
    write_tokenizer,
    write_weights,
)
from workbench.training.speechlm.lm import LANGUAGE, DialogueOptions, SpeechLM, SpeechLMLoss, dialogues, positions_in
from workbench.training.speechlm.rows import RowWriter
from workbench.training.speechlm.tower import TOWER, TowerLoss, make_tower, recordings
from workbench.training.speechlm.voices import MARGIN, Speaker, general_clips, voice_clips
from workbench.training.training_run import TrainingRun

FRONT_END = "whisper"
POOL = 2 / 3  # of the training strings
FINISHING_POOL = 1 / 3
HEARING = TrainOptions(updates=5000, learning_rate=1.5e-3, frames_per_batch=800, warm_up=200)
HEARING_TIGHT = replace(HEARING, updates=1500, learning_rate=7e-4)
DROPOUT = 0.05  # of the language model and of the tower that it hears through


@dataclass(frozen=True)
class LanguagePhase:
    """A phase of the language model's training."""

    name: str
    training: TrainOptions
    dialogues: DialogueOptions
    cut: bool = False  # the digits of answers with speech are cut to a few frames
    align: bool = False  # the adaptor begins anew, aligned with the words of the digits


# What to say next is hard to learn, and a row of speech in 27 decides it. So the order of the digits is learnt first
# where it is dense: in text, then in speech of a few frames for each digit.
LANGUAGE_PHASES = (
    LanguagePhase(
        "order, in text",
        TrainOptions(updates=1500, learning_rate=3e-3, warm_up=150),
        DialogueOptions(recording_share=0.0, text_share=0.95),
        cut=True,
    ),
    LanguagePhase(
        "order, in speech cut short",
        TrainOptions(updates=1000, learning_rate=2.5e-3, warm_up=150),
        DialogueOptions(recording_share=0.35, text_share=0.15),
        cut=True,
    ),
    LanguagePhase(
        "transcribing",
        TrainOptions(updates=700, learning_rate=2e-3, warm_up=150),
        DialogueOptions(recording_share=0.85, text_share=0.9),
        cut=True,
        align=True,
    ),
    LanguagePhase(
        "all together",
        TrainOptions(updates=4500, learning_rate=1.5e-3, warm_up=150),
        DialogueOptions(recording_share=0.5, text_share=0.35),
    ),
    LanguagePhase(
        "all together, more of it writing",
        TrainOptions(updates=4500, learning_rate=1.2e-3, warm_up=150, seed=1),
        DialogueOptions(recording_share=0.6, text_share=0.6),
    ),
    LanguagePhase(
        "all together, more of it repeating",
        TrainOptions(updates=4500, learning_rate=1.2e-3, warm_up=150, seed=2),
        DialogueOptions(recording_share=0.65, text_share=0.35),
    ),
)
HUMAN_SHARE, SYNTHETIC_SHARE = 1 / 3, 1 / 4  # of the takes of one digit: the codec's fit, beside the demo's voices
ABOUT = """
The codec's weights are computed, not trained: principal components of the frames, eight k-means codebooks, and least
squares, written into Xcodec's convolutions. Its semantic branch has random weights and no effect. The audio tower is
trained first, to find which digit is where. The language model learns the order of digits first, where it is dense: in
text, and in speech cut short. Its adaptor is set to the least-squares map from the tower's output to the embeddings of
the digits' words. Then it learns all that it does. One take of each digit and voice is all that the model ever says.
"""


@dataclass(frozen=True)
class TrainedModel:
    """The result of the training."""

    codec: Any
    network: SpeechLM


def train(run: TrainingRun) -> TrainedModel:
    """Fits the codec and trains the network."""
    run.log("computing the codec")
    clips = voice_clips(run.takes)
    codec = fit_codec([np.pad(clip, MARGIN * FRAME) for clip in clips.values()], _general(run.takes), CodecOptions())
    speaker = Speaker.of(codec, clips)

    pool = run.pool(POOL, front_end=FRONT_END)
    tight = run.pool(FINISHING_POOL, finishing=True, front_end=FRONT_END)
    tower_loss = TowerLoss(make_tower(HEARING.dropout))
    for name, strings, training in (("audio tower", pool, HEARING), ("audio tower, tight cuts", tight, HEARING_TIGHT)):
        draw = recordings(strings, training.frames_per_batch)
        tower_loss.network = run.train(name, tower_loss, draw, training, len(strings))

    network = SpeechLM(DROPOUT)
    network.tower.load_state_dict(tower_loss.network.state_dict())
    tower_loss.network, pools = network.tower, JoinedPools([pool, tight])
    speakers = {False: speaker, True: speaker.shortened()}
    for phase in LANGUAGE_PHASES:
        if phase.align:
            align_adaptor(network, tower_loss, tight, digit_words())
        draw = dialogues(pools, row_writer(pools, speakers[phase.cut]), phase.dialogues)
        network = run.train(phase.name, SpeechLMLoss(network), draw, phase.training, len(pools))
        tower_loss.network = network.tower
    return TrainedModel(codec, network)


def _general(takes: Sequence[Take]) -> list[Any]:
    single = [take for take in takes if len(take.digits) == 1]
    human = general_clips([take for take in single if take.human], HUMAN_SHARE)
    return [*human, *general_clips([take for take in single if not take.human], SYNTHETIC_SHARE, seed=1)]


def digit_words() -> list[int]:
    """Returns the id of each digit's word inside a text."""
    tokenizer = make_tokenizer()
    return [tokenizer.encode(f" {word}", add_special_tokens=False).ids[0] for word in WORDS]


def row_writer(pool: Strings, speaker: Speaker) -> RowWriter:
    """Returns a writer of dialogues about the pool's recordings."""
    tokenizer, positions = make_tokenizer(), positions_in(pool)
    return RowWriter(
        lambda text: list(tokenizer.encode(text, add_special_tokens=False).ids),
        speaker,
        lambda recording: int(positions[recording.number]),
    )


def write(trained: TrainedModel, directory: Path) -> int:
    """Writes the checkpoint; returns its number of parameters, the codec's with its codebooks."""
    write_tokenizer(directory)
    write_configuration(directory, LANGUAGE, TOWER)
    return write_weights(directory, trained.network.state_dict()) + write_codec(directory, trained.codec)


def finish(directory: Path, held_out: Sequence[Take], facts: CardFacts) -> list[Measured]:
    """Measures the checkpoint and writes its model card; returns the word error rates in it."""
    measured = measure(directory, held_out)
    write_speechlm_card(directory / "README.md", facts, measured)
    return measured
