"""Answers of the demo SpeechLM in batches, to measure it during and after training.

The sessions have another generator, row by row; a test holds that both give the same streams. Prompts of one batch have
equal lengths, so that nothing is padded. Every stream may only choose its own ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from workbench.training.speechlm.files import LAYOUT
from workbench.training.speechlm.lm import DialogueBatch, SpeechLM


@dataclass(frozen=True)
class Choice:
    """How ids are chosen."""

    temperature: float = 0.0  # 0: the most probable
    top_k: int = 20
    seed: int = 0


class _Sequences:
    """A batch of sequences in progress."""

    def __init__(self, network: SpeechLM, batch: DialogueBatch):
        from transformers import DynamicCache

        self.network, self.cache = network, DynamicCache()
        encoded = None
        if batch.recordings is not None:
            encoded = network.tower(batch.recordings.mels, batch.recordings.frames).last_hidden_state
        self.size = len(batch.inputs)
        self.feed_embeddings(network.embed(torch.from_numpy(batch.inputs), encoded))

    def feed(self, rows: Tensor) -> None:
        """Appends one row [B, 8] to each sequence."""
        self.feed_embeddings(self.network.embed(rows[:, None]))

    def feed_all(self, number: int) -> None:
        """Appends the same marker to each sequence."""
        self.feed(torch.from_numpy(LAYOUT.row(number)).repeat(self.size, 1))

    def feed_embeddings(self, embeddings: Tensor) -> None:
        states: Any = self.network.model(inputs_embeds=embeddings, past_key_values=self.cache, use_cache=True)[0]
        self.states = states[:, -1]  # [B, H]
        self.logits = self.network.main_logits(self.states)


@torch.no_grad()
def generate_text(network: SpeechLM, batch: DialogueBatch, longest: int = 60) -> list[list[int]]:
    """Returns the text ids of each answer, `<|text|>` given."""
    sequences = _Sequences(network, batch)
    sequences.feed_all(LAYOUT.text)
    draw = _Draw(Choice())
    allowed = torch.zeros(LAYOUT.interval(0)[1], dtype=torch.bool)
    allowed[LAYOUT.text_first : LAYOUT.text_end] = True
    answers: list[list[int]] = [[] for _ in range(sequences.size)]
    open_ = set(range(sequences.size))
    for step in range(longest):
        allowed[[LAYOUT.eos, LAYOUT.eot]] = step > 0
        ids = draw(sequences.logits.masked_fill(~allowed, -torch.inf))
        for number in sorted(open_):
            if int(ids[number]) in (LAYOUT.eos, LAYOUT.eot):
                open_.discard(number)
            else:
                answers[number].append(int(ids[number]))
        if not open_:
            break
        rows = torch.zeros(sequences.size, LAYOUT.streams, dtype=torch.long)
        rows[:, 0] = ids
        sequences.feed(rows)
    return answers


@torch.no_grad()
def generate_audio(
    network: SpeechLM, batch: DialogueBatch, longest: int = 400, choice: Choice | None = None
) -> list[NDArray[np.int64]]:
    """Returns the delayed rows [rows, 8] of each answer, `<|audio|>` given."""
    sequences = _Sequences(network, batch)
    sequences.feed_all(LAYOUT.audio)
    draw = _Draw(choice or Choice())
    first, end = LAYOUT.interval(0)
    allowed = torch.zeros(LAYOUT.interval(0)[1], dtype=torch.bool)
    allowed[first:end] = True
    firsts = torch.from_numpy(LAYOUT.pads[1:])
    steps: list[NDArray[np.int64]] = []
    lengths = np.full(sequences.size, -1)
    for step in range(longest):
        allowed[[LAYOUT.eos, LAYOUT.eot]] = step > 0
        main = draw(sequences.logits.masked_fill(~allowed, -torch.inf))
        codec_codes = draw(sequences.network.codec_logits(sequences.states).flatten(0, 1)).view(-1, LAYOUT.streams - 1)
        has_ended = (main == LAYOUT.eos) | (main == LAYOUT.eot)
        lengths[(lengths < 0) & has_ended.numpy()] = step
        if (lengths >= 0).all():
            break
        rows = torch.cat([main[:, None], codec_codes + firsts], dim=1)
        steps.append(rows.numpy())
        sequences.feed(rows)
    all_rows = np.stack(steps, axis=1)
    return [all_rows[number, : length if length >= 0 else len(steps)] for number, length in enumerate(lengths)]


class _Draw:
    """Chooses ids from logits [n, ids]."""

    def __init__(self, choice: Choice):
        self.choice = choice
        self.generator = torch.Generator().manual_seed(choice.seed)

    def __call__(self, logits: Tensor) -> Tensor:
        if self.choice.temperature == 0:
            return logits.argmax(dim=-1)
        values, ids = logits.topk(min(self.choice.top_k, logits.shape[-1]), dim=-1)
        shares = torch.softmax(values / self.choice.temperature, dim=-1)
        return ids.gather(-1, torch.multinomial(shares, 1, generator=self.generator))[:, 0]
