"""Paraformer files: plain, BiCif and SeACo checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conversion.reading import assert_holds, converted_file, flat
from tests.support.tiny_checkpoints import change_config, drawn_tensors, tiny_paraformer
from workbench.audio.cmvn import read_am_mvn
from workbench.families.sanm.paraformer import read_paraformer
from workbench.formats.quantization import TYPES
from workbench.registry.sources import assets
from workbench.runtimes.pytorch.paraformer import ParaformerNetwork


def write_changed(directory: Path, **changes: Any) -> Path:
    """The tiny checkpoint with another configuration, and weights for it."""

    def change(config: dict[str, Any]) -> None:
        for name, value in changes.items():
            config[name] = {**config[name], **value} if isinstance(value, dict) else value

    change_config(tiny_paraformer(directory), change)
    model = read_paraformer(directory)
    network = ParaformerNetwork(model.encoder, model.predictor, model.decoder, len(model.vocabulary))
    torch.save(drawn_tensors(network, 1), directory / "model.pt")
    return directory


@pytest.mark.parametrize("name", TYPES)
def test_demo_paraformer_is_converted_in_every_quantisation(name: str, tmp_path: Path) -> None:
    directory = assets() / "demo-paraformer"
    (read,) = converted_file(directory, "paraformer", name, tmp_path / "it.gguf")
    tensors = torch.load(directory / "model.pt", weights_only=True)
    cmvn = read_am_mvn(directory / "am.mvn")
    stored_tensors = {each: value for each, value in tensors.items() if not each.startswith("decoder.embed.")}
    assert_holds(read, {**flat(stored_tensors), "cmvn.shift": cmvn.shift, "cmvn.scale": cmvn.scale})
    assert read.types["decoder.decoders.0.feed_forward.w_2.weight"] == name
    for part in ("norm", "bias", "fsmn_block", "cmvn", "cif_output", "cif_conv1d"):
        assert {read.types[each] for each in read.types if part in each} == {"f32"}
    stored = {"am.mvn", "config.yaml", "configuration.json", "tokens.json"}
    assert read.files == {each: (directory / each).read_bytes() for each in stored}


def test_keys_describe_the_network(tmp_path: Path) -> None:
    directory = tiny_paraformer(tmp_path / "tiny")
    (read,) = converted_file(directory, "paraformer", "f16", tmp_path / "it.gguf")
    expected = {
        "general.architecture": "paraformer",
        "pf.enc.output_size": 16,
        "pf.enc.attention_heads": 2,
        "pf.enc.num_blocks": 2,
        "pf.enc.kernel_size": 5,
        "pf.dec.num_blocks": 1,
        "pf.dec.att_layer_num": 1,
        "pf.dec.decoders3": 1,
        "pf.dec.attention_heads": 2,
        "pf.dec.kernel_size": 5,
        "pf.vocab_size": 8,
        "pf.vocab": ["<blank>", "<s>", "</s>", "one", "two", "three", "four", "<unk>"],
        "pf.predictor.threshold": 1.0,
        "workbench.family": "paraformer",
    }
    assert {key: read.keys[key] for key in expected} == expected
    assert read.keys["pf.predictor.tail_threshold"] == pytest.approx(0.45)
    assert read.kinds["pf.predictor.tail_threshold"] == ("FLOAT32",) and read.kinds["pf.vocab_size"] == ("UINT32",)


def test_bicif_second_predictor_head_is_converted_completely(tmp_path: Path) -> None:
    fine = {"upsample_times": 3, "upsample_type": "cnn_blstm", "use_cif1_cnn": False, "smooth_factor2": 0.25}
    predictor = {"predictor": "CifPredictorV3", "predictor_conf": fine}
    directory = write_changed(tmp_path / "bicif", model="BiCifParaformer", **predictor)
    tensors = torch.load(directory / "model.pt", weights_only=True)
    assert any(each.startswith("predictor.blstm.") for each in tensors)
    (read,) = converted_file(directory, "paraformer", "q8_0", tmp_path / "it.gguf")
    assert_holds(read, flat(tensors))
    assert {read.types[each] for each in read.types if "cif_output" in each or "upsample" in each} == {"f32"}


def test_tensors_for_training_and_an_incomplete_hotword_branch_are_not_converted(tmp_path: Path) -> None:
    directory = write_changed(tmp_path / "seaco", model="SeacoParaformer")
    tensors = torch.load(directory / "model.pt", weights_only=True)
    extra = ("decoder.embed.0.weight", "bias_encoder.weight_ih_l0", "seaco_decoder.after_norm.weight")
    torch.save({**tensors, **{name: torch.zeros(4, 4) for name in extra}}, directory / "model.pt")
    (directory / "seg_dict").write_text("a b\n")
    for layout in ("workbench", "funasr"):
        (read,) = converted_file(directory, "paraformer", "f32", tmp_path / "it.gguf", layout)
        assert_holds(read, flat(tensors))
        if layout == "workbench":
            assert read.files["seg_dict"] == b"a b\n"
