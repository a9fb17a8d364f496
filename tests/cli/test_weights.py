"""`workbench compare MODEL FILE.gguf`: comparison of a GGUF file's weights with the checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from workbench.cli import commands
from workbench.conversion.checkpoint import convert, plans_of
from workbench.formats.gguf_file import read_gguf
from workbench.registry.sources import assets

TENSOR = "encoder.encoders.0.feed_forward.w_1.weight"


def test_gguf_weights_are_compared_with_the_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [file], _ = convert(plans_of(assets() / "demo-sensevoice", "sensevoice"), "f32", tmp_path / "port.gguf")
    gguf = read_gguf(file)
    info, content = gguf.tensors[TENSOR], bytearray(file.read_bytes())
    content[info.offset : info.offset + info.nbytes] = np.array(2 * gguf.array(TENSOR), "<f4").tobytes()
    file.write_bytes(content)
    assert commands.main(["compare", "demo/sensevoice", str(file), "--json"]) == 1
    result = json.loads(capsys.readouterr().out)
    assert result["sentence"] == f"In port.gguf, {TENSOR} is 2 times the checkpoint's."
    assert result["tensors"][0]["kind"] == "factor" and not result["keys"]


@pytest.mark.parametrize("flag", [("--preset", "f16"), ("--tolerance", "peak=1"), ("--stages", "logits"), ("--force",)])
def test_flags_for_traces_are_refused(
    flag: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "port.gguf").write_bytes(b"GGUF")
    assert commands.main(["compare", "demo/sensevoice", str(tmp_path / "port.gguf"), *flag]) == 2
    assert f"{flag[0]} is for traces, and port.gguf is a GGUF file; leave out {flag[0]}" in capsys.readouterr().err


def test_several_weight_differences_are_printed_one_per_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [file], _ = convert(plans_of(assets() / "demo-sensevoice", "sensevoice"), "f32", tmp_path / "port.gguf")
    gguf, content = read_gguf(file), bytearray(file.read_bytes())
    for tensor, factor in ((TENSOR, 2), (TENSOR.replace("w_1", "w_2"), 3)):
        info = gguf.tensors[tensor]
        changed = np.array(factor * gguf.array(tensor), "<f4").tobytes()
        content[info.offset : info.offset + info.nbytes] = changed
    file.write_bytes(content)
    assert commands.main(["compare", "demo/sensevoice", str(file)]) == 1
    head, *lines = capsys.readouterr().out.splitlines()
    assert head == "In port.gguf:" and lines == [
        f"  {TENSOR} is 2 times the checkpoint's",
        f"  {TENSOR.replace('w_1', 'w_2')} is 3 times the checkpoint's",
    ]


def test_two_gguf_files_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [file], _ = convert(plans_of(assets() / "demo-sensevoice", "sensevoice"), "q8_0", tmp_path / "port.gguf")
    assert commands.main(["compare", str(file), str(file)]) == 2
    assert "has no checkpoint here; expected the model that" in capsys.readouterr().err
