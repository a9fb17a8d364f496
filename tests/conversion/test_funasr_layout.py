"""FunASR's GGUF layouts, restated from the published files: names, types, shapes and keys.

The rules come from FunASR's export scripts, except that the query embedding stays f32 in f16 files.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("onnx", reason="needs the onnx package")

from tests.conversion.reading import Read, assert_holds, converted_file, flat
from tests.conversion.test_fsmn_vad import funasr_directory
from tests.runtimes.pytorch.test_fsmn_vad import SMALL
from tests.support.tiny_checkpoints import change_config
from tests.support.tiny_funasr_nano import tiny_funasr_nano
from workbench.conversion.checkpoint import plans_of
from workbench.core.errors import BadInput
from workbench.registry.sources import assets

U32, F32, TEXTS, NUMBERS = ("UINT32",), ("FLOAT32",), ("ARRAY", "STRING"), ("ARRAY", "INT32")

SENSEVOICE = {
    **{
        f"sv.{name}": U32
        for name in (
            "input_size",
            "output_size",
            "attention_heads",
            "num_blocks",
            "tp_blocks",
            "kernel_size",
            "vocab_size",
            "blank_id",
        )
    },
    "sv.query_tokens": NUMBERS,
    "sv.vocab": TEXTS,
}
PARAFORMER = {
    **{f"pf.enc.{name}": U32 for name in ("output_size", "attention_heads", "num_blocks", "kernel_size")},
    **{
        f"pf.dec.{name}": U32 for name in ("num_blocks", "att_layer_num", "decoders3", "attention_heads", "kernel_size")
    },
    "pf.vocab_size": U32,
    "pf.vocab": TEXTS,
    "pf.predictor.tail_threshold": F32,
    "pf.predictor.threshold": F32,
}
NANO = {
    **{
        f"funasr.enc.{name}": U32
        for name in (
            "input_size",
            "output_size",
            "attention_heads",
            "linear_units",
            "num_blocks",
            "tp_blocks",
            "kernel_size",
            "sanm_shfit",
        )
    },
    **{
        f"funasr.adp.{name}": U32
        for name in ("llm_dim", "encoder_dim", "ffn_dim", "n_layer", "attention_heads", "downsample_rate")
    },
    **{f"funasr.frontend.{name}": U32 for name in ("n_mels", "lfr_m", "lfr_n")},
}
VAD = {
    f"vad.{name}": U32
    for name in (
        "input_dim",
        "input_affine_dim",
        "linear_dim",
        "proj_dim",
        "fsmn_layers",
        "lorder",
        "output_affine_dim",
        "output_dim",
        "n_mels",
        "lfr_m",
        "lfr_n",
    )
}

Exception_ = Callable[[str], bool]
CASES = {
    # family: architecture, keys, what also stays f32 in f16, in q8_0
    "sensevoice": ("sensevoice-small", SENSEVOICE, lambda n: n == "embed.weight", lambda n: n == "embed.weight"),
    "paraformer": ("paraformer", PARAFORMER, lambda n: "cif_output" in n, lambda n: "predictor" in n),
    "funasr_nano": ("funasr-sensevoice-encoder", NANO, lambda _: False, lambda _: False),
}


def expected_type(name: str, shape: tuple[int, ...], wtype: str, exact_f16: Exception_, exact_q8_0: Exception_) -> str:
    matrix = len(shape) == 2 and "norm" not in name and not name.endswith("fsmn_block.weight")
    if wtype == "f16" and matrix and not exact_f16(name):
        return "f16"
    if wtype == "q8_0" and matrix and not exact_q8_0(name) and shape[1] % 32 == 0:
        return "q8_0"
    return "f32"


def assert_keys(read: Read, architecture: str, keys: dict[str, tuple[str, ...]]) -> None:
    assert read.keys["general.architecture"] == architecture
    assert set(read.keys) == {"general.architecture", *keys}
    assert {key: read.kinds[key] for key in keys} == keys


@pytest.mark.parametrize("wtype", ["f32", "f16", "q8_0"])
@pytest.mark.parametrize("family", CASES)
def test_funasr_layout_matches_the_published_files(family: str, wtype: str, tmp_path: Path) -> None:
    architecture, keys, exact_f16, exact_q8_0 = CASES[family]
    directory = assets() / f"demo-{family.replace('_', '-')}"
    read = converted_file(directory, family, wtype, tmp_path / "it.gguf", "funasr")[0]
    assert_keys(read, architecture, keys)
    tensors = torch.load(directory / "model.pt", weights_only=True)
    encoder_tensors = {n: v for n, v in tensors.items() if not n.startswith(("llm.", "decoder.embed.", "ctc_decoder."))}
    cmvn = [] if family == "funasr_nano" else ["cmvn.shift", "cmvn.scale"]
    assert_holds(read, flat(encoder_tensors), cmvn)
    for name, kind in read.types.items():
        assert kind == expected_type(name, read.shapes[name], wtype, exact_f16, exact_q8_0), name
    assert all(read.shapes[name] == (560,) for name in cmvn)
    if family == "paraformer":
        assert len(read.shapes["predictor.cif_conv1d.weight"]) == 3


def test_funasr_layout_of_fsmn_vad_matches_the_published_file(tmp_path: Path) -> None:
    directory = funasr_directory(tmp_path / "vad")
    (read,) = converted_file(directory, "fsmn_vad", "f32", tmp_path / "it.gguf", "funasr")
    assert_keys(read, "fsmn-vad", VAD)
    assert set(read.types.values()) == {"f32"}
    kernel = read.shapes["encoder.fsmn.0.fsmn_block.conv_left.weight"]
    assert kernel == (SMALL.lorder, SMALL.proj_dim)
    with pytest.raises(BadInput, match="quantization is 'f16'; expected one of auto, f32"):
        converted_file(directory, "fsmn_vad", "f16", tmp_path / "it.gguf", "funasr")


def notes(directory: Path, family: str) -> str:
    return " ".join(plans_of(directory, family, "funasr")[0].notes)


def test_model_that_the_funasr_runtime_cannot_run_gets_a_note(tmp_path: Path) -> None:
    assert "an encoder 144 wide with 4 attention heads and kernel 11" in notes(
        assets() / "demo-paraformer", "paraformer"
    )
    assert "an adaptor with downsample_rate 8" in notes(assets() / "demo-funasr-nano", "funasr_nano")
    assert "without CMVN" in notes(assets() / "demo-sensevoice", "sensevoice")
    assert "cannot run" not in notes(assets() / "demo-sensevoice", "sensevoice")
    assert "other times and thresholds" in notes(funasr_directory(tmp_path / "vad"), "fsmn_vad")
    tiny = tiny_funasr_nano(tmp_path / "tiny")
    assert notes(tiny, "funasr_nano") == ""

    def change(config: dict[str, Any]) -> None:
        config["audio_encoder_conf"]["kernel_size"] = 4
        config["dataset_conf"] = {"do_think": False}
        config["frontend_conf"] |= {"snip_edges": False, "upsacle_samples": False}

    change_config(tiny, change)
    tensors = torch.load(tiny / "model.pt", weights_only=True)
    torch.save({n: v[..., :4] if "fsmn_block" in n else v for n, v in tensors.items()}, tiny / "model.pt")
    note = notes(tiny, "funasr_nano")
    assert note.startswith("FunASR's C++ runtime cannot run tiny as it should") and " and " in note
    assert "(snip_edges false)" in note and "(upsacle_samples false)" in note
    assert "an even kernel of 4 frames in the encoder" in note and "an empty thought" in note
