"""Writes GGUF files in FunASR's own layouts, as its export scripts write them, of tiny checkpoints.

The dimensions among the keys are those of the checkpoint; in the scripts they are constants of the published models.
All else is as there, faults included: SenseVoice gets CMVN tensors that nobody can use, and its f16 files an
`embed.weight` that their own runtime misreads.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from gguf import GGMLQuantizationType, GGUFWriter, quants

from workbench.audio.cmvn import Cmvn

Skip = Callable[[str], bool]
_Q8_0 = GGMLQuantizationType.Q8_0


def random_cmvn(width: int, seed: int = 1) -> Cmvn:
    """Vectors of the size that speech has."""
    draw = np.random.default_rng(seed)
    shift, scale = draw.uniform(-15, -8, width), draw.uniform(0.14, 0.16, width)
    return Cmvn(shift.astype(np.float32), scale.astype(np.float32))


def funasr_sensevoice(
    directory: Path, path: Path, wtype: str = "f32", vocabulary: bool = True, cmvn: Cmvn | None = None
) -> Path:
    """A `sensevoice-small` file of a checkpoint directory, with the unusable CMVN of the script; returns the path."""
    config, tensors = _read(directory)
    encoder = config["encoder_conf"]
    writer = GGUFWriter(path, "sensevoice-small")
    writer.add_uint32("sv.input_size", 560)
    _put_whole(writer, "sv.", encoder, ("output_size", "attention_heads", "num_blocks", "tp_blocks", "kernel_size"))
    writer.add_uint32("sv.vocab_size", len(tensors["ctc.ctc_lo.weight"]))
    writer.add_uint32("sv.blank_id", 0)
    writer.add_array("sv.query_tokens", [0, 1, 2, 14])
    if vocabulary:
        writer.add_array("sv.vocab", json.loads((directory / "tokens.json").read_text(encoding="utf-8")))
    shift = random_cmvn(560) if cmvn is None else cmvn
    writer.add_tensor("cmvn.shift", np.zeros(1, np.float32))  # the block behind <Splice>
    writer.add_tensor("cmvn.scale", shift.shift)  # the block behind <AddShift>
    kept = {name: each for name, each in tensors.items() if name.startswith(("encoder.", "ctc.", "embed.weight"))}
    _put_tensors(writer, kept, wtype, exact_q8_0=lambda name: name == "embed.weight")
    return _write(writer, path)


def funasr_paraformer(
    directory: Path, path: Path, wtype: str = "f32", vocabulary: bool = True, cmvn: Cmvn | None = None
) -> Path:
    """A `paraformer` file of a checkpoint directory; returns the path."""
    config, tensors = _read(directory)
    encoder, decoder = config["encoder_conf"], config["decoder_conf"]
    writer = GGUFWriter(path, "paraformer")
    _put_whole(writer, "pf.enc.", encoder, ("output_size", "attention_heads", "num_blocks", "kernel_size"))
    _put_whole(writer, "pf.dec.", decoder, ("num_blocks", "att_layer_num"))
    writer.add_uint32("pf.dec.decoders3", 1)
    _put_whole(writer, "pf.dec.", decoder, ("attention_heads", "kernel_size"))
    writer.add_uint32("pf.vocab_size", len(tensors["decoder.output_layer.weight"]))
    if vocabulary:
        writer.add_array("pf.vocab", json.loads((directory / "tokens.json").read_text(encoding="utf-8")))
    writer.add_float32("pf.predictor.tail_threshold", 0.45)
    writer.add_float32("pf.predictor.threshold", 1.0)
    _put_cmvn(writer, random_cmvn(560) if cmvn is None else cmvn)
    kept = {
        name: each
        for name, each in tensors.items()
        if name.startswith(("encoder.", "decoder.", "predictor.")) and name != "decoder.embed.0.weight"
    }
    _put_tensors(writer, kept, wtype, lambda name: "cif_output" in name, lambda name: "predictor" in name)
    return _write(writer, path)


def funasr_nano_encoder(directory: Path, path: Path, wtype: str = "f32") -> Path:
    """A `funasr-sensevoice-encoder` file of a Fun-ASR-Nano directory; returns the path."""
    config, tensors = _read(directory)
    encoder, adaptor = config["audio_encoder_conf"], config["audio_adaptor_conf"]
    frontend = config["frontend_conf"]
    writer = GGUFWriter(path, "funasr-sensevoice-encoder")
    writer.add_uint32("funasr.enc.input_size", frontend["n_mels"] * frontend["lfr_m"])
    names = ("output_size", "attention_heads", "linear_units", "num_blocks", "tp_blocks", "kernel_size", "sanm_shfit")
    _put_whole(writer, "funasr.enc.", encoder, names)
    _put_whole(writer, "funasr.adp.", adaptor, ("llm_dim", "encoder_dim", "ffn_dim", "n_layer"))
    writer.add_uint32("funasr.adp.attention_heads", adaptor.get("attention_heads", 8))
    _put_whole(writer, "funasr.adp.", adaptor, ("downsample_rate",))
    _put_whole(writer, "funasr.frontend.", frontend, ("n_mels", "lfr_m", "lfr_n"))
    kept = {name: each for name, each in tensors.items() if name.startswith(("audio_encoder.", "audio_adaptor."))}
    _put_tensors(writer, kept, wtype)
    return _write(writer, path)


def funasr_vad(path: Path, encoder: Mapping[str, int], cmvn: Cmvn | None = None, seed: int = 1) -> Path:
    """An `fsmn-vad` file with random weights of these dimensions (`encoder_conf`'s names); returns the path."""
    writer = GGUFWriter(path, "fsmn-vad")
    _put_whole(writer, "vad.", encoder, ("input_dim", "input_affine_dim", "linear_dim", "proj_dim", "fsmn_layers"))
    _put_whole(writer, "vad.", encoder, ("lorder", "output_affine_dim", "output_dim"))
    for key, value in (("n_mels", 80), ("lfr_m", encoder["input_dim"] // 80), ("lfr_n", 1)):
        writer.add_uint32(f"vad.{key}", value)
    _put_cmvn(writer, random_cmvn(encoder["input_dim"]) if cmvn is None else cmvn)
    for name, values in vad_tensors(encoder, seed).items():
        kernel = name.endswith("conv_left.weight")
        writer.add_tensor(name, np.ascontiguousarray(values[:, 0, :, 0].T) if kernel else values)
    return _write(writer, path)


def vad_tensors(encoder: Mapping[str, int], seed: int = 1) -> dict[str, np.ndarray]:
    """The tensors of an FSMN-VAD checkpoint, random, by their names in `model.pt`."""
    draw = np.random.default_rng(seed)
    memory, linear, units = encoder["proj_dim"], encoder["linear_dim"], encoder["output_affine_dim"]
    shapes: dict[str, tuple[int, ...]] = {}

    def add(name: str, outputs: int, inputs: int, bias: bool = True) -> None:
        shapes[f"encoder.{name}.linear.weight"] = (outputs, inputs)
        if bias:
            shapes[f"encoder.{name}.linear.bias"] = (outputs,)

    add("in_linear1", encoder["input_affine_dim"], encoder["input_dim"])
    add("in_linear2", linear, encoder["input_affine_dim"])
    for layer in range(encoder["fsmn_layers"]):
        add(f"fsmn.{layer}.linear", memory, linear, bias=False)
        shapes[f"encoder.fsmn.{layer}.fsmn_block.conv_left.weight"] = (memory, 1, encoder["lorder"], 1)
        add(f"fsmn.{layer}.affine", linear, memory)
    add("out_linear1", units, linear)
    add("out_linear2", encoder["output_dim"], units)
    return {
        name: (draw.standard_normal(shape) / max(1, np.prod(shape[1:])) ** 0.5).astype(np.float32)
        for name, shape in shapes.items()
    }


def _read(directory: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    config = yaml.safe_load((directory / "config.yaml").read_text(encoding="utf-8"))
    return config, torch.load(directory / "model.pt", map_location="cpu", weights_only=True)


def _put_whole(writer: GGUFWriter, prefix: str, section: Mapping[str, Any], names: tuple[str, ...]) -> None:
    for name in names:
        writer.add_uint32(prefix + name, section[name])


def _put_cmvn(writer: GGUFWriter, cmvn: Cmvn) -> None:
    writer.add_tensor("cmvn.shift", cmvn.shift)
    writer.add_tensor("cmvn.scale", cmvn.scale)


def _none(name: str) -> bool:
    return False


def _put_tensors(
    writer: GGUFWriter,
    tensors: Mapping[str, torch.Tensor],
    wtype: str,
    exact_f16: Skip = _none,
    exact_q8_0: Skip = _none,
) -> None:
    for name, tensor in tensors.items():
        values = tensor.to(torch.float32).contiguous().numpy()
        kernel = name.endswith("fsmn_block.weight")
        if kernel:
            values = np.ascontiguousarray(values[:, 0, :].T)
        matrix = values.ndim == 2 and "norm" not in name and not kernel
        if wtype == "f16" and matrix and not exact_f16(name):
            values = values.astype(np.float16)
        if wtype == "q8_0" and matrix and not exact_q8_0(name) and values.shape[1] % 32 == 0:
            writer.add_tensor(name, quants.quantize(values, _Q8_0), raw_dtype=_Q8_0)
        else:
            writer.add_tensor(name, values)


def _write(writer: GGUFWriter, path: Path) -> Path:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
