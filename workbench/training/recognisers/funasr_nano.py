"""The demo Fun-ASR-Nano: its dimensions, prompts and loss.

The loss is cross-entropy on the transcript after the prompt, the same on small text tasks, and CTC with a head on the
encoder that exists only in training, so that frames align with words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from workbench.families.language.directory import TURN_END, LanguageTokenizer
from workbench.families.speech_llm.funasr_nano import LANGUAGES, SYSTEM, AdaptorConfig, FunasrNanoOptions, instruction
from workbench.registry.sources import assets
from workbench.runtimes.pytorch.checkpoints.weights import read_state_dict
from workbench.runtimes.pytorch.networks.nano_encoder import NanoEncoder
from workbench.training.data.digits import WORDS
from workbench.training.data.pool import Batch
from workbench.training.loop import TrainOptions, epochs
from workbench.training.recognisers import sensevoice
from workbench.training.recognisers.funasr_files import write_funasr_files
from workbench.training.recognisers.language import QWEN3_SPECIAL, VOCABULARY, make_tokenizer, write_language_folder
from workbench.training.recognisers.sensevoice import ENCODER
from workbench.training.recognisers.speech_language import (
    DIGITS,
    PLACEHOLDER,
    Dialogue,
    DigitVectors,
    LanguageLoss,
    answer_ids,
    answer_loss,
    ctc_loss,
    text_loss,
)
from workbench.training.start import copy_tensors
from workbench.training.training_run import CONTINUING_MASKS, TrainingRun

WIDTH = 128  # of the language model
ADAPTOR = AdaptorConfig(
    downsample_rate=8,
    use_low_frame_rate=True,
    encoder_dim=ENCODER.output_size,
    ffn_dim=192,
    llm_dim=WIDTH,
    n_layer=2,
    attention_heads=8,
)
LANGUAGE: dict[str, Any] = {
    "hidden_size": WIDTH,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 2048,
    "rope_theta": 1_000_000.0,
    "tie_word_embeddings": True,
}
PLAIN_SHARE = 0.5  # of the batches: a prompt without language, hotwords or a request for plain numbers


class TrainingNetwork(NanoEncoder):
    """Encoder, adaptor and language model with the checkpoint's parameter names."""

    def __init__(self, language: Any, dropout: float):
        super().__init__(ENCODER, ADAPTOR, dropout)
        self.llm = language


class FunasrNanoLoss(nn.Module):
    """Cross-entropy on transcripts and on text tasks, CTC on the encoder's frames."""

    def __init__(self, network: TrainingNetwork, tokenizer: LanguageTokenizer):
        super().__init__()
        self.network = network
        self.frames = nn.Linear(ENCODER.output_size, DIGITS + 1)
        self.tokenizer = tokenizer

    def forward(self, batch: Batch, rng: np.random.Generator) -> dict[str, Tensor]:
        """Returns the parts of the loss; every batch has a newly drawn prompt."""
        encoded: list[Tensor] = []

        def tap(stage: str, value: Tensor) -> Tensor:
            if stage == "encoder.output":
                encoded.append(value)
            return value

        lengths = torch.from_numpy(batch.lengths)
        speech, counts = self.network(torch.from_numpy(batch.features), lengths, tap)
        prompt = draw_prompt(self.tokenizer, rng)
        dialogues = [Dialogue(prompt, answer_ids(self.tokenizer, digits)) for digits in batch.digits]
        return {
            "tokens": answer_loss(self.network.llm, dialogues, speech, counts),
            "text": 0.2 * text_loss(self.network.llm, self.tokenizer, rng),
            "frames": 0.2 * ctc_loss(self.frames(encoded[0]), lengths, batch.digits),
        }


def draw_prompt(tokenizer: LanguageTokenizer, rng: np.random.Generator) -> list[int]:
    """Draws a prompt and returns its ids, with the placeholder among them: plain, or with language, hotwords and plain
    numbers.
    """
    options = FunasrNanoOptions()
    if rng.random() >= PLAIN_SHARE:
        language = str(rng.choice(["auto", "en", str(rng.choice(list(LANGUAGES)))]))
        hotwords = tuple(str(word) for word in rng.choice(WORDS, int(rng.integers(0, 4))))
        options = FunasrNanoOptions(language=language, itn=bool(rng.random() < 0.5), hotwords=hotwords)
    before = f"{SYSTEM}<|im_start|>user\n{instruction(options)}"
    after = f"{TURN_END}\n<|im_start|>assistant\n"
    return [*tokenizer.encode(before), PLACEHOLDER, *tokenizer.encode(after)]


# --- the phases ------------------------------------------------------------------------------------------------------

READING = TrainOptions(updates=1500, warm_up=300, log_every=100)
READING_ROWS = 32
LISTENING = TrainOptions(updates=3500, learning_rate=1.5e-3, warm_up=100)
FINISHING = TrainOptions(updates=1500, learning_rate=6e-4, warm_up=100)
FINISHING_AGAIN = TrainOptions(updates=1200, learning_rate=6e-4, warm_up=100, seed=1)
GOING_ON = TrainOptions(updates=1200, learning_rate=5e-4, warm_up=100)
NO_CMVN = (np.zeros(ENCODER.input_size, np.float32), np.ones(ENCODER.input_size, np.float32))
FOLDER = "Qwen3-demo"  # of the language model, in the checkpoint
ABOUT = """
The encoder begins with the weights of the demo SenseVoice and learns to do without CMVN, as Fun-ASR-Nano does. The
language half first learns small text tasks (counting, figures and words, order), and to read strings of vectors that
stand for digits; then everything learns together. The adaptor stacks eight frames, so that its rows are the eighth
that stands in the prompt. The published model stacks none and keeps the first eighth of its rows: to gather a recording
there took more training than a demo is worth.
"""


def train(run: TrainingRun) -> TrainingNetwork:
    """Trains the network and returns it."""
    tokenizer = make_tokenizer(QWEN3_SPECIAL)

    def prompts(rng: np.random.Generator) -> Iterator[list[list[int]]]:
        while True:
            yield [draw_prompt(tokenizer, rng)] * READING_ROWS

    reading = LanguageLoss(make_language(), DigitVectors(WIDTH), tokenizer, dense=True)
    network = TrainingNetwork(run.train("language model", reading, prompts, READING), LISTENING.dropout)
    encoder = read_state_dict(assets() / "demo-sensevoice" / "model.pt")
    network.audio_encoder.load_state_dict(
        {name.removeprefix("encoder."): value for name, value in encoder.items() if name.startswith("encoder.")}
    )
    tight = "fine-tuning on tightly cut strings"
    for phase, training in (("all parts", LISTENING), (tight, FINISHING), (f"{tight}, again", FINISHING_AGAIN)):
        pool = run.pool(0.5, finishing=training is not LISTENING)
        draw = epochs(pool, NO_CMVN, training.frames_per_batch)
        network = run.train(phase, FunasrNanoLoss(network, tokenizer), draw, training, len(pool))
    return network


def train_further(run: TrainingRun, directory: Path) -> TrainingNetwork:
    """Trains the checkpoint in the directory further and returns the network."""
    weights = directory / "model.pt"
    network = TrainingNetwork(make_language(), GOING_ON.dropout)
    tensors = dict(read_state_dict(weights))
    if "llm.model.embed_tokens.weight" in tensors:
        tensors["llm.lm_head.weight"] = tensors["llm.model.embed_tokens.weight"]
    copy_tensors(network, tensors, f"{directory.name}/{weights.name}")
    loss = FunasrNanoLoss(network, make_tokenizer(QWEN3_SPECIAL))
    pool = run.continuing_pool()
    draw = epochs(pool, NO_CMVN, GOING_ON.frames_per_batch, CONTINUING_MASKS)
    run.train_heads(loss, loss.frames, draw)
    trained: TrainingNetwork = run.train("continued, with recordings without digits", loss, draw, GOING_ON, len(pool))
    return trained


def make_language() -> Any:
    """Returns an untrained language model."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    return Qwen3ForCausalLM(Qwen3Config(vocab_size=VOCABULARY, **LANGUAGE))


def write(trained: TrainingNetwork, directory: Path) -> int:
    """Writes the checkpoint; returns its number of parameters."""
    write_language_folder(directory / FOLDER, trained.llm, QWEN3_SPECIAL)
    # Half of the weights are stored in half precision: hubs store files above 10 MB only in large-file storage.
    tensors = {
        name: value if name.startswith("audio_encoder.") else value.bfloat16()
        for name, value in trained.state_dict().items()
        if name != "llm.lm_head.weight"  # it equals the embedding table
    }
    return write_funasr_files(directory, configuration(), FILES, None, tensors)


FILES = {"init_param": "model.pt", "config": "config.yaml"}


def configuration() -> dict[str, Any]:
    """Returns the contents of config.yaml, in FunASR's form."""
    encoder = sensevoice.configuration()["encoder_conf"]
    return {
        "model": "FunASRNano",
        "model_conf": {"lsm_weight": 0.1, "length_normalized_loss": True},
        "audio_encoder": "SenseVoiceEncoderSmall",
        "audio_encoder_conf": {**encoder, "freeze": True, "freeze_layer_num": -1, "feat_permute": True},
        "llm": "Qwen3-demo",
        "llm_conf": {
            "hub": "hf",
            "freeze": True,
            "llm_dtype": "fp32",
            "init_param_path": FOLDER,
            "use_lora": False,
        },
        "audio_adaptor": "Transformer",
        "audio_adaptor_conf": {**asdict(ADAPTOR), "freeze": True},
        "tokenizer": "HuggingfaceTokenizer",
        "tokenizer_conf": {"init_param_path": FOLDER},
    }
