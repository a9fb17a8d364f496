"""The network of the demo SpeechLM in training, and its loss.

A row of ids is embedded as the sum of one table's vectors. All eight streams are predicted from one hidden state; for
streams 1 to 7 `stream_emb` is added to it, which is a constant for each code, as every code belongs to one stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from workbench.training.data.pool import Strings
from workbench.training.loop import Draw
from workbench.training.recognisers.speech_language import IGNORED, PLACEHOLDER
from workbench.training.speechlm.files import CONTEXT, LAYOUT
from workbench.training.speechlm.rows import Example, RowWriter, disturbed, without_context
from workbench.training.speechlm.tasks import Recording, as_text, draw_dialogue
from workbench.training.speechlm.tower import TOWER, Recordings, make_tower, positions_of, read_recordings

LANGUAGE: dict[str, Any] = {
    "hidden_size": 128,
    "intermediate_size": 448,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "rope_theta": 1_000_000.0,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
}


class SpeechLM(nn.Module):
    """The whole network, with the checkpoint's parameter names."""

    def __init__(self, dropout: float = 0.0):
        super().__init__()
        from transformers import Qwen3Config, Qwen3Model

        hidden = LANGUAGE["hidden_size"]
        config = Qwen3Config(vocab_size=LAYOUT.vocabulary, max_position_embeddings=CONTEXT, **LANGUAGE)
        self.model = Qwen3Model(config)
        self.lm_head = nn.Linear(hidden, LAYOUT.vocabulary, bias=False)
        nn.init.normal_(self.lm_head.weight, std=0.02)
        self.stream_emb = nn.Embedding(LAYOUT.streams, hidden)
        nn.init.zeros_(self.stream_emb.weight)
        self.adaptor = nn.ModuleDict({"continuous_audio": nn.Linear(TOWER["output_dim"], hidden)})
        encoder = nn.ModuleDict({"model": nn.ModuleDict({"audio_tower": make_tower(dropout)})})
        self.multimodal_io_dict = nn.ModuleDict({"continuous_audio": encoder})

    @property
    def tower(self) -> Any:
        """The audio tower."""
        return self.get_submodule("multimodal_io_dict.continuous_audio.model.audio_tower")

    def embed(self, rows: Tensor, encoded: Tensor | None = None) -> Tensor:
        """Returns the embeddings [B, n, H] of rows [B, n, 8]; `encoded` [positions, width] goes to the placeholders."""
        ids = rows.clamp(min=0)
        is_used = torch.cat([torch.ones_like(ids[..., :1]), (ids[..., 1:] != LAYOUT.pad).long()], dim=-1)
        embedded = (self.model.embed_tokens(ids) * is_used.unsqueeze(-1)).sum(dim=-2)
        if encoded is None:
            return embedded
        places = (rows[..., 0] == PLACEHOLDER).unsqueeze(-1)
        return embedded.masked_scatter(places, self.adaptor["continuous_audio"](encoded))

    def hidden(self, embeddings: Tensor) -> Tensor:
        """Returns the normed states [B, n, H]; rows at the end may be padding."""
        return self.model(inputs_embeds=embeddings, use_cache=False)[0]

    def stream_bias(self) -> Tensor:
        """Returns what `stream_emb` adds to the logits of streams 1 to 7 [7, 1025]."""
        first, _ = LAYOUT.interval(1)
        heads = self.lm_head.weight[first : LAYOUT.codec_end].view(LAYOUT.streams - 1, LAYOUT.layer_size, -1)
        return torch.einsum("skh,sh->sk", heads, self.stream_emb.weight[1:])

    def main_logits(self, states: Tensor) -> Tensor:
        """Returns the logits of stream 0 over the ids up to the end of its codes [n, ids], from states [n, H]."""
        _, end = LAYOUT.interval(0)
        return F.linear(states, self.lm_head.weight[:end])

    def codec_logits(self, states: Tensor) -> Tensor:
        """Returns the logits of streams 1 to 7, each over its own ids [n, 7, 1025], from states [n, H]."""
        first, _ = LAYOUT.interval(1)
        logits = F.linear(states, self.lm_head.weight[first : LAYOUT.codec_end])
        return logits.view(len(states), LAYOUT.streams - 1, LAYOUT.layer_size) + self.stream_bias()


# --- batches ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class DialogueBatch:
    """Dialogues of similar length, padded at the end."""

    inputs: NDArray[np.int64]  # [B, n, 8]
    targets: NDArray[np.int64]  # [B, n, 8]
    recordings: Recordings | None  # in the order of the placeholders


@dataclass(frozen=True)
class DialogueOptions:
    """The composition of the batches."""

    rows_per_batch: int = 1100
    recording_share: float = 0.5  # of the dialogues: the first request is a recording
    second_share: float = 0.08  # of the dialogues: a second request
    null_share: float = 0.06  # of the dialogues: the null branch of classifier-free guidance
    text_share: float = 0.35  # of the dialogues: all answers are text, which has more decisions in fewer rows
    disturbed_share: float = 0.01  # of the codes that are fed
    longest: int = 10  # digits in a recording
    sorted_together: int = 96  # dialogues from which batches of similar length are made


def batch_of(
    examples: Sequence[Example], pool: Strings | None, rng: np.random.Generator | None, disturb: float = 0.0
) -> DialogueBatch:
    """Pads examples to a batch; a generator masks the recordings and disturbs the codes."""
    longest = max(len(example.inputs) for example in examples)
    inputs = np.zeros((len(examples), longest, LAYOUT.streams), np.int64)
    targets = np.full_like(inputs, IGNORED)
    for row, example in enumerate(examples):
        fed = example.inputs if rng is None else disturbed(example.inputs, disturb, rng)
        inputs[row, : len(fed)] = fed
        targets[row, : len(fed)] = example.targets
    numbers = [number for example in examples for number in example.recordings]
    recordings = read_recordings(pool, numbers, rng) if pool is not None and numbers else None
    return DialogueBatch(inputs, targets, recordings)


def dialogues(pool: Strings, writer: RowWriter, options: DialogueOptions) -> Draw:
    """Draws batches of dialogues, without end."""
    short = [number for number, digits in enumerate(pool.digits) if len(digits) <= options.longest]

    def draw_one(rng: np.random.Generator) -> Example:
        turns = 1 + int(rng.random() < options.second_share)
        recordings = []
        if rng.random() < options.recording_share:
            number = short[int(rng.integers(len(short)))]
            recordings.append(Recording(number, pool.digits[number]))
        dialogue = draw_dialogue(rng, recordings, turns)
        if rng.random() < options.text_share:
            dialogue = as_text(dialogue)
        example = writer.example(dialogue)
        null = without_context(example) if rng.random() < options.null_share else None
        return null or example

    def draw(rng: np.random.Generator) -> Iterator[DialogueBatch]:
        while True:
            examples = [draw_one(rng) for _ in range(options.sorted_together)]
            examples.sort(key=lambda example: len(example.inputs))
            groups: list[list[Example]] = [[]]
            for example in examples:
                if len(example.inputs) * (len(groups[-1]) + 1) > options.rows_per_batch and groups[-1]:
                    groups.append([])
                groups[-1].append(example)
            for place in rng.permutation(len(groups)):
                yield batch_of(groups[place], pool, rng, options.disturbed_share)

    return draw


def positions_in(pool: Strings) -> NDArray[np.int64]:
    """Returns the tower's number of positions for each recording of the pool."""
    return positions_of(pool.frames)


# --- the loss --------------------------------------------------------------------------------------------------------


class SpeechLMLoss(nn.Module):
    """Cross-entropy of text, of stream 0 of speech, and of streams 1 to 7. The tower stays as it is."""

    def __init__(self, network: SpeechLM):
        super().__init__()
        self.network = network

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
        """Returns the trained parameters."""
        frozen = {id(p) for p in self.network.tower.parameters()}
        return (p for p in super().parameters(recurse) if id(p) not in frozen)

    def forward(self, batch: DialogueBatch, rng: np.random.Generator) -> dict[str, Tensor]:
        """Returns the parts of the loss."""
        encoded = None
        if batch.recordings is not None:
            with torch.no_grad():
                encoded = self.network.tower(batch.recordings.mels, batch.recordings.frames).last_hidden_state
        main, codec = predictions(self.network, batch, encoded)
        text = main.targets < LAYOUT.codec_first
        losses = F.cross_entropy(main.logits, main.targets, reduction="none")
        return {
            "text": 0.5 * _mean(losses[text]),
            "main": _mean(losses[~text]),
            "codec": F.cross_entropy(codec.logits, codec.targets) if len(codec.targets) else losses.sum() * 0,
        }


@dataclass(frozen=True, eq=False)
class Predictions:
    """Logits and what they should predict."""

    logits: Tensor  # [n, ids]
    targets: Tensor  # [n]


def predictions(network: SpeechLM, batch: DialogueBatch, encoded: Tensor | None) -> tuple[Predictions, Predictions]:
    """Returns the predictions of stream 0, and of the other streams."""
    states = network.hidden(network.embed(torch.from_numpy(batch.inputs), encoded))[:, :-1]
    targets = torch.from_numpy(batch.targets[:, 1:])
    has_target = targets[..., 0] != IGNORED
    targets = targets[has_target]  # [n, 8]
    states = states[has_target]
    speech = targets[:, 1] != IGNORED
    codec_logits = network.codec_logits(states[speech]).flatten(0, 1)
    firsts = torch.from_numpy(LAYOUT.pads[1:])
    return Predictions(network.main_logits(states), targets[:, 0]), Predictions(
        codec_logits, (targets[speech, 1:] - firsts).flatten()
    )


def _mean(losses: Tensor) -> Tensor:
    return losses.sum() / max(losses.numel(), 1)
