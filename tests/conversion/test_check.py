"""Checks of GGUF files against their checkpoint: correct files of every type, wrong weights and wrong keys."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.support.tiny_funasr_nano import tiny_funasr_nano
from workbench.compare.weights.report import WeightReport
from workbench.conversion import check
from workbench.conversion.check import check_file
from workbench.conversion.checkpoint import convert, plans_of
from workbench.core.errors import BadInput
from workbench.formats.gguf_file import read_gguf
from workbench.formats.quantization import FUNASR_TYPES, TYPES
from workbench.registry.sources import assets

FAMILY = "funasr_nano"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_funasr_nano(tmp_path_factory.mktemp("nano"))


@pytest.fixture
def file(directory: Path, tmp_path: Path) -> Path:
    return convert(plans_of(directory, FAMILY), "f32", tmp_path / "port.gguf")[0][0]


def change_tensor(file: Path, tensor: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
    """Changes a tensor of an f32 file."""
    opened = read_gguf(file)
    info, values = opened.tensors[tensor], change(np.array(opened.array(tensor)))
    content = bytearray(file.read_bytes())
    content[info.offset : info.offset + info.nbytes] = np.ascontiguousarray(values, "<f4").tobytes()
    file.write_bytes(content)


def set_float(file: Path, key: str, value: float) -> None:
    content = bytearray(file.read_bytes())
    struct.pack_into("<f", content, content.index(key.encode()) + len(key) + 4, value)
    file.write_bytes(content)


def checked(directory: Path, file: Path) -> WeightReport:
    return check_file(directory, FAMILY, file)


@pytest.mark.parametrize(("layout", "types"), [("workbench", TYPES), ("funasr", FUNASR_TYPES)])
def test_correct_gguf_files_of_every_type_pass_the_check(
    directory: Path, tmp_path: Path, layout: str, types: tuple[str, ...]
) -> None:
    for kind in types:
        for path in convert(plans_of(directory, FAMILY, layout), kind, tmp_path / f"{kind}.gguf")[0]:
            report = checked(directory, path)
            assert not report.differs and report.compared > 10, report.sentence


def test_correct_q4_0_demo_passes_the_check(tmp_path: Path) -> None:
    demo = assets() / "demo-sensevoice"
    [path], _ = convert(plans_of(demo, "sensevoice"), "q4_0", tmp_path / "it.gguf")
    assert not check_file(demo, "sensevoice", path).differs


def test_wrong_tensors_are_named(directory: Path, file: Path) -> None:
    opened = read_gguf(file)
    gate, up = (np.array(opened.array(f"blk.0.ffn_{part}.weight")) for part in ("gate", "up"))
    change_tensor(file, "blk.0.ffn_gate.weight", lambda _: up)
    change_tensor(file, "blk.0.ffn_up.weight", lambda _: gate)
    change_tensor(file, "blk.1.attn_v.weight", lambda values: 2 * values)
    change_tensor(file, "audio_adaptor.linear1.bias", np.zeros_like)
    clauses = checked(directory, file).clauses
    assert sorted(clauses) == [
        "audio_adaptor.linear1.bias is zero",
        "blk.0.ffn_gate.weight and blk.0.ffn_up.weight are exchanged",
        "blk.1.attn_v.weight is 2 times the checkpoint's",
    ]


def test_large_tensors_are_reported_like_small_ones(
    directory: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "MAX_VALUES", 0)
    assert not checked(directory, file).differs
    change_tensor(file, "token_embd.weight", lambda values: np.roll(values, 1, axis=0))
    change_tensor(file, "blk.1.attn_v.weight", lambda values: 2 * values)
    moved, twice = checked(directory, file).clauses
    assert moved.startswith("token_embd.weight has its rows in another order: rows 1, 2, 3, ")
    assert twice == "blk.1.attn_v.weight is 2 times the checkpoint's"


def test_wrong_keys_are_named(directory: Path, file: Path) -> None:
    set_float(file, "qwen3.rope.freq_base", 5000.0)
    set_float(file, "qwen3.attention.layer_norm_rms_epsilon", 0.25)
    report = checked(directory, file)
    assert not report.tensors and [each.partition(",")[0] for each in report.keys] == [
        "qwen3.attention.layer_norm_rms_epsilon is 0.25",
        "qwen3.rope.freq_base is 5000",
    ]


def test_wrong_merge_and_token_are_reported_with_their_index(directory: Path, file: Path) -> None:
    content = bytearray(file.read_bytes())
    for key in (b"tokenizer.ggml.merges", b"tokenizer.ggml.tokens"):
        first = content.index(key) + len(key) + 4 + 4 + 8  # the types and the count
        (length,) = struct.unpack_from("<Q", content, first)
        content[first + 8 : first + 8 + length] = b"Z" * length
    file.write_bytes(content)
    tokens, merges = checked(directory, file).keys
    assert tokens.startswith("tokenizer.ggml.tokens differs from place 0 on: 'Z")
    assert merges.startswith("tokenizer.ggml.merges differs from place 0 on: 'Z") and "the checkpoint's" in merges


def test_missing_tensor_is_reported(directory: Path, file: Path) -> None:
    content = file.read_bytes()
    name = b"audio_adaptor.linear1.bias"
    file.write_bytes(content.replace(name, name[:-4] + b"lost", 1))
    [missing] = checked(directory, file).tensors
    assert (missing.tensor, missing.sentence) == (name.decode(), "is missing")


def test_a_file_of_another_architecture_is_refused(file: Path) -> None:
    with pytest.raises(BadInput, match="architecture 'funasr-nano'; expected sensevoice-small, which"):
        check_file(assets() / "demo-sensevoice", "sensevoice", file)
