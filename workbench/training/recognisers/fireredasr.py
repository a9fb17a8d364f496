"""The demo FireRedASR-LLM: its dimensions, prompt and loss.

The loss is cross-entropy on the transcript after the prompt, the same on small text tasks, and CTC with a head on the
encoder that exists only in training, so that frames align with words. The finishing phase learns changes of the
language model as LoRA weights, as in the original training.
"""

from __future__ import annotations

import argparse
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from workbench.core.errors import BadInput
from workbench.families.language.directory import LanguageTokenizer
from workbench.families.speech_llm.conformer import ConformerConfig, encoder_frames
from workbench.families.speech_llm.fireredasr import PROMPT, SPEECH
from workbench.runtimes.pytorch.checkpoints.lora import WRAPPER
from workbench.runtimes.pytorch.checkpoints.weights import read_safetensors
from workbench.runtimes.pytorch.fireredasr import AudioEmbeddingNetwork, read_checkpoint
from workbench.runtimes.pytorch.networks.conformer import ConformerEncoder
from workbench.training.data.pool import Batch, FeaturePool, cmvn_sums, normalisation
from workbench.training.loop import Draw, TrainOptions, epochs
from workbench.training.recognisers.language import QWEN2_SPECIAL, VOCABULARY, make_tokenizer, write_language_folder
from workbench.training.recognisers.lora import add_lora, base_tensors, lora_tensors
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

ENCODER = ConformerConfig(idim=80, n_layers=4, n_head=4, d_model=112, kernel_size=15, pe_maxlen=5000)
DOWNSAMPLE_RATE = 2
WIDTH = 128  # of the language model
LANGUAGE: dict[str, Any] = {
    "hidden_size": WIDTH,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "rope_theta": 1_000_000.0,
    "tie_word_embeddings": False,
}


class TrainingNetwork(AudioEmbeddingNetwork):
    """Encoder, adapter and language model with the checkpoint's parameter names."""

    def __init__(self, language: Any, dropout: float):
        super().__init__(ENCODER, WIDTH, DOWNSAMPLE_RATE, dropout)
        self.llm = language

    def embeddings(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Returns embeddings [B, tokens, H] of features [B, L, 80], and the number of embeddings of each row [B]."""
        valid = torch.tensor([encoder_frames(int(length)) for length in lengths])
        return self(features, valid), valid // DOWNSAMPLE_RATE


class EncoderLoss(nn.Module):
    """CTC on the encoder alone, which trains it before the language model uses its output.

    The middle of the encoder has the same loss with a lower weight, so that it finds the alignment sooner (Lee and
    Watanabe, "Intermediate Loss Regularization for CTC-based Speech Recognition", ICASSP 2021).
    """

    def __init__(self, network: ConformerEncoder):
        super().__init__()
        self.network = network
        self.output = nn.Linear(ENCODER.d_model, DIGITS + 1)

    def forward(self, batch: Batch, rng: np.random.Generator) -> dict[str, Tensor]:
        """Returns the parts of the loss."""
        valid = torch.tensor([encoder_frames(int(length)) for length in batch.lengths])
        halfway: list[Tensor] = []

        def tap(stage: str, value: Tensor) -> Tensor:
            if stage == f"encoder.layers.{ENCODER.n_layers // 2 - 1}":
                halfway.append(value)
            return value

        encoded = self.network(torch.from_numpy(batch.features), valid, tap)
        return {
            "ctc": 0.7 * ctc_loss(self.output(encoded), valid, batch.digits),
            "early": 0.3 * ctc_loss(self.output(halfway[0]), valid, batch.digits),
        }


class FireRedAsrLoss(nn.Module):
    """Cross-entropy on transcripts and on text tasks, CTC on the speech embeddings."""

    def __init__(self, network: TrainingNetwork, vectors: DigitVectors, tokenizer: LanguageTokenizer):
        super().__init__()
        self.network = network
        self.vectors = vectors
        self.tokenizer = tokenizer
        self.prompt = prompt_ids(tokenizer)

    def forward(self, batch: Batch, rng: np.random.Generator) -> dict[str, Tensor]:
        """Returns the parts of the loss."""
        speech, counts = self.network.embeddings(torch.from_numpy(batch.features), torch.from_numpy(batch.lengths))
        dialogues = [Dialogue(self.prompt, answer_ids(self.tokenizer, digits)) for digits in batch.digits]
        return {
            "tokens": answer_loss(self.network.llm, dialogues, speech, counts),
            "text": 0.2 * text_loss(self.network.llm, self.tokenizer, rng),
            "ctc": 0.3 * self.vectors.ctc(speech, counts, batch.digits),
        }


def prompt_ids(tokenizer: LanguageTokenizer) -> list[int]:
    """Returns the prompt's ids, with the placeholder among them."""
    before, after = (tokenizer.encode(part) for part in PROMPT.split(SPEECH))
    return [*before, PLACEHOLDER, *after]


# --- the phases ------------------------------------------------------------------------------------------------------

ENCODER_SHORT = TrainOptions(updates=1200, frames_per_batch=600, learning_rate=1e-3, warm_up=100, averaging=0.99)
SHORT_DIGITS = 3  # strings of at most this many digits, whose alignment is learnt soon
ENCODER_ALONE = TrainOptions(updates=2500, learning_rate=1.2e-3, warm_up=100)
READING = TrainOptions(updates=1200)
READING_ROWS = 32
LISTENING = TrainOptions(updates=2200, learning_rate=1e-3, warm_up=100)
FINISHING = TrainOptions(updates=1300, learning_rate=5e-4, warm_up=100)
FINISHING_AGAIN = TrainOptions(updates=900, learning_rate=5e-4, warm_up=100, seed=1)
GOING_ON = TrainOptions(updates=1500, learning_rate=6e-4, warm_up=100)
HEAD_BYTES = 15  # of a Kaldi matrix without a key, before its values
FOLDER = "Qwen2-demo"  # of the language model, in the checkpoint
ABOUT = """
The encoder first learns alone, by CTC, and the language half small text tasks (counting, figures and words, order) and
to read strings of vectors that stand for digits; speech embeddings are then drawn towards these vectors, by CTC, while
everything learns together. The finishing phase keeps the language half, rounded to bfloat16, and learns its changes as
LoRA weights of rank 64, as the original is trained.
"""


@dataclass(frozen=True)
class TrainedModel:
    """The result of the training, from which the checkpoint is written."""

    network: TrainingNetwork
    statistics: np.ndarray  # CMVN sums in Kaldi's form [2, 81]


def train(run: TrainingRun) -> TrainedModel:
    """Trains the network; returns it with the statistics of its features."""
    pool = run.pool(window="povey")
    statistics = cmvn_sums(pool)
    cmvn = normalisation(statistics)

    encoder_loss = EncoderLoss(ConformerEncoder(ENCODER, ENCODER_ALONE.dropout))
    run.train("encoder, short strings", encoder_loss, _short(pool, cmvn), ENCODER_SHORT, len(pool))
    encoder = run.train(
        "encoder", encoder_loss, epochs(pool, cmvn, ENCODER_ALONE.frames_per_batch), ENCODER_ALONE, len(pool)
    )

    tokenizer = make_tokenizer(QWEN2_SPECIAL)
    vectors = DigitVectors(WIDTH)

    def prompts(rng: np.random.Generator) -> Iterator[list[list[int]]]:
        while True:
            yield [prompt_ids(tokenizer)] * READING_ROWS

    reading = LanguageLoss(make_language(), vectors, tokenizer, dense=False)
    network = TrainingNetwork(run.train("language model", reading, prompts, READING), LISTENING.dropout)
    network.encoder.load_state_dict(encoder.state_dict())
    loss = FireRedAsrLoss(network, vectors, tokenizer)
    network = run.train("all parts", loss, epochs(pool, cmvn, LISTENING.frames_per_batch), LISTENING, len(pool))

    network.llm.load_state_dict({k: v.bfloat16().float() for k, v in network.llm.state_dict().items()})
    add_lora(network.llm)
    pool = run.pool(0.5, finishing=True, window="povey")
    tight = "fine-tuning on tightly cut strings, LoRA"
    for phase, training in ((tight, FINISHING), (f"{tight}, again", FINISHING_AGAIN)):
        loss = FireRedAsrLoss(network, vectors, tokenizer)
        draw = epochs(pool, cmvn, training.frames_per_batch)
        network = run.train(phase, loss, draw, training, len(pool))
    return TrainedModel(network, statistics)


def train_further(run: TrainingRun, directory: Path) -> TrainedModel:
    """Trains the checkpoint in the directory further: encoder, adapter and the low-rank changes of its language
    model.
    """
    checkpoint = read_checkpoint(directory)
    language = make_language()
    copy_tensors(language, read_safetensors(directory / FOLDER / "model.safetensors"), f"{FOLDER}/model.safetensors")
    add_lora(language)
    network = TrainingNetwork(language, GOING_ON.dropout)
    changes = {
        f"llm.{name.removeprefix(WRAPPER).removesuffix('.default.weight')}": value
        for name, value in checkpoint.language.items()
    }
    base = {f"llm.{name}": value for name, value in language.state_dict().items() if "lora_" not in name}
    copy_tensors(network, {**checkpoint.audio, **changes, **base}, checkpoint.where)
    statistics = _read_statistics(directory / "cmvn.ark")
    pool = run.continuing_pool(window="povey")
    loss = FireRedAsrLoss(network, DigitVectors(WIDTH), make_tokenizer(QWEN2_SPECIAL))
    draw = epochs(pool, normalisation(statistics), GOING_ON.frames_per_batch, CONTINUING_MASKS)
    run.train_heads(loss, loss.vectors, draw)
    trained = run.train("continued, with recordings without digits, LoRA", loss, draw, GOING_ON, len(pool))
    return TrainedModel(trained, statistics)


def _short(pool: FeaturePool, cmvn: tuple[np.ndarray, np.ndarray]) -> Draw:
    """Returns batches of the strings with few digits."""
    few = np.array([1 <= len(digits) <= SHORT_DIGITS for digits in pool.digits])

    def draw(rng: np.random.Generator) -> Iterator[Batch]:
        while True:
            for numbers in pool.batches(ENCODER_SHORT.frames_per_batch, rng):
                if few[numbers].any():
                    yield pool.batch(numbers[few[numbers]], *cmvn, rng)

    return draw


def make_language() -> Any:
    """Returns an untrained language model."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    return Qwen2ForCausalLM(Qwen2Config(vocab_size=VOCABULARY, **LANGUAGE))


def write(trained_model: TrainedModel, directory: Path) -> int:
    """Writes the checkpoint; returns its number of parameters."""
    network = trained_model.network
    base = make_language()
    base.load_state_dict(base_tensors(network.llm))
    write_language_folder(directory / FOLDER, base.bfloat16(), QWEN2_SPECIAL, weights=True)
    tensors = {
        **{f"encoder.{name}": value for name, value in network.encoder.state_dict().items()},
        **{f"encoder_projector.{name}": value for name, value in network.encoder_projector.state_dict().items()},
        **lora_tensors(network.llm),
    }
    encoder = argparse.Namespace(
        idim=ENCODER.idim,
        odim=7832,
        d_model=ENCODER.d_model,
        n_layers_enc=ENCODER.n_layers,
        n_head=ENCODER.n_head,
        kernel_size=ENCODER.kernel_size,
        pe_maxlen=ENCODER.pe_maxlen,
        residual_dropout=0.1,
        dropout_rate=0.1,
        d_inner=4 * ENCODER.d_model,
        n_layers_dec=1,
        sos=3,
        eos=4,
        pad=2,
    )
    torch.save({"args": encoder}, directory / "asr_encoder.pth.tar")
    model = argparse.Namespace(
        encoder_path="asr_encoder.pth.tar",
        llm_dir=FOLDER,
        freeze_encoder=0,
        freeze_llm=0,
        use_lora=1,
        use_fp16=0,
        use_flash_attn=0,
        encoder_downsample_rate=DOWNSAMPLE_RATE,
    )
    state = {name: value.detach().clone() for name, value in tensors.items()}
    torch.save({"args": model, "model_state_dict": state}, directory / "model.pth.tar")
    (directory / "cmvn.ark").write_bytes(_kaldi_matrix(trained_model.statistics))
    rows = "\n  ".join(" ".join(f"{value:.9g}" for value in row) for row in trained_model.statistics)
    (directory / "cmvn.txt").write_text(f" [\n  {rows} ]\n", encoding="utf-8")
    return sum(value.numel() for value in (*tensors.values(), *base.state_dict().values()))


def _read_statistics(path: Path) -> np.ndarray:
    """Returns the sums that `_kaldi_matrix` wrote; raises `BadInput` for a file of another kind."""
    content = path.read_bytes()
    head = _kaldi_matrix(np.zeros((2, ENCODER.idim + 1)))[:HEAD_BYTES]
    if not content.startswith(head) or len(content) != HEAD_BYTES + 16 * (ENCODER.idim + 1):
        raise BadInput(f"{path.name} does not belong to a demo; expected a matrix of doubles, 2 x {ENCODER.idim + 1}")
    return np.frombuffer(content[HEAD_BYTES:], dtype="<f8").reshape(2, ENCODER.idim + 1).astype(np.float64)


def _kaldi_matrix(matrix: np.ndarray) -> bytes:
    """Returns a matrix of doubles in Kaldi's binary form, without a key."""
    rows, columns = matrix.shape
    return b"\0BDM " + struct.pack("<bibi", 4, rows, 4, columns) + matrix.astype("<f8").tobytes()
