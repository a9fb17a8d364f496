"""Common training code of the demos with a language model: prompts with speech, and the loss on answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from workbench.embeddings.merge import merge_speech, plan_merge
from workbench.families.language.directory import TURN_END, LanguageTokenizer
from workbench.training.data.digits import words_of
from workbench.training.recognisers.language import chat_prompt, draw_task

IGNORED = -100  # the label of a position without loss
PLACEHOLDER = -1
TEXT_ROWS = 16  # text tasks beside a batch of speech
DIGITS = 10


@dataclass(frozen=True)
class Dialogue:
    """A prompt and its answer, as ids; the placeholder marks the speech's position."""

    prompt: Sequence[int]
    answer: Sequence[int]


def answer_loss(
    language: Any, dialogues: Sequence[Dialogue], speech: Tensor | None = None, lengths: Tensor | None = None
) -> Tensor:
    """Returns the mean cross-entropy of the answers' tokens.

    Args:
        language: a causal language model of transformers.
        speech: embeddings [B, frames, H] for the placeholder of each prompt.
        lengths: frames of each [B].
    """
    batch, tokens = len(dialogues), max(len(row.prompt) + len(row.answer) for row in dialogues)
    ids = np.zeros((batch, tokens), dtype=np.int64)
    labels = np.full((batch, tokens), IGNORED, dtype=np.int64)
    present = np.zeros((batch, tokens), dtype=bool)
    for number, row in enumerate(dialogues):
        full = [*row.prompt, *row.answer]
        ids[number, : len(full)] = full
        labels[number, len(row.prompt) : len(full)] = row.answer
        present[number, : len(full)] = True
    text = language.get_input_embeddings()(torch.from_numpy(np.maximum(ids, 0)))
    counts = np.zeros(batch, dtype=np.int64) if lengths is None else lengths.numpy()
    frames = text.new_zeros(batch, 1, text.shape[2]) if speech is None else speech
    merged = merge_speech(ids, text, frames, counts, PLACEHOLDER, present)
    source = plan_merge(ids, counts, PLACEHOLDER, present).source
    moved = np.take_along_axis(np.pad(labels, ((0, 0), (0, frames.shape[1])), constant_values=IGNORED), source, axis=1)
    moved[~merged.attention_mask] = IGNORED
    hidden = language.model(
        inputs_embeds=merged.embeddings,
        attention_mask=torch.from_numpy(merged.attention_mask).long(),
        position_ids=torch.from_numpy(merged.positions),
        use_cache=False,
    )[0]
    targets = torch.from_numpy(moved[:, 1:])
    learnt = targets != IGNORED
    return F.cross_entropy(language.lm_head(hidden[:, :-1][learnt]), targets[learnt])


def text_loss(language: Any, tokenizer: LanguageTokenizer, rng: np.random.Generator, rows: int = TEXT_ROWS) -> Tensor:
    """Returns the loss on a few text tasks."""
    tasks = [draw_task(rng) for _ in range(rows)]
    return answer_loss(
        language,
        [Dialogue(tokenizer.encode(chat_prompt(task)), tokenizer.encode(answer + TURN_END)) for task, answer in tasks],
    )


class DigitVectors(nn.Module):
    """A vector per digit and one for silence, which attract the speech embeddings in training.

    The language model first learns to read strings of these vectors. CTC with the same vectors then moves the
    embeddings of real speech towards them. Without it, a decoder needs long to find its position in a recording.
    """

    def __init__(self, width: int):
        super().__init__()
        self.table = nn.Parameter(torch.randn(DIGITS + 1, width))

    def ctc(self, embeddings: Tensor, counts: Tensor, digits: Sequence[Sequence[int]]) -> Tensor:
        """Returns the CTC loss per digit of embeddings [B, frames, H], whose logits are their similarities to the
        vectors.
        """
        return ctc_loss(embeddings @ self.table.T * embeddings.shape[2] ** -0.5, counts, digits)

    def strings(self, digits: Sequence[Sequence[int]], dense: bool, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Returns embeddings of the digits as if they were recognised [B, frames, H], and the frames of each [B].

        With `dense` there are about as many frames as digits, else several frames per digit and pauses between.
        """
        rows = [_path(string, dense, rng) for string in digits]
        counts = torch.tensor([len(row) for row in rows])
        ids = torch.zeros(len(rows), int(counts.max()), dtype=torch.long)
        for place, row in enumerate(rows):
            ids[place, : len(row)] = torch.tensor(row)
        noise = torch.from_numpy(rng.standard_normal((*ids.shape, self.table.shape[1]), dtype=np.float32))
        return self.table[ids] + float(rng.uniform(0.2, 1.0)) * noise, counts


def _path(digits: Sequence[int], dense: bool, rng: np.random.Generator) -> list[int]:
    """Returns rows of the table, one per frame."""
    longest_pause, longest_digit = (2, 1) if dense else (7, 3)
    path = [0] * int(rng.integers(0, longest_pause + 2))
    for place, digit in enumerate(digits):
        # As in CTC: two equal digits must have something between them.
        minimum = 1 if place and digits[place - 1] == digit else 0
        path += [0] * int(rng.integers(minimum, longest_pause + 1))
        path += [digit + 1] * int(rng.integers(1, longest_digit + 1))
    return [*path, *[0] * int(rng.integers(1, longest_pause + 2))]


def ctc_loss(logits: Tensor, counts: Tensor, digits: Sequence[Sequence[int]]) -> Tensor:
    """Returns the CTC loss per digit of logits [B, frames, 11]; 0 is the blank."""
    scores = F.log_softmax(logits, dim=-1).transpose(0, 1)
    labels = torch.tensor([len(string) for string in digits])
    flat = torch.tensor([digit + 1 for string in digits for digit in string])
    loss = F.ctc_loss(scores, flat, counts, labels, 0, reduction="sum", zero_infinity=True)
    return loss / labels.sum().clamp(min=1)


class LanguageLoss(nn.Module):
    """The language model's loss before it gets speech: text tasks, and reading strings of digit vectors."""

    def __init__(self, network: nn.Module, vectors: DigitVectors, tokenizer: LanguageTokenizer, dense: bool):
        super().__init__()
        self.network = network
        self.vectors = vectors
        self.tokenizer = tokenizer
        self.dense = dense

    def forward(self, prompts: Sequence[Sequence[int]], rng: np.random.Generator) -> dict[str, Tensor]:
        """Returns the parts of the loss, over one string of digits for each prompt."""
        digits = [rng.integers(0, DIGITS, int(rng.integers(0, 13))).tolist() for _ in prompts]
        speech, counts = self.vectors.strings(digits, self.dense, rng)
        dialogues = [Dialogue(prompt, answer_ids(self.tokenizer, d)) for prompt, d in zip(prompts, digits, strict=True)]
        return {
            "read": answer_loss(self.network, dialogues, speech, counts),
            "text": text_loss(self.network, self.tokenizer, rng, len(prompts)),
        }


def answer_ids(tokenizer: LanguageTokenizer, digits: Sequence[int]) -> list[int]:
    """Returns the ids of the language model's answer for a string of digits."""
    return tokenizer.encode(words_of(digits) + TURN_END)
