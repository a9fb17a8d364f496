"""The demo Paraformer: its dimensions, vocabulary and loss.

The loss is cross-entropy on the decoder's tokens including the end symbol (`predictor_bias` 1), the predictor's error
in the number of tokens, and CTC with a head on the encoder that exists only in training, so that frames align with
tokens.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from workbench.families.sanm.decoder import DecoderConfig
from workbench.families.sanm.encoder import SanmConfig
from workbench.families.sanm.paraformer import NORM_EPS, CifConfig
from workbench.runtimes.pytorch.networks.cif import fire
from workbench.runtimes.pytorch.paraformer import ParaformerNetwork
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
    tp_blocks=0,
    kernel_size=11,
    sanm_shift=0,
    norm_eps=NORM_EPS,
)
PREDICTOR = CifConfig(
    width=144, left_order=1, right_order=1, tail_threshold=0.45, smooth_factor=1.0, noise_threshold=0.0
)
DECODER = DecoderConfig(
    attention_heads=4, linear_units=256, num_blocks=2, att_layer_num=2, kernel_size=11, sanm_shift=0
)
PIECES = ("<blank>", "<s>", "</s>", *WORDS, "<unk>")
BLANK, END = 0, 2
ABOUT = ""
FINISHING_ROUNDS = 1  # over tightly cut strings, after the main training


def network(dropout: float) -> ParaformerNetwork:
    """Returns an untrained network of the demo's dimensions."""
    return ParaformerNetwork(ENCODER, PREDICTOR, DECODER, len(PIECES), dropout)


def train(run: TrainingRun) -> tuple[nn.Module, tuple[np.ndarray, np.ndarray]]:
    """Trains the network; returns it and its CMVN."""
    return train_recogniser(run, network, ParaformerLoss, FINISHING_ROUNDS)


def train_further(run: TrainingRun, directory: Path) -> tuple[nn.Module, tuple[np.ndarray, np.ndarray]]:
    """Trains the checkpoint in the directory further; returns the network and its CMVN."""
    return train_recogniser_further(run, directory, network(MAIN.dropout), ParaformerLoss, lambda loss: loss.ctc)


def write(trained_model: tuple[nn.Module, tuple[np.ndarray, np.ndarray]], directory: Path) -> int:
    """Writes the checkpoint; returns its number of parameters."""
    trained, cmvn = trained_model
    write_vocabulary(directory)
    return write_funasr_files(directory, configuration(), FILES, cmvn, trained.state_dict())


class ParaformerLoss(nn.Module):
    """Decoder cross-entropy, token count, and CTC on the encoder."""

    def __init__(self, network: ParaformerNetwork):
        super().__init__()
        self.network = network
        self.ctc = nn.Linear(ENCODER.output_size, len(PIECES))

    def forward(self, batch: Batch, rng: np.random.Generator) -> dict[str, Tensor]:
        """Returns the three parts of the loss."""
        lengths = torch.from_numpy(batch.lengths)
        words = [[PIECES.index(WORDS[digit]) for digit in digits] for digits in batch.digits]
        encoded = self.network.encoder(torch.from_numpy(batch.features), lengths)
        alphas = self.network.predictor.alphas(encoded, lengths)

        counts = torch.tensor([len(label) + 1 for label in words])
        count_error = (alphas.sum(dim=1) - counts).abs().sum() / counts.sum()
        # In training, the decoder gets the true number of tokens.
        scaled = alphas * (counts / alphas.sum(dim=1).clamp(min=1e-4))[:, None]
        embeddings = fire(encoded, scaled, int(counts.max()))
        logits = self.network.decoder(encoded, lengths, embeddings, counts)
        targets = torch.full(logits.shape[:2], -100)
        for row, label in enumerate(words):
            targets[row, : len(label) + 1] = torch.tensor([*label, END])
        cross_entropy = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)

        scores = F.log_softmax(self.ctc(encoded), dim=-1).transpose(0, 1)
        flat = torch.tensor([number for label in words for number in label])
        ctc = F.ctc_loss(scores, flat, lengths, counts - 1, BLANK, reduction="sum", zero_infinity=True)
        return {"tokens": cross_entropy, "count": count_error, "ctc": 0.5 * ctc / (counts - 1).sum().clamp(min=1)}


def configuration() -> dict[str, Any]:
    """Returns the contents of config.yaml, in FunASR's form."""
    return {
        "model": "Paraformer",
        "model_conf": {"ctc_weight": 0.0, "lsm_weight": 0.0, "length_normalized_loss": True, "predictor_weight": 1.0}
        | {"predictor_bias": 1, "sampling_ratio": 0.0},
        "encoder": "SANMEncoder",
        "encoder_conf": {
            "output_size": ENCODER.output_size,
            "attention_heads": ENCODER.attention_heads,
            "linear_units": ENCODER.linear_units,
            "num_blocks": ENCODER.num_blocks,
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
        "decoder": "ParaformerSANMDecoder",
        "decoder_conf": {
            "attention_heads": DECODER.attention_heads,
            "linear_units": DECODER.linear_units,
            "num_blocks": DECODER.num_blocks,
            "att_layer_num": DECODER.att_layer_num,
            "kernel_size": DECODER.kernel_size,
            "sanm_shfit": DECODER.sanm_shift,
            "wo_input_layer": True,
        },
        "predictor": "CifPredictorV2",
        "predictor_conf": {
            "idim": PREDICTOR.width,
            "threshold": 1.0,
            "l_order": PREDICTOR.left_order,
            "r_order": PREDICTOR.right_order,
            "tail_threshold": PREDICTOR.tail_threshold,
        },
        "tokenizer": "CharTokenizer",
        "tokenizer_conf": {"unk_symbol": "<unk>", "split_with_space": True},
    }


FILES = {
    "init_param": "model.pt",
    "config": "config.yaml",
    "tokenizer_conf": {"token_list": "tokens.json"},
    "frontend_conf": {"cmvn_file": "am.mvn"},
}


def write_vocabulary(directory: Path) -> None:
    """Writes the list of tokens."""
    (directory / "tokens.json").write_text(json.dumps(PIECES, indent=0) + "\n", encoding="utf-8")
