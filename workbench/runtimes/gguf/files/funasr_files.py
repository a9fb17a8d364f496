"""Writes the `config.yaml` that a GGUF file in FunASR's own layout corresponds to.

Dimensions come from the shapes of the tensors; a key that contradicts them is refused. Values that shapes do not show
come from the keys; for a missing key, the default of FunASR's C++ runtime is used.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import yaml

from workbench.audio.constants import NUM_MELS, VAD_LFR_M, VAD_LFR_N
from workbench.core.errors import BadInput
from workbench.families import load
from workbench.families.gguf_files import architectures
from workbench.families.sanm.paraformer import MARKERS
from workbench.formats.gguf_file import GgufFile
from workbench.runtimes.gguf.networks.cmvn import am_mvn, read_cmvn

ENCODER_HEADS, ADAPTOR_HEADS = 4, 8
LFR_M, LFR_N = 7, 6
TAIL_THRESHOLD, THRESHOLD = 0.45, 1.0
# The published values of BiCif's second head, for which there are no keys.
FINE_SMOOTH_FACTOR, FINE_NOISE_THRESHOLD = 0.25, 0.01
MODEL, YAML, TOKENS, MVN = "model", "config.yaml", "tokens.json", "am.mvn"


@dataclass(frozen=True)
class Layout:
    """FunASR's layout of one architecture. A family's descriptor names it (`workbench.families.family.GgufParts`)."""

    configuration: Callable[[GgufFile], dict[str, Any]]  # what stands in `config.yaml`
    prefix: str = ""  # of the keys that hold the vocabulary; empty where the file has none
    matrix: str = ""  # the tensor with a row for each piece of the vocabulary
    markers: tuple[str, ...] = ()  # first pieces of a vocabulary that the file does not have

    @property
    def vocabulary(self) -> str:
        """The key of the vocabulary."""
        return f"{self.prefix}.vocab"


def layout_of(file: GgufFile) -> Layout | None:
    """Returns the layout of a file of FunASR's programs; None for an architecture that they do not write."""
    family = architectures().get(file.architecture)
    place = family.gguf.layouts.get(file.architecture) if family else None
    return load(place) if place else None


def funasr_files(file: GgufFile, language: str = "") -> dict[str, bytes]:
    """Returns the small files of a checkpoint by name, as a file in one of FunASR's layouts describes them.

    Args:
        language: the directory of the language model, which Fun-ASR-Nano's configuration names.

    Raises `BadInput` if keys and tensors contradict each other, or if something needed is missing.
    """
    layout = layout_of(file)
    if layout is None:
        raise BadInput(f"{file.name} is of architecture {file.architecture!r:.80}, which FunASR has no layout for")
    config = layout.configuration(file)
    if language:
        config["llm_conf"] = {"init_param_path": language}
    files = {YAML: yaml.safe_dump(config, sort_keys=False).encode()}
    if layout.prefix:
        files[TOKENS] = json.dumps(_pieces(file, layout), ensure_ascii=False).encode()
    cmvn, _ = read_cmvn(file)
    if cmvn is not None:
        files[MVN] = am_mvn(cmvn).encode()
    return files


def vocabulary_note(file: GgufFile) -> str | None:
    """Returns a note if a file that should have a vocabulary has none, else None."""
    layout = layout_of(file)
    if layout is None or not layout.prefix:
        return None
    if layout.vocabulary in file.metadata or "workbench.files" in file.metadata:
        return None
    return f"{file.name} has no vocabulary ({layout.vocabulary}); its text shows the numbers of tokens, such as <123>"


def _pieces(file: GgufFile, layout: Layout) -> list[str]:
    size = _checked_size(file, f"{layout.prefix}.vocab_size", layout.matrix, 0, 2)
    pieces = file.texts(layout.vocabulary)
    if pieces is None:
        markers = layout.markers
        return [*markers, *(f"<{number}>" for number in range(len(markers), size))][:size]
    if len(pieces) != size:
        raise BadInput(
            f"{layout.vocabulary} in {file.name} has {len(pieces)} pieces, and tensor {layout.matrix} has {size} rows"
        )
    return pieces


def _sensevoice(file: GgufFile) -> dict[str, Any]:
    return {
        MODEL: "SenseVoiceSmall",
        "model_conf": {"blank_id": file.whole("sv.blank_id", 0)},
        "encoder": "SenseVoiceEncoderSmall",
        "encoder_conf": _encoder(file, "sv.", "encoder."),
        "frontend_conf": _frontend(file, "encoder.encoders0.0.norm1.weight", "sv.input_size"),
    }


def _paraformer(file: GgufFile) -> dict[str, Any]:
    has_fine_times = "predictor.upsample_cnn.weight" in file.tensors
    encoder = _encoder(file, "pf.enc.", "encoder.")
    return {
        MODEL: "BiCifParaformer" if has_fine_times else "Paraformer",
        "encoder": "SANMEncoder",
        "encoder_conf": encoder,
        "decoder": "ParaformerSANMDecoder",
        "decoder_conf": _decoder(file),
        "predictor": "CifPredictorV3" if has_fine_times else "CifPredictorV2",
        "predictor_conf": _predictor(file, encoder["output_size"], has_fine_times),
        "frontend_conf": _frontend(file, "encoder.encoders0.0.norm1.weight"),
    }


def _nano(file: GgufFile) -> dict[str, Any]:
    encoder = _encoder(file, "funasr.enc.", "audio_encoder.")
    return {
        MODEL: "FunASRNano",
        "audio_encoder": "SenseVoiceEncoderSmall",
        "audio_encoder_conf": encoder,
        "audio_adaptor": "Transformer",
        "audio_adaptor_conf": _adaptor(file, encoder["output_size"]),
        "frontend_conf": _frontend(
            file, "audio_encoder.encoders0.0.norm1.weight", "funasr.enc.input_size", "funasr.frontend."
        ),
    }


def _fsmn_vad(file: GgufFile) -> dict[str, Any]:
    if read_cmvn(file)[0] is None:
        raise BadInput(f"{file.name} has no tensors cmvn.shift and cmvn.scale; FSMN-VAD needs its CMVN")
    first, memory = "encoder.in_linear1.linear.weight", "encoder.fsmn.0."
    dimensions = {
        "input_dim": (first, 1),
        "input_affine_dim": (first, 0),
        "linear_dim": ("encoder.in_linear2.linear.weight", 0),
        "proj_dim": (f"{memory}linear.linear.weight", 0),
        "lorder": (f"{memory}fsmn_block.conv_left.weight", 0),
        "output_affine_dim": ("encoder.out_linear1.linear.weight", 0),
        "output_dim": ("encoder.out_linear2.linear.weight", 0),
    }
    encoder = {key: _checked_size(file, f"vad.{key}", tensor, axis, 2) for key, (tensor, axis) in dimensions.items()}
    layers = _blocks(file, "vad.fsmn_layers", "encoder.fsmn.", "linear.linear.weight")
    return {
        MODEL: "FsmnVADStreaming",
        "encoder": "FSMN",
        "encoder_conf": {**encoder, "fsmn_layers": layers, "lstride": 1, "rorder": 0},
        "frontend_conf": _frontend(file, first, "vad.input_dim", "vad.", VAD_LFR_M, VAD_LFR_N),
    }


def _encoder(file: GgufFile, keys: str, tensors: str) -> dict[str, Any]:
    """Returns `encoder_conf` of a SAN-M encoder."""
    first = f"{tensors}encoders0.0."
    second_stage = f"{tensors}tp_encoders.0.norm1.weight" in file.tensors or file.whole(f"{keys}tp_blocks", 0)
    return {
        "output_size": _checked_size(file, f"{keys}output_size", f"{first}feed_forward.w_1.weight", 1, 2),
        "attention_heads": file.whole(f"{keys}attention_heads", ENCODER_HEADS, 1),
        "linear_units": _checked_size(file, f"{keys}linear_units", f"{first}feed_forward.w_1.weight", 0, 2),
        "num_blocks": _blocks(file, f"{keys}num_blocks", f"{tensors}encoders.", "norm1.weight", before=1),
        **({"tp_blocks": _blocks(file, f"{keys}tp_blocks", f"{tensors}tp_encoders.")} if second_stage else {}),
        "input_layer": "pe",
        "normalize_before": True,
        "kernel_size": _checked_size(file, f"{keys}kernel_size", f"{first}self_attn.fsmn_block.weight", 0, 2),
        "sanm_shfit": file.whole(f"{keys}sanm_shfit", 0),
        "selfattention_layer_type": "sanm",
    }


def _decoder(file: GgufFile) -> dict[str, Any]:
    first = "decoder.decoders.0."
    attention_layers = _blocks(file, "pf.dec.att_layer_num", "decoder.decoders.")
    _blocks(file, "pf.dec.decoders3", "decoder.decoders3.")
    return {
        "attention_heads": file.whole("pf.dec.attention_heads", ENCODER_HEADS, 1),
        "linear_units": _shape(file, f"{first}feed_forward.w_1.weight", 2)[0],
        "num_blocks": _blocks(file, "pf.dec.num_blocks", "decoder.decoders2.", before=attention_layers),
        "att_layer_num": attention_layers,
        "normalize_before": True,
        "kernel_size": _checked_size(file, "pf.dec.kernel_size", f"{first}self_attn.fsmn_block.weight", 0, 2),
        "sanm_shfit": 0,
    }


def _predictor(file: GgufFile, width: int, has_fine_times: bool) -> dict[str, Any]:
    taps = _shape(file, "predictor.cif_conv1d.weight", 3)[2]
    config = {
        "idim": width,
        "threshold": _decimal(file.number("pf.predictor.threshold", THRESHOLD)),
        "l_order": (taps - 1) // 2,
        "r_order": taps // 2,
        "tail_threshold": _decimal(file.number("pf.predictor.tail_threshold", TAIL_THRESHOLD)),
    }
    if not has_fine_times:
        return config
    return config | {
        "smooth_factor2": FINE_SMOOTH_FACTOR,
        "noise_threshold2": FINE_NOISE_THRESHOLD,
        "upsample_times": _shape(file, "predictor.upsample_cnn.weight", 3)[2],
        "upsample_type": "cnn_blstm" if "predictor.blstm.weight_ih_l0" in file.tensors else "cnn",
        "use_cif1_cnn": False,
    }


def _adaptor(file: GgufFile, encoder_width: int) -> dict[str, Any]:
    first, second, keys = "audio_adaptor.linear1.weight", "audio_adaptor.linear2.weight", "funasr.adp."
    input_width = _shape(file, first, 2)[1]
    rate = file.whole(f"{keys}downsample_rate", 1, 1)
    width = file.whole(f"{keys}encoder_dim", encoder_width, 1)
    if (width, width * rate) != (encoder_width, input_width):
        raise BadInput(
            f"{keys}encoder_dim {width} and {keys}downsample_rate {rate} in {file.name} do not fit an encoder of width "
            f"{encoder_width} and tensor {first}, which takes {input_width} values"
        )
    return {
        "downsample_rate": rate,
        "use_low_frame_rate": True,
        "encoder_dim": width,
        "ffn_dim": _checked_size(file, f"{keys}ffn_dim", first, 0, 2),
        "llm_dim": _checked_size(file, f"{keys}llm_dim", second, 0, 2),
        "n_layer": _blocks(file, f"{keys}n_layer", "audio_adaptor.blocks."),
        "attention_heads": file.whole(f"{keys}attention_heads", ADAPTOR_HEADS, 1),
    }


def _frontend(
    file: GgufFile, tensor: str, size_key: str | None = None, keys: str = "", lfr_m: int = LFR_M, lfr_n: int = LFR_N
) -> dict[str, Any]:
    """Returns `frontend_conf`; the last axis of `tensor` has the width of a stack of frames."""
    shape = _shape(file, tensor)
    size = shape[-1] if size_key is None else _checked_size(file, size_key, tensor, -1, len(shape))
    # For layouts without front-end keys, FunASR's C++ runtime supports only the published front end.
    values = {"n_mels": NUM_MELS, "lfr_m": lfr_m, "lfr_n": lfr_n}
    if keys:
        values = {key: file.whole(f"{keys}{key}", default, 1) for key, default in values.items()}
    if values["n_mels"] * values["lfr_m"] != size:
        stacked = f"{values['lfr_m']} stacked frames of {values['n_mels']} mel bands"
        raise BadInput(f"tensor {tensor} in {file.name} has the shape {shape}, and {stacked} are its features")
    return {"fs": 16000, "window": "hamming", "frame_length": 25, "frame_shift": 10, **values}


def _shape(file: GgufFile, tensor: str, dimensions: int | None = None) -> tuple[int, ...]:
    info = file.tensors.get(tensor)
    if info is None:
        raise BadInput(f"{file.name} has no tensor {tensor}; a file of architecture {file.architecture} has one")
    if len(info.shape) != dimensions and (dimensions or not info.shape):
        raise BadInput(f"tensor {tensor} in {file.name} has the shape {info.shape}; expected {dimensions} dimensions")
    return info.shape


def _checked_size(file: GgufFile, key: str, tensor: str, axis: int, dimensions: int) -> int:
    """Returns a dimension of a tensor; if the key exists, it must state the same."""
    shape = _shape(file, tensor, dimensions)
    value = file.whole(key, shape[axis], 1)
    if value != shape[axis]:
        raise BadInput(f"{key} in {file.name} is {value}, and tensor {tensor} has the shape {shape}")
    return value


def _blocks(file: GgufFile, key: str, prefix: str, member: str = "norm1.weight", before: int = 0) -> int:
    """Returns the number of blocks that have tensors, plus `before`; if the key exists, it must state the same."""
    count = 0
    while f"{prefix}{count}.{member}" in file.tensors:
        count += 1
    stated = file.whole(key, before + count)
    if stated != before + count:
        counted = f"{count} blocks {prefix}N" + (f" after {before} others" if before else "")
        raise BadInput(f"{key} in {file.name} is {stated}, and it has the tensors of {counted}")
    return stated


def _decimal(value: float) -> float:
    """Returns the shortest decimal number with this float32 value, as the layout stores float32: 0.45, not
    0.449999988.
    """
    return float(str(np.float32(value)))


SENSEVOICE = Layout(_sensevoice, "sv", "ctc.ctc_lo.weight")
PARAFORMER = Layout(_paraformer, "pf", "decoder.output_layer.weight", MARKERS)
NANO_ENCODER_FILE = Layout(_nano)
FSMN_VAD = Layout(_fsmn_vad)
