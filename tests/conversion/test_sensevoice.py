"""SenseVoice GGUF files: the checkpoint's tensors, FunASR's keys, and exact copies of the small files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml

from tests.conversion.reading import Read, assert_holds, converted_file, flat
from tests.support.tiny_checkpoints import tiny_sensevoice
from workbench.audio.cmvn import read_am_mvn
from workbench.conversion.checkpoint import plans_of
from workbench.core.errors import BadInput
from workbench.formats.quantization import TYPES
from workbench.registry.sources import assets

CMVN = ("cmvn.shift", "cmvn.scale")


@pytest.mark.parametrize("name", TYPES)
def test_demo_sensevoice_is_converted_in_every_quantisation(name: str, tmp_path: Path) -> None:
    directory = assets() / "demo-sensevoice"
    (read,) = converted_file(directory, "sensevoice", name, tmp_path / "it.gguf")
    tensors = torch.load(directory / "model.pt", weights_only=True)
    cmvn = read_am_mvn(directory / "am.mvn")
    assert_holds(read, {**flat(tensors), "cmvn.shift": cmvn.shift, "cmvn.scale": cmvn.scale})
    exact = {tensor for tensor, kind in read.types.items() if kind == "f32"}
    unquantised = name in ("f32", "f16", "bf16")
    # 144 and 560 columns are no whole blocks: of the small network only the widest matrices are quantised.
    assert read.types["encoder.encoders.0.feed_forward.w_2.weight"] == name
    assert read.types["encoder.encoders.0.feed_forward.w_1.weight"] == (name if unquantised else "f16")
    assert read.types["ctc.ctc_lo.weight"] == (name if unquantised else "f16")
    for part in ("norm", "bias", "fsmn_block", "cmvn", "embed.weight"):
        assert {tensor for tensor in read.types if part in tensor} <= exact
    assert read.keys["workbench.quantization"] == name
    stored = {"am.mvn", "config.yaml", "configuration.json", "digits.bpe.model"}
    assert read.files == {each: (directory / each).read_bytes() for each in stored}


def test_keys_describe_the_network(tmp_path: Path) -> None:
    directory = tiny_sensevoice(tmp_path / "tiny")
    (read,) = converted_file(directory, "sensevoice", "q4_0", tmp_path / "it.gguf")
    expected = {
        "general.architecture": "sensevoice-small",
        "sv.input_size": 560,
        "sv.output_size": 16,
        "sv.attention_heads": 2,
        "sv.num_blocks": 2,
        "sv.tp_blocks": 1,
        "sv.kernel_size": 5,
        "sv.blank_id": 0,
        "sv.query_tokens": [0, 1, 2, 14],
        "workbench.version": 1,
        "workbench.family": "sensevoice",
        "workbench.quantization": "q4_0",
    }
    assert {key: read.keys[key] for key in expected} == expected
    assert len(read.keys["sv.vocab"]) == read.keys["sv.vocab_size"] == read.shapes["ctc.ctc_lo.weight"][0]
    assert read.keys["sv.vocab"][0] == "<unk>"
    assert not set(CMVN) & set(read.types)  # the checkpoint has none
    assert set(read.files) == {"config.yaml", "tokens.json"}


def test_half_precision_weights_are_converted_exactly(tmp_path: Path) -> None:
    directory = tiny_sensevoice(tmp_path / "tiny")
    tensors = {name: value.bfloat16() for name, value in torch.load(directory / "model.pt", weights_only=True).items()}
    torch.save({"state_dict": {f"module.{name}": value for name, value in tensors.items()}}, directory / "model.pt")
    for name in ("f32", "bf16"):
        (read,) = converted_file(directory, "sensevoice", name, tmp_path / "it.gguf")
        assert_holds(read, flat(tensors))
        assert all((read.values[each] == array).all() for each, array in flat(tensors).items())


def test_mismatched_checkpoints_are_refused(tmp_path: Path) -> None:
    directory = tiny_sensevoice(tmp_path / "tiny")
    tensors = torch.load(directory / "model.pt", weights_only=True)
    for change, words in (
        ({"ctc.ctc_lo.bias": None}, r"tiny/model\.pt lacks tensor ctc\.ctc_lo\.bias"),
        ({"extra.weight": torch.zeros(1)}, r"has tensor extra\.weight"),
        ({"embed.weight": torch.zeros(16, 5)}, r"embed\.weight has shape \(16, 5\)"),
        ({"ctc.ctc_lo.bias": torch.zeros(41, dtype=torch.int64)}, "expected floating point|has shape"),
    ):
        changed = {name: value for name, value in {**tensors, **change}.items() if value is not None}
        torch.save(changed, directory / "model.pt")
        with pytest.raises(BadInput, match=words):
            plans_of(directory, "sensevoice")
    with pytest.raises(BadInput, match="expected one of Paraformer"):
        plans_of(directory, "paraformer")
    with pytest.raises(BadInput, match="family 'nobodys' are not converted"):
        plans_of(directory, "nobodys")
    with pytest.raises(BadInput, match="layout is 'other'; expected workbench or funasr"):
        plans_of(directory, "sensevoice", "other")


def test_file_named_in_the_configuration_is_stored_in_the_gguf_file(tmp_path: Path) -> None:
    directory = tiny_sensevoice(tmp_path / "tiny")
    (directory / "more").mkdir()
    (directory / "more" / "other.mvn").write_bytes((assets() / "demo-sensevoice" / "am.mvn").read_bytes())
    with (directory / "config.yaml").open("a") as file:
        file.write("frontend_conf: {n_mels: 80, lfr_m: 7, lfr_n: 6, cmvn_file: more/other.mvn}\n")
    (directory / "README.md").write_text("a card")
    (read,) = converted_file(directory, "sensevoice", "f32", tmp_path / "it.gguf")
    assert set(read.files) == {"config.yaml", "tokens.json", "more/other.mvn"}
    assert isinstance(read, Read) and set(CMVN) < set(read.types)


def test_files_of_any_name_are_stored_and_files_outside_are_refused(tmp_path: Path) -> None:
    directory = tiny_sensevoice(tmp_path / "tiny")
    names = {"config.yaml": "my.yaml", "tokens.json": "pieces.json", "model.pt": "weights.pt"}
    for old, new in names.items():
        (directory / old).rename(directory / new)
    metas = {"config": "my.yaml", "init_param": "weights.pt", "tokenizer_conf": {"token_list": "pieces.json"}}
    (directory / "configuration.json").write_text(json.dumps({"file_path_metas": metas}))
    (read,) = converted_file(directory, "sensevoice", "f32", tmp_path / "it.gguf")
    assert {*read.files} == {"configuration.json", "my.yaml", "pieces.json"}
    config = yaml.safe_load((directory / "my.yaml").read_text())
    config["frontend_conf"]["cmvn_file"] = str(tmp_path / "am.mvn")
    (directory / "my.yaml").write_text(yaml.safe_dump(config))
    shutil.copy(assets() / "demo-sensevoice" / "am.mvn", tmp_path)
    with pytest.raises(BadInput, match=r"names .*am\.mvn, which is outside the directory; copy the file into it"):
        converted_file(directory, "sensevoice", "f32", tmp_path / "again.gguf")
