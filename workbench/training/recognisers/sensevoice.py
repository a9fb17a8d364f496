"""The demo SenseVoice: its dimensions, vocabulary and loss.

It is trained like the original: the four query positions by cross-entropy on the tags, the frames after them by CTC.
The language query is the language or auto; the text normalisation query chooses between words and figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from workbench.families.sanm.encoder import SanmConfig
from workbench.families.sanm.sensevoice import (
    EVENT_EMOTION_QUERIES,
    LANGUAGE_QUERIES,
    QUERY_FRAMES,
    TEXTNORM_QUERIES,
)
from workbench.families.vocabularies.funasr import WORD_START
from workbench.runtimes.pytorch.sensevoice import SenseVoiceNetwork
from workbench.training.data.digits import WORDS
from workbench.training.data.pool import Batch
from workbench.training.recognisers.funasr_files import write_funasr_files
from workbench.training.recognisers.recogniser import MAIN, train_recogniser, train_recogniser_further
from workbench.training.training_run import TrainingRun

ENCODER = SanmConfig(
    input_size=560,
    output_size=144,
    attention_heads=4,
    linear_units=512,
    num_blocks=5,
    tp_blocks=2,
    kernel_size=11,
    sanm_shift=0,
    norm_eps=1e-5,
)
TAGS = (
    *("<|zh|>", "<|en|>", "<|yue|>", "<|ja|>", "<|ko|>", "<|nospeech|>"),
    *("<|HAPPY|>", "<|SAD|>", "<|ANGRY|>", "<|NEUTRAL|>", "<|EMO_UNKNOWN|>"),
    *("<|Speech|>", "<|Event_UNK|>", "<|withitn|>", "<|woitn|>"),
)
PIECES = ("<unk>", "<s>", "</s>", *TAGS, *(WORD_START + word for word in WORDS), *"0123456789", WORD_START)
BLANK = 0  # the id of <unk>, as in the original
FIGURES_SHARE = 0.3  # of the strings: learnt as figures, with the query for inverse text normalisation
ABOUT = ""
FINISHING_ROUNDS = 2  # over tightly cut strings, after the main training


def network(dropout: float) -> SenseVoiceNetwork:
    """Returns an untrained network of the demo's dimensions."""
    return SenseVoiceNetwork(ENCODER, len(PIECES), dropout)


def train(run: TrainingRun) -> tuple[nn.Module, tuple[np.ndarray, np.ndarray]]:
    """Trains the network; returns it and its CMVN."""
    return train_recogniser(run, network, SenseVoiceLoss, FINISHING_ROUNDS)


def train_further(run: TrainingRun, directory: Path) -> tuple[nn.Module, tuple[np.ndarray, np.ndarray]]:
    """Trains the checkpoint in the directory further; returns the network and its CMVN."""
    return train_recogniser_further(run, directory, network(MAIN.dropout), SenseVoiceLoss)


def write(trained_model: tuple[nn.Module, tuple[np.ndarray, np.ndarray]], directory: Path) -> int:
    """Writes the checkpoint; returns its number of parameters."""
    trained, cmvn = trained_model
    write_vocabulary(directory)
    return write_funasr_files(directory, configuration(), FILES, cmvn, trained.state_dict())


class SenseVoiceLoss(nn.Module):
    """CTC on the words or figures, cross-entropy on the four tags."""

    def __init__(self, network: SenseVoiceNetwork):
        super().__init__()
        self.network = network

    def forward(self, batch: Batch, rng: np.random.Generator) -> dict[str, Tensor]:
        """Returns the parts of the loss; every row has newly drawn queries.

        The encoder's first stage has the same CTC loss with a lower weight, so that it finds the alignment sooner (Lee
        and Watanabe, "Intermediate Loss Regularization for CTC-based Speech Recognition", ICASSP 2021).
        """
        figures = rng.random(len(batch.digits)) < FIGURES_SHARE
        queries = torch.tensor([_query(rng, figure) for figure in figures])
        lengths = torch.from_numpy(batch.lengths)
        halfway: list[Tensor] = []

        def tap(stage: str, value: Tensor) -> Tensor:
            if stage == "encoder.after_norm":
                halfway.append(value)
            return value

        logits = self.network(torch.from_numpy(batch.features), queries, lengths, tap)
        tags = torch.tensor([_tags(digits, figure) for digits, figure in zip(batch.digits, figures, strict=True)])
        rich = F.cross_entropy(logits[:, :QUERY_FRAMES].flatten(0, 1), tags.flatten())
        labels = [_labels(digits, figure) for digits, figure in zip(batch.digits, figures, strict=True)]
        middle_logits = self.network.ctc(halfway[0])
        return {
            "ctc": 0.7 * _ctc(logits, labels, lengths),
            "early": 0.3 * _ctc(middle_logits, labels, lengths),
            "tags": 0.3 * rich,
        }


def _ctc(logits: Tensor, labels: Sequence[Sequence[int]], lengths: Tensor) -> Tensor:
    """Returns the CTC loss per label of logits [B, 4 + T, V] after the query positions."""
    scores = F.log_softmax(logits[:, QUERY_FRAMES:], dim=-1).transpose(0, 1)
    counts = torch.tensor([len(label) for label in labels])
    flat = torch.tensor([number for label in labels for number in label])
    loss = F.ctc_loss(scores, flat, lengths, counts, BLANK, reduction="sum", zero_infinity=True)
    return loss / counts.sum().clamp(min=1)


def _query(rng: np.random.Generator, figures: bool) -> list[int]:
    """Draws a language query: mostly auto or English, sometimes another language, so that a wrong choice does no
    harm.
    """
    language = rng.choice(["auto", "en", "other"], p=[0.45, 0.45, 0.1])
    if language == "other":
        language = rng.choice([name for name in LANGUAGE_QUERIES if name not in ("auto", "en")])
    return [
        LANGUAGE_QUERIES[str(language)],
        *EVENT_EMOTION_QUERIES,
        TEXTNORM_QUERIES["withitn" if figures else "woitn"],
    ]


def _tags(digits: Sequence[int], figures: bool) -> list[int]:
    textnorm = "<|withitn|>" if figures else "<|woitn|>"
    tags = ("<|en|>", "<|NEUTRAL|>", "<|Speech|>") if digits else ("<|nospeech|>", "<|EMO_UNKNOWN|>", "<|Event_UNK|>")
    return [PIECES.index(tag) for tag in (*tags, textnorm)]


def _labels(digits: Sequence[int], figures: bool) -> list[int]:
    return [PIECES.index(str(digit) if figures else WORD_START + WORDS[digit]) for digit in digits]


def configuration() -> dict[str, Any]:
    """Returns the contents of config.yaml, in FunASR's form."""
    return {
        "model": "SenseVoiceSmall",
        "model_conf": {"length_normalized_loss": True, "sos": 1, "eos": 2, "ignore_id": -1},
        "encoder": "SenseVoiceEncoderSmall",
        "encoder_conf": {
            "output_size": ENCODER.output_size,
            "attention_heads": ENCODER.attention_heads,
            "linear_units": ENCODER.linear_units,
            "num_blocks": ENCODER.num_blocks,
            "tp_blocks": ENCODER.tp_blocks,
            "dropout_rate": 0.1,
            "positional_dropout_rate": 0.1,
            "attention_dropout_rate": 0.1,
            "input_layer": "pe",
            "pos_enc_class": "SinusoidalPositionEncoder",
            "normalize_before": True,
            "kernel_size": ENCODER.kernel_size,
            "sanm_shfit": ENCODER.sanm_shift,
            "selfattention_layer_type": "sanm",
        },
        "tokenizer": "SentencepiecesTokenizer",
        "tokenizer_conf": {"bpemodel": None, "unk_symbol": "<unk>", "split_with_space": True},
    }


FILES = {
    "init_param": "model.pt",
    "config": "config.yaml",
    "tokenizer_conf": {"bpemodel": "digits.bpe.model"},
    "frontend_conf": {"cmvn_file": "am.mvn"},
}


def write_vocabulary(directory: Path) -> None:
    """Writes the SentencePiece model: every word of the digits is one piece, tags are user-defined symbols."""
    from sentencepiece import sentencepiece_model_pb2

    proto: Any = sentencepiece_model_pb2  # its classes are created at import
    model = proto.ModelProto()
    kinds = proto.ModelProto.SentencePiece
    for number, piece in enumerate(PIECES):
        entry = model.pieces.add()
        entry.piece, entry.score = piece, -float(number) / len(PIECES)
        entry.type = kinds.UNKNOWN if number == 0 else kinds.CONTROL if number < 3 else kinds.NORMAL
        if piece in TAGS:
            entry.type = kinds.USER_DEFINED
    model.trainer_spec.model_type = proto.TrainerSpec.UNIGRAM
    model.trainer_spec.vocab_size = len(PIECES)
    model.trainer_spec.unk_id, model.trainer_spec.bos_id, model.trainer_spec.eos_id = 0, 1, 2
    model.trainer_spec.pad_id = -1
    model.normalizer_spec.name = "identity"
    model.normalizer_spec.add_dummy_prefix = True
    model.normalizer_spec.escape_whitespaces = True
    (directory / "digits.bpe.model").write_bytes(model.SerializeToString())
