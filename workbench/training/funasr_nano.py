"""The demo Fun-ASR-Nano: its dimensions, prompts and loss.

Cross-entropy on the transcript behind the prompt, the same on small text tasks, and a CTC head on the encoder that
exists only while training, so that frames find their words.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from workbench.families.funasr_nano import LANGUAGES, SYSTEM, AdaptorConfig, FunasrNanoOptions, instruction
from workbench.families.language import TURN_END, LanguageTokenizer
from workbench.runtimes.pytorch.nano_encoder import NanoEncoder
from workbench.training.digits import WORDS
from workbench.training.pool import Batch
from workbench.training.sensevoice import ENCODER
from workbench.training.speech_language import (
    PLACEHOLDER,
    Dialogue,
    DigitVectors,
    answer_ids,
    answer_loss,
    text_loss,
)

ADAPTOR = AdaptorConfig(
    downsample_rate=1,
    use_low_frame_rate=True,
    encoder_dim=ENCODER.output_size,
    ffn_dim=512,
    llm_dim=128,
    n_layer=2,
    attention_heads=8,
)
LANGUAGE = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 2048,
    "rope_theta": 1_000_000.0,
    "tie_word_embeddings": True,
}
PLAIN_SHARE = 0.5  # of the batches: the prompt without language, hotwords or a wish for plain numbers


class Network(NanoEncoder):
    """Encoder, adaptor and language model under the names of the checkpoint."""

    def __init__(self, language: Any, dropout: float):
        super().__init__(ENCODER, ADAPTOR, dropout)
        self.llm = language


class FunasrNanoLoss(nn.Module):
    """Cross-entropy on transcripts and on text tasks, CTC on the speech embeddings."""

    def __init__(self, network: Network, vectors: DigitVectors, tokenizer: LanguageTokenizer):
        super().__init__()
        self.network = network
        self.vectors = vectors
        self.tokenizer = tokenizer

    def forward(self, batch: Batch, rng: np.random.Generator) -> dict[str, Tensor]:
        """The parts of the loss; the prompt is drawn anew for every batch."""
        speech, counts = self.network(torch.from_numpy(batch.features), torch.from_numpy(batch.lengths))
        prompt = draw_prompt(self.tokenizer, rng)
        dialogues = [Dialogue(prompt, answer_ids(self.tokenizer, digits)) for digits in batch.digits]
        return {
            "tokens": answer_loss(self.network.llm, dialogues, speech, counts),
            "text": 0.2 * text_loss(self.network.llm, self.tokenizer, rng),
            "ctc": 0.3 * self.vectors.ctc(speech, counts, batch.digits),
        }


def draw_prompt(tokenizer: LanguageTokenizer, rng: np.random.Generator) -> list[int]:
    """A prompt's ids, the placeholder among them: the plain one, or with language, hotwords and plain numbers."""
    options = FunasrNanoOptions()
    if rng.random() >= PLAIN_SHARE:
        language = str(rng.choice(["auto", "en", str(rng.choice(list(LANGUAGES)))]))
        hotwords = tuple(str(word) for word in rng.choice(WORDS, int(rng.integers(0, 4))))
        options = FunasrNanoOptions(language=language, itn=bool(rng.random() < 0.5), hotwords=hotwords)
    before = f"{SYSTEM}<|im_start|>user\n{instruction(options)}"
    after = f"{TURN_END}\n<|im_start|>assistant\n"
    return [*tokenizer.ids(before), PLACEHOLDER, *tokenizer.ids(after)]
