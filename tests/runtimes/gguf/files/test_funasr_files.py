"""Files in FunASR's GGUF layouts: their configuration equals that of the checkpoint from which they were made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from gguf import GGUFReader, GGUFWriter

from tests.support.gguf_files import funasr_nano_encoder, funasr_paraformer, funasr_sensevoice, funasr_vad, random_cmvn
from tests.support.tiny_checkpoints import drawn_tensors, tiny_paraformer, tiny_sensevoice
from tests.support.tiny_funasr_nano import tiny_funasr_nano
from workbench.audio.cmvn import read_am_mvn
from workbench.core.errors import BadInput
from workbench.families.sanm.paraformer import read_paraformer
from workbench.families.sanm.sensevoice import read_sensevoice
from workbench.families.voice_activity.fsmn_vad import FsmnConfig, read_fsmn_vad
from workbench.formats.gguf_file import GgufFile, read_gguf
from workbench.runtimes.gguf.files.funasr_files import funasr_files, vocabulary_note
from workbench.runtimes.pytorch.paraformer import ParaformerNetwork

VAD = {
    "input_dim": 400,
    "input_affine_dim": 14,
    "linear_dim": 25,
    "proj_dim": 12,
    "fsmn_layers": 3,
    "lorder": 20,
    "output_affine_dim": 14,
    "output_dim": 24,
}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a checkpoint of each family."""
    folder = tmp_path_factory.mktemp("checkpoints")
    tiny_sensevoice(folder / "sensevoice")
    tiny_paraformer(folder / "paraformer")
    tiny_funasr_nano(folder / "nano")
    return folder


def write_files(files: Mapping[str, bytes], directory: Path) -> Path:
    directory.mkdir()
    for name, content in files.items():
        (directory / name).write_bytes(content)
    return directory


def changed_copy(
    source: Path, path: Path, keys: Mapping[str, Any] = {}, tensors: Mapping[str, np.ndarray | None] = {}
) -> GgufFile:
    """A copy of a GGUF file with these keys and tensors replaced; those that are None are missing in it."""
    reader = GGUFReader(source)
    fields = {name: field for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    writer = GGUFWriter(path, str(fields.pop("general.architecture").contents()))
    values = {name: field.contents() for name, field in fields.items()} | dict(keys)
    for name, value in values.items():
        if value is not None:
            kind = fields[name].types[0] if name in fields and name not in keys else None
            if isinstance(value, list):
                writer.add_array(name, value)
            elif kind is not None:
                writer.add_key_value(name, value, kind)
            elif isinstance(value, float):
                writer.add_float32(name, value)
            elif isinstance(value, str):
                writer.add_string(name, value)
            else:
                writer.add_uint32(name, value)
    arrays = {each.name: each.data for each in reader.tensors} | dict(tensors)
    for name, array in arrays.items():
        if array is not None:
            writer.add_tensor(name, np.array(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return read_gguf(path)


@pytest.mark.parametrize("wtype", ["f32", "f16", "q8_0"])
def test_sensevoice_file_gives_the_configuration_of_its_checkpoint(
    checkpoints: Path, tmp_path: Path, wtype: str
) -> None:
    path = funasr_sensevoice(checkpoints / "sensevoice", tmp_path / "it.gguf", wtype)
    model = read_sensevoice(write_files(funasr_files(read_gguf(path)), tmp_path / "it"), path)
    expected = read_sensevoice(checkpoints / "sensevoice")
    assert (model.encoder, model.frontend, model.blank) == (expected.encoder, expected.frontend, expected.blank)
    assert model.vocabulary.pieces == expected.vocabulary.pieces
    assert model.cmvn_file is None  # the file's vectors cannot be used


@pytest.mark.parametrize("wtype", ["f32", "f16", "q8_0"])
def test_paraformer_file_gives_the_configuration_of_its_checkpoint(
    checkpoints: Path, tmp_path: Path, wtype: str
) -> None:
    cmvn = random_cmvn(560, seed=2)
    path = funasr_paraformer(checkpoints / "paraformer", tmp_path / "it.gguf", wtype, cmvn=cmvn)
    model = read_paraformer(write_files(funasr_files(read_gguf(path)), tmp_path / "it"), path)
    expected = read_paraformer(checkpoints / "paraformer")
    assert (model.encoder, replace(model.frontend, cmvn_file=None)) == (expected.encoder, expected.frontend)
    assert (model.predictor, model.decoder) == (expected.predictor, expected.decoder)
    assert model.vocabulary.pieces == expected.vocabulary.pieces
    assert model.cmvn_file is not None
    stored_cmvn = read_am_mvn(model.cmvn_file)
    np.testing.assert_array_equal(stored_cmvn.shift, cmvn.shift)
    np.testing.assert_array_equal(stored_cmvn.scale, cmvn.scale)


@pytest.mark.parametrize("kind", ["cnn", "cnn_blstm"])
def test_bicif_paraformer_is_recognised_by_its_tensors(checkpoints: Path, tmp_path: Path, kind: str) -> None:
    config = yaml.safe_load((checkpoints / "paraformer" / "config.yaml").read_text())
    config |= {"model": "BiCifParaformer", "predictor": "CifPredictorV3"}
    config["predictor_conf"] |= {
        "upsample_times": 3,
        "upsample_type": kind,
        "use_cif1_cnn": False,
        "smooth_factor2": 0.25,
        "noise_threshold2": 0.01,
    }
    config["decoder_conf"] |= {"num_blocks": 3, "att_layer_num": 2}
    directory = tmp_path / "checkpoint"
    directory.mkdir()
    (directory / "config.yaml").write_text(yaml.safe_dump(config))
    (directory / "tokens.json").write_bytes((checkpoints / "paraformer" / "tokens.json").read_bytes())
    (directory / "model.pt").touch()
    expected = read_paraformer(directory)
    network = ParaformerNetwork(expected.encoder, expected.predictor, expected.decoder, len(expected.vocabulary))
    torch.save(drawn_tensors(network, 1), directory / "model.pt")
    path = funasr_paraformer(directory, tmp_path / "it.gguf")
    model = read_paraformer(write_files(funasr_files(read_gguf(path)), tmp_path / "it"), path)
    assert model.checkpoint.model == "BiCifParaformer"
    assert (model.predictor, model.decoder) == (expected.predictor, expected.decoder)


def test_nano_encoder_file_gives_the_configuration_of_its_checkpoint(checkpoints: Path, tmp_path: Path) -> None:
    path = funasr_nano_encoder(checkpoints / "nano", tmp_path / "it.gguf", "f16")
    config = yaml.safe_load(funasr_files(read_gguf(path), "qwen.gguf")["config.yaml"])
    expected = yaml.safe_load((checkpoints / "nano" / "config.yaml").read_text())
    for section in ("audio_encoder_conf", "audio_adaptor_conf", "frontend_conf"):
        assert expected[section].items() - {("freeze", True), ("feat_permute", True)} <= config[section].items()
    assert config["llm_conf"] == {"init_param_path": "qwen.gguf"}
    assert config["model"] == "FunASRNano"


def test_fsmn_vad_is_read_with_its_cmvn(tmp_path: Path) -> None:
    cmvn = random_cmvn(400, seed=3)
    files = funasr_files(read_gguf(funasr_vad(tmp_path / "it.gguf", VAD, cmvn)))
    directory = write_files(files, tmp_path / "it")
    (directory / "model.pt").touch()
    model = read_fsmn_vad(directory)
    assert model.network == FsmnConfig(**VAD, lstride=1)
    assert (model.frontend.lfr_m, model.frontend.lfr_n) == (5, 1)
    np.testing.assert_array_equal(read_am_mvn(model.cmvn_file).scale, cmvn.scale)


def test_file_without_a_vocabulary_gives_numbered_pieces_and_a_note(checkpoints: Path, tmp_path: Path) -> None:
    file = read_gguf(funasr_sensevoice(checkpoints / "sensevoice", tmp_path / "it.gguf", vocabulary=False))
    pieces = json.loads(funasr_files(file)["tokens.json"])
    assert pieces == [f"<{number}>" for number in range(len(file.array("ctc.ctc_lo.bias")))]
    assert vocabulary_note(file) == (
        "it.gguf has no vocabulary (sv.vocab); its text shows the numbers of tokens, such as <123>"
    )
    file = read_gguf(funasr_paraformer(checkpoints / "paraformer", tmp_path / "p.gguf", vocabulary=False))
    assert json.loads(funasr_files(file)["tokens.json"])[:5] == ["<blank>", "<s>", "</s>", "<3>", "<4>"]
    assert "pf.vocab" in str(vocabulary_note(file))


def test_a_file_with_a_vocabulary_has_no_note(checkpoints: Path, tmp_path: Path) -> None:
    assert vocabulary_note(read_gguf(funasr_sensevoice(checkpoints / "sensevoice", tmp_path / "it.gguf"))) is None
    assert vocabulary_note(read_gguf(funasr_vad(tmp_path / "vad.gguf", VAD))) is None


def test_missing_keys_are_filled_from_tensor_shapes_or_runtime_defaults(checkpoints: Path, tmp_path: Path) -> None:
    source = funasr_sensevoice(checkpoints / "sensevoice", tmp_path / "it.gguf")
    file = read_gguf(source)
    removed_keys = {name: None for name in file.metadata if name.startswith("sv.") and name != "sv.vocab"}
    config = yaml.safe_load(funasr_files(changed_copy(source, tmp_path / "less.gguf", removed_keys))["config.yaml"])
    expected = yaml.safe_load(funasr_files(file)["config.yaml"])
    assert config["encoder_conf"] == {**expected["encoder_conf"], "attention_heads": 4}
    assert config["model_conf"] == {"blank_id": 0}
    source = funasr_paraformer(checkpoints / "paraformer", tmp_path / "p.gguf")
    removed_keys = {name: None for name in read_gguf(source).metadata if name.startswith("pf.p")}
    config = yaml.safe_load(funasr_files(changed_copy(source, tmp_path / "less.gguf", removed_keys))["config.yaml"])
    assert (config["predictor_conf"]["tail_threshold"], config["predictor_conf"]["threshold"]) == (0.45, 1.0)


CONTRADICTIONS: list[tuple[str, dict[str, Any], str]] = [
    ("sensevoice", {"sv.output_size": 512}, r"sv.output_size in bad.gguf is 512, and tensor encoder.* has the shape"),
    ("sensevoice", {"sv.input_size": 80}, r"sv.input_size in bad.gguf is 80, and tensor .* has the shape \(560,\)"),
    ("sensevoice", {"sv.kernel_size": 11}, r"sv.kernel_size in bad.gguf is 11, and tensor .*fsmn_block.* \(5, 16\)"),
    ("sensevoice", {"sv.num_blocks": 50}, r"sv.num_blocks in bad.gguf is 50, and it has .* of 1 blocks encoder.enc"),
    ("sensevoice", {"sv.tp_blocks": 20}, r"sv.tp_blocks in bad.gguf is 20, and it has the tensors of 1 blocks"),
    ("sensevoice", {"sv.vocab_size": 25055}, r"sv.vocab_size in bad.gguf is 25055, and tensor ctc.ctc_lo.weight has"),
    (
        "sensevoice",
        {"sv.vocab": ["a"]},
        r"sv.vocab in bad.gguf has 1 pieces, and tensor ctc.ctc_lo.weight has \d+ rows",
    ),
    ("sensevoice", {"sv.vocab": 3}, r"sv.vocab in bad.gguf is 3; expected an array of texts"),
    ("sensevoice", {"sv.attention_heads": 0}, r"sv.attention_heads in bad.gguf is 0; expected a whole number from 1"),
    ("sensevoice", {"sv.blank_id": "x"}, r"sv.blank_id in bad.gguf is 'x'; expected a whole number from 0"),
    (
        "paraformer",
        {"pf.dec.num_blocks": 16},
        r"pf.dec.num_blocks in bad.gguf is 16, and .* 0 blocks .* after 1 others",
    ),
    ("paraformer", {"pf.dec.att_layer_num": 16}, r"pf.dec.att_layer_num in bad.gguf is 16, and .* of 1 blocks"),
    ("paraformer", {"pf.dec.decoders3": 0}, r"pf.dec.decoders3 in bad.gguf is 0, and it has the tensors of 1 blocks"),
    ("nano", {"funasr.adp.n_layer": 3}, r"funasr.adp.n_layer in bad.gguf is 3, and it has the tensors of 2 blocks"),
    ("nano", {"funasr.adp.downsample_rate": 8}, r"downsample_rate 8 in bad.gguf do not fit an encoder of width 16"),
    ("nano", {"funasr.adp.encoder_dim": 8}, r"encoder_dim 8 and .* do not fit an encoder of width 16"),
    ("nano", {"funasr.frontend.lfr_m": 5}, r"has the shape \(560,\), and 5 stacked frames of 80 mel bands are its"),
    (
        "vad",
        {"vad.lorder": 10},
        r"vad.lorder in bad.gguf is 10, and tensor .*conv_left.weight has the shape \(20, 12\)",
    ),
    ("vad", {"vad.fsmn_layers": 4}, r"vad.fsmn_layers in bad.gguf is 4, and it has the tensors of 3 blocks"),
]


@pytest.fixture(scope="module")
def files(checkpoints: Path) -> dict[str, Path]:
    """A file of each layout."""
    return {
        "sensevoice": funasr_sensevoice(checkpoints / "sensevoice", checkpoints / "sensevoice.gguf"),
        "paraformer": funasr_paraformer(checkpoints / "paraformer", checkpoints / "paraformer.gguf"),
        "nano": funasr_nano_encoder(checkpoints / "nano", checkpoints / "nano.gguf"),
        "vad": funasr_vad(checkpoints / "vad.gguf", VAD),
    }


@pytest.mark.parametrize(("source", "keys", "reason"), CONTRADICTIONS)
def test_keys_that_contradict_the_tensors_are_refused(
    files: Mapping[str, Path], tmp_path: Path, source: str, keys: dict[str, Any], reason: str
) -> None:
    with pytest.raises(BadInput, match=reason):
        funasr_files(changed_copy(files[source], tmp_path / "bad.gguf", keys))


MISSING: list[tuple[str, str]] = [
    ("sensevoice", "ctc.ctc_lo.weight"),
    ("sensevoice", "encoder.encoders0.0.norm1.weight"),
    ("sensevoice", "encoder.encoders0.0.self_attn.fsmn_block.weight"),
    ("paraformer", "predictor.cif_conv1d.weight"),
    ("paraformer", "decoder.decoders.0.feed_forward.w_1.weight"),
    ("nano", "audio_adaptor.linear1.weight"),
    ("vad", "encoder.in_linear1.linear.weight"),
]


@pytest.mark.parametrize(("source", "tensor"), MISSING)
def test_missing_or_misshapen_tensor_raises_an_error_with_its_name(
    files: Mapping[str, Path], tmp_path: Path, source: str, tensor: str
) -> None:
    with pytest.raises(BadInput, match=f"bad.gguf has no tensor {tensor}; a file of architecture .* has one"):
        funasr_files(changed_copy(files[source], tmp_path / "bad.gguf", tensors={tensor: None}))
    misshapen = {tensor: np.ones((1, 1, 1, 2), np.float32)}
    with pytest.raises(BadInput, match=r"bad.gguf (has the shape|is)"):
        funasr_files(changed_copy(files[source], tmp_path / "bad.gguf", tensors=misshapen))


def test_fsmn_vad_without_cmvn_is_refused(files: Mapping[str, Path], tmp_path: Path) -> None:
    removed_tensors: dict[str, None] = {"cmvn.shift": None, "cmvn.scale": None}
    with pytest.raises(BadInput, match=r"bad.gguf has no tensors cmvn.shift and cmvn.scale; FSMN-VAD needs its CMVN"):
        funasr_files(changed_copy(files["vad"], tmp_path / "bad.gguf", tensors=removed_tensors))


def test_frontend_configuration_equals_that_of_the_checkpoint(checkpoints: Path, tmp_path: Path) -> None:
    path = funasr_sensevoice(checkpoints / "sensevoice", tmp_path / "it.gguf")
    model = read_sensevoice(write_files(funasr_files(read_gguf(path)), tmp_path / "it"), path)
    assert replace(model.frontend, cmvn_file=None) == read_sensevoice(checkpoints / "sensevoice").frontend
