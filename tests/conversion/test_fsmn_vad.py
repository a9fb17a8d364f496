"""FSMN-VAD GGUF files, from FunASR directories and from an ONNX file with its CMVN."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

pytest.importorskip("onnx", reason="needs the onnx package")

from tests.conversion.reading import Read, converted_file
from tests.runtimes.pytorch.test_fsmn_vad import SMALL, pair, random_weights, write_mvn
from workbench.families.voice_activity.fsmn_vad import read_fsmn_vad
from workbench.formats.quantization import TYPES

KEYS = {f"vad.{name}": value for name, value in asdict(SMALL).items() if name not in ("lstride", "rorder")}


def funasr_directory(directory: Path) -> Path:
    """`model.pt` and its configuration."""
    directory.mkdir()
    config = {
        "model": "FsmnVADStreaming",
        "encoder_conf": asdict(SMALL),
        "frontend_conf": {"n_mels": 80, "lfr_m": 5, "lfr_n": 1, "cmvn_file": "am.mvn"},
        "model_conf": {"speech_noise_thres": 0.5},
    }
    (directory / "config.yaml").write_text(yaml.safe_dump(config))
    write_mvn(directory / "am.mvn")
    tensors = {name: torch.from_numpy(array) for name, array in random_weights().items()}
    torch.save(tensors, directory / "model.pt")
    return directory


def assert_is_the_network(read: Read) -> None:
    assert read.keys["general.architecture"] == "fsmn-vad"
    assert {key: read.keys[key] for key in KEYS} == KEYS
    assert [read.keys[f"vad.{name}"] for name in ("n_mels", "lfr_m", "lfr_n")] == [80, 5, 1]
    np.testing.assert_array_equal(read.values["cmvn.shift"], np.full(400, -10, dtype=np.float32))
    np.testing.assert_array_equal(read.values["cmvn.scale"], np.full(400, 0.15, dtype=np.float32))
    for name, array in random_weights().items():
        expected = array[:, 0, :, 0].T if "conv_left" in name else array
        assert read.shapes[name] == expected.shape
        if read.types[name] == "f32":
            np.testing.assert_array_equal(read.values[name], expected)
    assert len(read.types) == len(random_weights()) + 2


@pytest.mark.parametrize("name", TYPES)
def test_fsmn_vad_directory_is_converted_in_every_quantisation(name: str, tmp_path: Path) -> None:
    directory = funasr_directory(tmp_path / "vad")
    (read,) = converted_file(directory, "fsmn_vad", name, tmp_path / "it.gguf")
    assert_is_the_network(read)
    assert read.files == {each: (directory / each).read_bytes() for each in ("am.mvn", "config.yaml")}
    assert read.types["encoder.in_linear2.linear.weight"] == (name if name in ("f32", "f16", "bf16") else "f16")


def test_onnx_file_is_converted_with_an_equal_configuration(tmp_path: Path) -> None:
    (read,) = converted_file(pair(tmp_path / "onnx"), "fsmn_vad", "f32", tmp_path / "it.gguf")
    assert_is_the_network(read)
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    for name, content in read.files.items():
        (unpacked / name).write_bytes(content)
    (unpacked / "model.pt").touch()
    model, original = read_fsmn_vad(unpacked), read_fsmn_vad(tmp_path / "onnx")
    assert model.network == SMALL
    assert (model.frontend.width, model.detector) == (original.frontend.width, original.detector)
