"""The demo FireRedASR-LLM: its dimensions, prompt and loss.

Cross-entropy on the transcript behind the prompt, the same on small text tasks, and a CTC head on the encoder that
exists only while training, so that frames find their words. The finishing phase learns the language half's changes as
LoRA weights, as the original is trained.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from workbench.families.conformer import ConformerConfig, encoder_frames
from workbench.families.language import LanguageTokenizer
from workbench.runtimes.pytorch.conformer import ConformerEncoder, StackingAdaptor
from workbench.runtimes.pytorch.tap import Tap, no_tap
from workbench.training.pool import Batch
from workbench.training.speech_language import (
    DIGITS,
    PLACEHOLDER,
    Dialogue,
    DigitVectors,
    answer_ids,
    answer_loss,
    ctc_loss,
    text_loss,
)

ENCODER = ConformerConfig(idim=80, n_layers=4, n_head=4, d_model=112, kernel_size=15, pe_maxlen=5000)
DOWNSAMPLE_RATE = 2
PROMPT = "<|im_start|>user\n<speech>请转写音频为文字<|im_end|>\n<|im_start|>assistant\n"
LANGUAGE = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "rope_theta": 1_000_000.0,
    "tie_word_embeddings": False,
}


class Network(nn.Module):
    """Encoder, adaptor and language model under the names of the checkpoint."""

    def __init__(self, language: Any, dropout: float):
        super().__init__()
        self.encoder = ConformerEncoder(ENCODER, dropout)
        self.encoder_projector = StackingAdaptor(ENCODER.d_model, LANGUAGE["hidden_size"], DOWNSAMPLE_RATE)
        self.llm = language

    def forward(self, features: Tensor, lengths: Tensor, tap: Tap = no_tap) -> tuple[Tensor, Tensor]:
        """Embeddings [B, tokens, H] of features [B, L, 80], and how many of them are each row's [B]."""
        valid = torch.tensor([encoder_frames(int(length)) for length in lengths])
        adapted = self.encoder_projector(self.encoder(features, valid, tap), tap)
        return adapted, valid // DOWNSAMPLE_RATE


class EncoderLoss(nn.Module):
    """CTC on the encoder alone, with which it learns to hear before the language half listens."""

    def __init__(self, network: ConformerEncoder):
        super().__init__()
        self.network = network
        self.output = nn.Linear(ENCODER.d_model, DIGITS + 1)

    def forward(self, batch: Batch, rng: np.random.Generator) -> dict[str, Tensor]:
        """The loss."""
        valid = torch.tensor([encoder_frames(int(length)) for length in batch.lengths])
        encoded = self.network(torch.from_numpy(batch.features), valid)
        return {"ctc": ctc_loss(self.output(encoded), valid, batch.digits)}


class FireRedAsrLoss(nn.Module):
    """Cross-entropy on transcripts and on text tasks, CTC on the speech embeddings."""

    def __init__(self, network: Network, vectors: DigitVectors, tokenizer: LanguageTokenizer):
        super().__init__()
        self.network = network
        self.vectors = vectors
        self.tokenizer = tokenizer
        self.prompt = prompt_ids(tokenizer)

    def forward(self, batch: Batch, rng: np.random.Generator) -> dict[str, Tensor]:
        """The parts of the loss."""
        speech, counts = self.network(torch.from_numpy(batch.features), torch.from_numpy(batch.lengths))
        dialogues = [Dialogue(self.prompt, answer_ids(self.tokenizer, digits)) for digits in batch.digits]
        return {
            "tokens": answer_loss(self.network.llm, dialogues, speech, counts),
            "text": 0.2 * text_loss(self.network.llm, self.tokenizer, rng),
            "ctc": 0.3 * self.vectors.ctc(speech, counts, batch.digits),
        }


def prompt_ids(tokenizer: LanguageTokenizer) -> list[int]:
    """The prompt's ids, the placeholder among them."""
    before, after = (tokenizer.ids(part) for part in PROMPT.split("<speech>"))
    return [*before, PLACEHOLDER, *after]
