"""Dumps of other programs: names and types that are read, and files that are refused with the way to write them."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from workbench.cli import commands
from workbench.compare import compare, judge
from workbench.core.errors import BadInput
from workbench.trace.read import read_trace
from workbench.trace.trace import Trace

ARRAYS = {
    "encoder.layers.0": np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32),
    "logits": np.random.default_rng(1).standard_normal((6, 5)).astype(np.float32),
    "tokens": np.array([1, 2]),
}
GGML_TEXT = """ggml_debug:   inp_embd = (f32)   GET_ROWS(token_embd.weight{896, 1519}, inp_tokens{4, 1, 1, 1}}) = {9}
                                     [
                                       [     -0.0132,      -0.0057,       0.0126, ...,       0.0078,      -0.0127],
                                     ]
                                     sum = -0.118640
"""


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def same(trace: Trace) -> bool:
    return set(trace) == set(ARRAYS) and all(np.array_equal(trace[name], ARRAYS[name]) for name in ARRAYS)


@pytest.mark.parametrize("prefix", ["000_", "12.", "3-", "/", "007/"])
def test_number_or_slash_in_front_of_names_is_left_out(prefix: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "port.npz", **{f"{prefix}{name}".replace(".", "/"): each for name, each in ARRAYS.items()})
    assert same(read_trace(tmp_path / "port.npz"))
    for number, (name, each) in enumerate(ARRAYS.items()):
        (tmp_path / f"dump/{number:03}").mkdir(parents=True)
        np.save(tmp_path / f"dump/{number:03}/{name}.npy", each)
    assert same(read_trace(tmp_path / "dump"))


def test_number_stays_where_two_names_would_be_one_or_the_rest_is_no_stage(tmp_path: Path) -> None:
    names = ["1_logits", "2_logits", "0_hidden", "3_tokens"]
    np.savez(tmp_path / "port.npz", **dict.fromkeys(names, np.zeros(2)))
    assert set(read_trace(tmp_path / "port.npz")) == {"1_logits", "2_logits", "0_hidden", "tokens"}


def test_archive_of_windows_with_backslashes_is_read(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "port.zip", "w") as archive:
        for name, each in ARRAYS.items():
            member = zipfile.ZipInfo("x")
            member.filename = f"dumps\\{name}.npy"
            archive.writestr(member, npy(each))
    assert same(read_trace(tmp_path / "port.zip"))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("byte_order", ["<", ">"])
def test_layout_in_memory_does_not_matter(order: str, byte_order: str, tmp_path: Path) -> None:
    changed = {
        name: np.array(each.astype(each.dtype.newbyteorder(byte_order)), order=order) for name, each in ARRAYS.items()
    }  # type: ignore[call-overload]
    np.savez_compressed(tmp_path / "port.npz", **dict(reversed(changed.items())))
    assert same(read_trace(tmp_path / "port.npz"))


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
@pytest.mark.parametrize("stored", [np.uint16, np.int16])
def test_bits_of_half_precision_as_whole_numbers_are_named(kind: str, stored: type) -> None:
    values = ARRAYS["logits"]
    bits = (values.view(np.uint32) >> 16).astype(np.uint16) if kind == "bfloat16" else values.astype(np.float16)
    sentence = judge(compare(Trace({"logits": values}, {}), Trace({"logits": bits.view(stored)}, {}))).sentence
    assert (
        f"holds the bits of {kind} as whole numbers ({np.dtype(stored).name}): as {kind} they differ by 0." in sentence
    )
    assert "write these arrays as float32" in sentence


def test_whole_numbers_that_are_no_bits_of_half_precision_are_quantised_values() -> None:
    values = ARRAYS["logits"]
    sentence = judge(
        compare(Trace({"x": values}, {}), Trace({"x": np.rint(values * 1000).astype(np.int16)}, {}))
    ).sentence
    assert "whole numbers (int16): times 0.001" in sentence


@pytest.mark.parametrize("name", ["dump.txt", "dump.log", "dump"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_text_of_ggml_is_refused_with_the_way_to_write_whole_arrays(name: str, encoding: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(GGML_TEXT, encoding=encoding)
    with pytest.raises(
        BadInput, match=r"the text that ggml prints .* leaves out most values; write each .*dump_tensor"
    ):
        read_trace(tmp_path / name)
    (tmp_path / name).write_text("0.5 0.25\n1 2\n", encoding=encoding)
    with pytest.raises(BadInput, match=r"a text, whose numbers are rounded; write the arrays with numpy\.savez"):
        read_trace(tmp_path / name)


def test_files_of_pickle_and_torch_are_refused_with_the_way_to_write_them(tmp_path: Path) -> None:
    (tmp_path / "port.pkl").write_bytes(pickle.dumps(ARRAYS))
    with pytest.raises(
        BadInput, match=r"a pickle, and may run code .* in pickle.load\(open\('port.pkl', 'rb'\)\).items"
    ):
        read_trace(tmp_path / "port.pkl")
    np.save(tmp_path / "port.npy", ARRAYS, allow_pickle=True)  # type: ignore[arg-type]
    with pytest.raises(
        BadInput, match=r"objects \(a dictionary or list of arrays; numpy.savez\('port.npz', \*\*arrays\)"
    ):
        read_trace(tmp_path / "port.npy")
    for name in ("port.pt", "port.bin", "port.zip"):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("port/data.pkl", b"\x80\x02}.")
            archive.writestr("port/data/0", bytes(96))
        with pytest.raises(BadInput, match=rf"written by torch.save, and may run code .* torch.load\('{name}'\).items"):
            read_trace(tmp_path / name)


def test_gguf_beside_a_trace_is_not_taken_for_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "reference.npz", **ARRAYS)  # type: ignore[arg-type]
    (tmp_path / "port.gguf").write_bytes(b"GGUF\x03\0\0\0" + bytes(16))
    assert commands.main(["compare", str(tmp_path / "reference.npz"), str(tmp_path / "port.gguf")]) == 2
    output = capsys.readouterr().err
    assert "is a GGUF file and not a trace" in output and "have to be written as .npy, .npz or .safetensors" in output


def test_arrays_without_names_are_refused_with_the_way_to_keep_names(tmp_path: Path) -> None:
    np.savez(tmp_path / "port.npz", *ARRAYS.values())
    with pytest.raises(BadInput, match=r"or numpy.savez\('port.npz', \*\*arrays\) keeps the names of a dictionary"):
        compare(Trace(ARRAYS, {}), read_trace(tmp_path / "port.npz"))
