"""Writes checkpoint directories in FunASR's published format, with seeded random weights, at any size.

For tests and benchmarks that need the real dimensions without the real weights. The weights are drawn so that nothing
degenerates on speech: frames differ, the CTC path mixes blanks and many tokens, CIF counts about as many tokens as
speech has, every norm and bias matters. Calibration runs the workbench's own network over a synthetic voice; the
original package is not needed. This file compares nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from torch import Tensor

from tests.reference.drawn_weights import (
    SAMPLE_RATE,
    calibrate_branch,
    calibrate_paraformer,
    calibrate_sensevoice,
    fill,
)
from tests.reference.vocabularies import TAG_IDS, character_pieces, paraformer_tokens, trained_pieces
from workbench.families.sanm.paraformer import read_paraformer
from workbench.families.sanm.sensevoice import read_sensevoice
from workbench.runtimes.pytorch.networks.seaco import SeacoBranch
from workbench.runtimes.pytorch.paraformer import ParaformerNetwork
from workbench.runtimes.pytorch.sensevoice import SenseVoiceNetwork

MELS, LFR_M, LFR_N = 80, 7, 6


@dataclass(frozen=True)
class EncoderSize:
    """Dimensions of a SAN-M encoder; the defaults are the published ones."""

    width: int = 512
    heads: int = 4
    units: int = 2048
    blocks: int = 50
    kernel: int = 11
    shift: int = 0


@dataclass(frozen=True)
class SenseVoiceSize:
    """SenseVoiceSmall: 917 tensors, 234 million parameters."""

    encoder: EncoderSize = EncoderSize()
    tp_blocks: int = 20
    vocabulary: int = 25055


@dataclass(frozen=True)
class ParaformerSize:
    """Paraformer-large: 956 tensors with CifPredictorV2, 968 with CifPredictorV3; 220 and 225 million parameters."""

    encoder: EncoderSize = EncoderSize()
    decoder_heads: int = 4
    decoder_units: int = 2048
    decoder_blocks: int = 16
    decoder_attending: int = 16  # fewer than blocks: the rest are layers without attention (`decoders2`)
    decoder_kernel: int = 11
    vocabulary: int = 8404


SMALL_ENCODER = EncoderSize(width=64, heads=4, units=128, blocks=4)
SMALL_SENSEVOICE = SenseVoiceSize(SMALL_ENCODER, tp_blocks=2, vocabulary=800)
SMALL_PARAFORMER = ParaformerSize(SMALL_ENCODER, 4, 128, 3, 3, 11, 300)
# Two decoder layers without attention (`decoders2`), other kernels, a shifted encoder memory.
ODD_PARAFORMER = ParaformerSize(EncoderSize(48, 2, 80, 3, kernel=7, shift=1), 3, 96, 4, 2, 5, 200)

# Files ---------------------------------------------------------------------------------------------------------------


def write_sensevoice(
    directory: Path,
    size: SenseVoiceSize = SenseVoiceSize(),
    seed: int = 0,
    *,
    cmvn: bool = True,
    configuration: bool = True,
    save: Callable[[dict[str, Tensor], Path], object] = torch.save,
) -> Path:
    """Writes a SenseVoiceSmall checkpoint to the new folder `directory`; returns the folder.

    Args:
        directory: to write to.
        size: dimensions; a vocabulary of the published size gets the published tag ids and single characters as
            pieces, any other a SentencePiece model trained on a small text.
        seed: of all weights.
        cmvn: whether to write `am.mvn`.
        configuration: whether to write ModelScope's `configuration.json`; FunASR then takes the file names from it.
        save: writes the state dict to a path.
    """
    directory.mkdir(parents=True, exist_ok=True)
    bpe = "chn_jpn_yue_eng_ko_spectok.bpe.model" if configuration else "bpe.model"
    pieces = character_pieces if size.vocabulary > max(TAG_IDS.values()) else trained_pieces
    (directory / bpe).write_bytes(pieces(size.vocabulary))
    config = {
        "encoder": "SenseVoiceEncoderSmall",
        "encoder_conf": {**_encoder_conf(size.encoder), "tp_blocks": size.tp_blocks},
        "model": "SenseVoiceSmall",
        "model_conf": {"length_normalized_loss": True, "sos": 1, "eos": 2, "ignore_id": -1},
        "tokenizer": "SentencepiecesTokenizer",
        "tokenizer_conf": {"bpemodel": None, "unk_symbol": "<unk>", "split_with_space": True},
        "frontend": "WavFrontend",
        "frontend_conf": _frontend_conf(),
    }
    _write_config(directory, config, {"tokenizer_conf": {"bpemodel": bpe}}, cmvn, configuration)
    (directory / "model.pt").touch()  # the reader needs it; replaced below
    model = read_sensevoice(directory)
    network = SenseVoiceNetwork(model.encoder, len(model.vocabulary)).eval()
    fill(network, seed)
    calibrate_sensevoice(network, model)
    save(dict(network.state_dict()), directory / "model.pt")
    return directory


def _seaco_decoder_conf(size: ParaformerSize) -> dict[str, Any]:
    return {
        "attention_heads": size.decoder_heads,
        "linear_units": size.decoder_units // 2,
        "num_blocks": 4,
        "kernel_size": 21,
        "sanm_shfit": 0,
        "use_output_layer": False,
        "wo_input_layer": True,
    }


def write_paraformer(
    directory: Path,
    size: ParaformerSize = ParaformerSize(),
    seed: int = 0,
    *,
    predictor: str = "CifPredictorV2",
    upsample_type: str = "cnn_blstm",
    use_cif1_cnn: bool = False,
    cmvn: bool = True,
    configuration: bool = True,
    seaco: Mapping[str, Any] | None = None,
    save: Callable[[dict[str, Tensor], Path], object] = torch.save,
) -> Path:
    """Writes a Paraformer checkpoint (BiCifParaformer with CifPredictorV3) to `directory`; returns the folder.

    `upsample_type` and `use_cif1_cnn` are CifPredictorV3's, `seaco` changes the configuration of SeACo's hotword
    branch (None for a checkpoint without one); the other arguments are as in `write_sensevoice`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    fine = predictor == "CifPredictorV3"
    predictor_conf: dict[str, Any] = {
        "idim": size.encoder.width,
        "threshold": 1.0,
        "l_order": 1,
        "r_order": 1,
        "tail_threshold": 0.45,
    }
    if fine:
        predictor_conf |= {
            "smooth_factor2": 0.25,
            "noise_threshold2": 0.01,
            "upsample_times": 3,
            "use_cif1_cnn": use_cif1_cnn,
            "upsample_type": upsample_type,
        }
    config = {
        "model": "BiCifParaformer" if fine else "Paraformer",
        "model_conf": {
            "ctc_weight": 0.0,
            "lsm_weight": 0.1,
            "length_normalized_loss": True,
            "predictor_weight": 1.0,
            "predictor_bias": 1,
            "sampling_ratio": 0.75,
        },
        "encoder": "SANMEncoder",
        "encoder_conf": _encoder_conf(size.encoder),
        "decoder": "ParaformerSANMDecoder",
        "decoder_conf": {
            "attention_heads": size.decoder_heads,
            "linear_units": size.decoder_units,
            "num_blocks": size.decoder_blocks,
            "att_layer_num": size.decoder_attending,
            "kernel_size": size.decoder_kernel,
            "sanm_shfit": 0,
            "dropout_rate": 0.1,
            "positional_dropout_rate": 0.1,
            "self_attention_dropout_rate": 0.1,
            "src_attention_dropout_rate": 0.1,
        },
        "predictor": predictor,
        "predictor_conf": predictor_conf,
        "tokenizer": "CharTokenizer",
        "tokenizer_conf": {"unk_symbol": "<unk>", "split_with_space": True},
        "frontend": "WavFrontend",
        "frontend_conf": _frontend_conf(),
    }
    if seaco is not None:
        config |= {"model": "SeacoParaformer", "seaco_decoder": "ParaformerSANMDecoder"}
        config["seaco_decoder_conf"] = _seaco_decoder_conf(size)
        config["model_conf"] |= {"inner_dim": size.encoder.width, "bias_encoder_type": "lstm"}
        config["model_conf"] |= {"bias_encoder_bid": False, "NO_BIAS": size.vocabulary - 27, **seaco}
    tokens = paraformer_tokens(size.vocabulary)
    (directory / "tokens.json").write_text(json.dumps(tokens, ensure_ascii=False, indent=0), encoding="utf-8")
    (directory / "seg_dict").write_text("".join(f"{piece} {piece}\n" for piece in tokens[3:20]), encoding="utf-8")
    files = {"tokenizer_conf": {"token_list": "tokens.json", "seg_dict_file": "seg_dict"}}
    _write_config(directory, config, files, cmvn, configuration)
    (directory / "model.pt").touch()
    model = read_paraformer(directory)
    network = ParaformerNetwork(model.encoder, model.predictor, model.decoder, len(model.vocabulary)).eval()
    fill(network, seed)
    calibrate_paraformer(network, model)
    tensors = dict(network.state_dict())
    if model.seaco is not None:
        branch = SeacoBranch(model.seaco, size.vocabulary).eval()
        fill(branch, seed + 2)
        calibrate_branch(branch, network, model)
        tensors |= branch.state_dict()
    embedding = torch.empty(size.vocabulary, size.encoder.width)  # without hotwords, it is used in training only
    tensors["decoder.embed.0.weight"] = embedding.normal_(generator=torch.Generator().manual_seed(seed + 1))
    save(tensors, directory / "model.pt")
    return directory


def _encoder_conf(size: EncoderSize) -> dict[str, Any]:
    return {
        "output_size": size.width,
        "attention_heads": size.heads,
        "linear_units": size.units,
        "num_blocks": size.blocks,
        "dropout_rate": 0.1,
        "positional_dropout_rate": 0.1,
        "attention_dropout_rate": 0.1,
        "input_layer": "pe",
        "pos_enc_class": "SinusoidalPositionEncoder",
        "normalize_before": True,
        "kernel_size": size.kernel,
        "sanm_shfit": size.shift,
        "selfattention_layer_type": "sanm",
    }


def _frontend_conf() -> dict[str, Any]:
    return {
        "fs": SAMPLE_RATE,
        "window": "hamming",
        "n_mels": MELS,
        "frame_length": 25,
        "frame_shift": 10,
        "lfr_m": LFR_M,
        "lfr_n": LFR_N,
        "cmvn_file": None,
    }


def _write_config(
    directory: Path, config: dict[str, Any], files: dict[str, Any], cmvn: bool, configuration: bool
) -> None:
    (directory / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    if cmvn:
        (directory / "am.mvn").write_text(am_mvn(*cmvn_vectors()), encoding="utf-8")
    if configuration:
        metas = {"init_param": "model.pt", "config": "config.yaml", **files}
        if cmvn:
            metas["frontend_conf"] = {"cmvn_file": "am.mvn"}
        content = {
            "framework": "pytorch",
            "task": "auto-speech-recognition",
            "model": {"type": "funasr"},
            "pipeline": {"type": "funasr-pipeline"},
            "file_path_metas": metas,
        }
        (directory / "configuration.json").write_text(json.dumps(content, indent=2), encoding="utf-8")


def cmvn_vectors() -> tuple[np.ndarray, np.ndarray]:
    """Shift and scale [560], about the published ones: the lowest bands quieter; 80 values repeated 7 times."""
    band = np.linspace(0.0, 1.0, MELS)
    shift = -8.31 - 6.2 * (1 - np.exp(-12 * band))
    scale = 0.1436 + 0.012 * np.exp(-12 * band)
    return np.tile(shift, LFR_M).astype(np.float32), np.tile(scale, LFR_M).astype(np.float32)


def am_mvn(shift: np.ndarray, scale: np.ndarray) -> str:
    """The text of a Kaldi nnet with these two vectors, as FunASR publishes it."""

    def vector(values: Iterable[float]) -> str:
        return f"<LearnRateCoef> 0 [ {' '.join(f'{value:.7g}' for value in values)} ]\n"

    n = len(shift)
    return (
        f"<Nnet> \n<Splice> {n} {n} \n[ 0 ]\n<AddShift> {n} {n} \n{vector(shift)}"
        f"<Rescale> {n} {n} \n{vector(scale)}</Nnet> \n"
    )
