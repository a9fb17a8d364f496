"""Trace files: reading of safetensors, npz, npy, folders and zip, and one-line errors for damaged files."""

from __future__ import annotations

import contextlib
import io
import json
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from safetensors.numpy import save_file

from workbench.core.errors import BadInput
from workbench.trace import formats
from workbench.trace.formats import Stored, open_stored
from workbench.trace.trace import Trace

TYPES = st.sampled_from(["<f8", "<f4", "<f2", "<i8", "<i4", "<i2", "|i1", "<u8", "<u4", "<u2", "|u1", "|b1", "<c8"])
ARRAYS = npst.arrays(TYPES, npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5))
NAMED_ARRAYS = st.dictionaries(st.sampled_from(["a", "b.0", "logits", "ü"]), ARRAYS, min_size=1)


def values(dump: Stored) -> dict[str, np.ndarray]:
    return {name: read() for name, read in dump.arrays.items()}


def assert_same(arrays: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert arrays.keys() == expected.keys()
    for name, array in expected.items():
        assert arrays[name].dtype == array.dtype and arrays[name].shape == array.shape
        np.testing.assert_array_equal(arrays[name], array)


@given(NAMED_ARRAYS)
def test_safetensors_are_read_as_written_by_the_safetensors_library(
    tmp_path_factory: pytest.TempPathFactory, arrays: dict[str, np.ndarray]
) -> None:
    path = tmp_path_factory.mktemp("s") / "t.safetensors"
    save_file({name: np.asarray(array, order="C") for name, array in arrays.items()}, path)
    assert_same(values(open_stored(path)), arrays)


@given(NAMED_ARRAYS, st.booleans())
def test_npz_and_npy_folders_are_read_as_written_by_numpy(
    tmp_path_factory: pytest.TempPathFactory, arrays: dict[str, np.ndarray], small: bool
) -> None:
    folder = tmp_path_factory.mktemp("n")
    (np.savez_compressed if small else np.savez)(folder / "t.npz", **arrays)
    assert_same(values(open_stored(folder / "t.npz")), arrays)
    (folder / "npy").mkdir()
    for name, array in arrays.items():
        np.save(folder / "npy" / f"{name}.npy", np.asarray(array, order="F"))
    assert_same(values(open_stored(folder / "npy")), arrays)


def test_saved_trace_keeps_metadata_order_and_text(tmp_path: Path) -> None:
    trace = Trace({"z": np.ones(2), "a": np.ones(3), "text": np.array("七 one")}, {"model": "x"})
    dump = open_stored(trace.save(tmp_path / "t.safetensors"))
    assert dump.order == ("z", "a", "text") and dump.meta == {"model": "x"} and dump.texts == {"text"}


def test_bfloat16_becomes_float32(tmp_path: Path) -> None:
    bits = np.array([0x3FC0, 0xC000, 0x7F80], "<u2")
    path = tmp_path / "t.safetensors"
    write_tensors(path, {"a": {"dtype": "BF16", "shape": [3], "data_offsets": [0, 6]}}, bits.tobytes())
    assert values(open_stored(path))["a"].tolist() == [1.5, -2.0, np.inf]


def test_subfolder_names_become_parts_of_stage_names(tmp_path: Path) -> None:
    (tmp_path / "encoder").mkdir()
    np.save(tmp_path / "encoder" / "layers.0.npy", np.ones(2))
    (tmp_path / "meta.json").write_text('{"dtype": "f16"}')
    (tmp_path / "notes.txt").write_text("not an array")
    dump = open_stored(tmp_path)
    assert list(dump.arrays) == ["encoder.layers.0"] and dump.meta == {"dtype": "f16"}
    assert list(open_stored(tmp_path / "encoder" / "layers.0.npy").arrays) == ["layers.0"]


def write_tensors(path: Path, header: Any, data: bytes = b"") -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def tensor(**changes: Any) -> dict[str, Any]:
    return {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | changes}


SAFETENSORS: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (lambda p: p.write_bytes(b""), "truncated or not a safetensors file: it is too short for a header"),
    "10 GB header": (
        lambda p: p.write_bytes(struct.pack("<Q", 10 << 30) + b"{}"),
        "its header claims 10737418240 bytes, and the file has 10",
    ),
    "no JSON": (lambda p: write_tensors(p, b"{nope"), "the header of t.safetensors is not JSON"),
    "deep JSON": (lambda p: write_tensors(p, b"[" * 100_000), "the header of t.safetensors is not JSON"),
    "a list": (lambda p: write_tensors(p, []), "is not a JSON object"),
    "cut": (lambda p: write_tensors(p, tensor(), b"1234"), "t.safetensors is truncated: tensor 'a'"),
    "claim": (
        lambda p: write_tensors(p, tensor(shape=[10 << 30], data_offsets=[0, 40 << 30]), b"12"),
        "t.safetensors is truncated: tensor 'a'",
    ),
    "shape": (lambda p: write_tensors(p, tensor(shape=[3]), b"12345678"), "8 bytes, which do not fit"),
    "negative": (lambda p: write_tensors(p, tensor(shape=[-2]), b"12345678"), "is not described as safetensors"),
    "true": (lambda p: write_tensors(p, tensor(shape=[True, 2]), b"12345678"), "is not described as safetensors"),
    "axes": (
        lambda p: write_tensors(p, tensor(shape=[1] * 70 + [2]), b"12345678"),
        "tensor 'a' of t.safetensors claims a shape of 71 axes; expected at most 64",
    ),
    "none of many": (
        lambda p: write_tensors(p, tensor(shape=[1 << 62, 1 << 64, 0], data_offsets=[0, 0])),
        "claims the shape 4611686018427387904×2^63 or more×0, which no array has",
    ),
    "twice": (
        lambda p: write_tensors(p, (json.dumps(tensor())[:-1] + ", " + json.dumps(tensor())[1:]).encode(), bytes(8)),
        "the header of t.safetensors is not JSON: 'a' occurs twice",
    ),
    "no entry": (lambda p: write_tensors(p, {"a": 3}), "is not described as safetensors"),
    "type": (lambda p: write_tensors(p, tensor(dtype="F8_E4M3"), b"12345678"), "holds 'F8_E4M3'; expected one of F64"),
    "type list": (lambda p: write_tensors(p, tensor(dtype=["F32"]), b"12345678"), "holds ['F32']; expected one of"),
    "metadata": (lambda p: write_tensors(p, {"__metadata__": 3}), "__metadata__ of t.safetensors is not a JSON object"),
    "meta": (
        lambda p: write_tensors(p, {"__metadata__": {"meta": "[]"}}),
        "the metadata meta of t.safetensors is a JSON list; expected an object",
    ),
    "order": (
        lambda p: write_tensors(p, {"__metadata__": {"stages": "{"}}),
        "the metadata stages of t.safetensors is not JSON",
    ),
}


@pytest.mark.parametrize("case", SAFETENSORS)
def test_damaged_safetensors_file_raises_one_line_error(tmp_path: Path, case: str) -> None:
    write, message = SAFETENSORS[case]
    write(tmp_path / "t.safetensors")
    assert_refused(tmp_path / "t.safetensors", message)


def assert_refused(path: Path, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        values(open_stored(path))
    assert message in str(caught.value) and "\n" not in str(caught.value)


@given(st.binary(max_size=60), st.sampled_from(["t.safetensors", "t.npz", "t.npy"]))
def test_random_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, junk: bytes, name: str) -> None:
    path = tmp_path_factory.mktemp("j") / name
    path.write_bytes(junk)
    with contextlib.suppress(BadInput):  # anything else is a fault
        values(open_stored(path))


@pytest.mark.parametrize("name", ["t.safetensors", "t.npz", "t.npy"])
def test_truncated_files_are_refused_at_every_length(tmp_path: Path, name: str) -> None:
    complete = tmp_path / name
    arrays = {"a": np.arange(20.0), "b": np.arange(6).reshape(2, 3)}
    if name == "t.npy":
        np.save(complete, arrays["a"])
    elif name == "t.npz":
        np.savez(complete, **arrays)
    else:
        save_file(arrays, complete)
    content = complete.read_bytes()
    truncated = tmp_path / f"cut{complete.suffix}"
    for length in range(0, len(content), 7):
        truncated.write_bytes(content[:length])
        with pytest.raises(BadInput):
            values(open_stored(truncated))


class Trap:
    def __reduce__(self) -> tuple:
        return os.mkdir, ("/nonexistent/trap",)


def test_object_arrays_are_refused_without_unpickling(tmp_path: Path) -> None:
    trap = np.array([Trap()], dtype=object)
    np.savez(tmp_path / "t.npz", a=trap)
    assert_refused(tmp_path / "t.npz", "'a.npy' of t.npz holds objects (a dictionary or list of arrays; numpy.savez")
    np.save(tmp_path / "t.npy", trap, allow_pickle=True)
    assert_refused(tmp_path / "t.npy", "t.npy holds objects (a dictionary or list of arrays; numpy.savez")
    (tmp_path / "dumps").mkdir()
    np.save(tmp_path / "dumps" / "x.npy", np.zeros(2, dtype=[("a", "f4"), ("b", "i4")]))
    assert_refused(tmp_path / "dumps", "x.npy holds [('a', '<f4'), ('b', '<i4')]; expected numbers")


def test_bfloat16_in_an_npy_file_is_refused_with_the_way_out(tmp_path: Path) -> None:
    np.save(tmp_path / "t.npy", np.zeros(2, dtype="V2"))  # as of ml_dtypes.bfloat16
    assert_refused(
        tmp_path / "t.npy", "t.npy holds |V2 (numpy has no bfloat16 and writes it so; convert it to float32)"
    )


def test_unprintable_or_duplicate_array_names_are_refused(tmp_path: Path) -> None:
    save_file({"a\n\x1b[31m": np.ones(2)}, tmp_path / "t.safetensors")
    assert_refused(
        tmp_path / "t.safetensors", "t.safetensors has an array with the name 'a\\n\\x1b[31m'; expected letters"
    )
    (tmp_path / "dumps" / "a").mkdir(parents=True)
    np.save(tmp_path / "dumps" / "a.b.npy", np.ones(2))
    np.save(tmp_path / "dumps" / "a" / "b.npy", np.ones(2))
    assert_refused(tmp_path / "dumps", "the directory dumps has two files for a.b; expected one for each stage")


@given(st.data())
def test_files_with_changed_bytes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("c")
    arrays = {"a": np.arange(4.0), "b": np.arange(6, dtype=np.int32).reshape(2, 3)}
    kind = data.draw(st.sampled_from(["safetensors", "npz", "npy"]))
    path = folder / f"t.{kind}"
    if kind == "safetensors":
        Trace(arrays, {"model": "x"}).save(path)
    elif kind == "npz":
        np.savez(path, **arrays)
    else:
        np.save(path, arrays["b"])
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    with contextlib.suppress(BadInput):  # anything else is a fault
        values(open_stored(path))


def npy_header(shape: tuple[int, ...], dtype: str = "<f4") -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
    return file.getvalue()


def test_arrays_with_oversized_shapes_are_refused_without_allocating(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.npy").write_bytes(npy_header((10 << 30,)))
    assert_refused(tmp_path / "t.npy", "t.npy is truncated: its shape (10737418240,) of float32 is 42949672960 bytes")
    with zipfile.ZipFile(tmp_path / "t.npz", "w") as archive:
        archive.writestr("a.npy", npy_header((1 << 50,)))
    assert_refused(tmp_path / "t.npz", "'a.npy' of t.npz is truncated: its shape (1125899906842624,)")
    monkeypatch.setattr(formats, "MAX_ARRAY_BYTES", 1000)
    np.savez_compressed(tmp_path / "bomb.npz", a=np.zeros(1000))
    assert_refused(tmp_path / "bomb.npz", "'a.npy' of bomb.npz is 8000 bytes large; expected at most 1000")


@pytest.mark.parametrize(
    "shape, message",
    [
        ((True, 4), "t.npy is not an .npy array: it claims the shape (True, 4)"),
        ((10**30, 0), "t.npy claims the shape 2^63 or more×0, which no array has"),
        ((1,) * 70, "t.npy claims a shape of 70 axes; expected at most 64"),
    ],
)
def test_impossible_shapes_are_refused(tmp_path: Path, shape: tuple[int, ...], message: str) -> None:
    (tmp_path / "t.npy").write_bytes(npy_header(shape) + bytes(64))
    assert_refused(tmp_path / "t.npy", message)


def test_every_version_of_the_header_is_read(tmp_path: Path) -> None:
    for version in ((1, 0), (2, 0), (3, 0)):
        with (tmp_path / "t.npy").open("wb") as file:
            np.lib.format.write_array(file, np.arange(3.0), version)
        assert values(open_stored(tmp_path / "t.npy"))["t"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("name", ["t.npz", "t.zip"])
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_duplicate_name_in_an_archive_is_refused(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / name, "w") as archive:
        for _ in range(2):
            archive.writestr("a.npy", npy_header((0,)))
    assert_refused(tmp_path / name, f"{name} has 2 files with the name 'a.npy'; expected one for each")


def test_non_regular_files_in_a_folder_are_refused_without_waiting(tmp_path: Path) -> None:
    for number, make in enumerate((os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/nonexistent"))):
        folder = tmp_path / str(number)
        folder.mkdir()
        np.save(folder / "a.npy", np.ones(2))
        make(folder / "b.npy")
        assert_refused(folder, "b.npy is not a readable file; expected an .npy array")


def test_macos_metadata_files_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "dumps").mkdir()
    np.save(tmp_path / "dumps" / "a.npy", np.ones(2))
    (tmp_path / "dumps" / "._a.npy").write_bytes(b"\0\5\x16\7")
    assert list(values(open_stored(tmp_path / "dumps"))) == ["a"]
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.write(tmp_path / "dumps" / "a.npy", "dumps/a.npy")
        archive.writestr("__MACOSX/dumps/._a.npy", b"\0\5\x16\7")
        archive.writestr("dumps/.DS_Store", b"1")
    assert list(values(open_stored(tmp_path / "t.zip"))) == ["a"]


def test_oversized_meta_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "dumps").mkdir()
    np.save(tmp_path / "dumps" / "a.npy", np.ones(2))
    (tmp_path / "dumps" / "meta.json").write_bytes(b" " * (2 << 20))
    assert_refused(tmp_path / "dumps", "meta.json of dumps is longer than 1048576 bytes; expected dtype, input_digest")


def test_plain_safetensors_metadata_is_read(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    save_file({"a": np.ones(2)}, path, {"format": "pt", "dtype": "float16", "input_digest": "a1b2"})
    assert open_stored(path).meta == {"dtype": "float16", "input_digest": "a1b2"}
    save_file({"a": np.ones(2)}, path, {"meta": '{"model": "x"}', "dtype": "float16"})
    assert open_stored(path).meta == {"model": "x"}


def test_zip_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "FREELY_COMPRESSED_BYTES", 100_000)
    np.savez_compressed(tmp_path / "bomb.npz", a=np.zeros(100_000))
    assert_refused(tmp_path / "bomb.npz", "bytes to 800128; expected numbers, which cannot be packed so much")
    np.savez_compressed(tmp_path / "fair.npz", a=np.random.default_rng(0).standard_normal(100_000))
    assert len(values(open_stored(tmp_path / "fair.npz"))["a"]) == 100_000


def test_files_of_other_formats_are_refused_as_traces(tmp_path: Path) -> None:
    assert_refused(tmp_path / "t.safetensors", "there is no trace ")
    (tmp_path / "t.bin").write_bytes(b"\x01\x00")
    assert_refused(
        tmp_path / "t.bin", "t.bin is not a trace; expected a .safetensors or .npz file, or a directory or .zip of .npy"
    )
    (tmp_path / "port.gguf").write_bytes(b"GGUF")
    assert_refused(
        tmp_path / "port.gguf", "port.gguf is a GGUF file and not a trace; `workbench compare MODEL port.gguf` "
    )
    (tmp_path / "empty").mkdir()
    assert_refused(tmp_path / "empty", "the directory empty holds no .npy files; expected one for each stage")
    with zipfile.ZipFile(tmp_path / "t.npz", "w") as archive:
        archive.writestr("readme.txt", "hello")
    assert_refused(tmp_path / "t.npz", "t.npz holds 'readme.txt'; expected arrays only, as numpy.savez writes them")
    (tmp_path / "empty" / "a.npy").write_bytes(npy_header((0,)))
    (tmp_path / "empty" / "meta.json").write_text("[1]")
    assert_refused(tmp_path / "empty", "meta.json of empty is not a JSON object")


@pytest.mark.parametrize("outer", ["", "dump of today/"])
def test_zipped_directory_is_read_like_the_directory(tmp_path: Path, outer: str) -> None:
    arrays = {"encoder/layers.0": np.eye(3), "encoder/output": np.ones((2, 2), np.float16)}
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{outer}{name}.npy", "w") as file:
                np.save(file, array)
        archive.writestr(f"{outer}meta.json", '{"dtype": "float16"}')
    dump = open_stored(tmp_path / "t.zip")
    assert dump.meta == {"dtype": "float16"}
    assert_same(values(dump), {name.replace("/", "."): array for name, array in arrays.items()})


def test_other_files_in_a_zip_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.zip"
    for content, message in [
        ({"a.npy": npy_header((0,)), "run.py": b"1"}, "t.zip holds 'run.py'; expected the .npy files of a directory"),
        ({"a/b.npy": npy_header((0,)), "a.b.npy": npy_header((0,))}, "t.zip has two files for a.b"),
        ({"a.npy": npy_header((0,)), "meta.json": b"[1]"}, "meta.json of t.zip is not a JSON object"),
        ({"meta.json": b"{}"}, "t.zip holds no .npy files"),
    ]:
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in content.items():
                archive.writestr(name, data)
        assert_refused(path, message)
    path.write_bytes(b"no archive at all")
    assert_refused(path, "t.zip is truncated or not a .zip file")


def test_damaged_archive_member_is_refused_when_read(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    np.savez(path, a=np.zeros(100_000))
    content = bytearray(path.read_bytes())
    content[400_000] ^= 1
    path.write_bytes(content)
    assert_refused(path, "'a.npy' of t.npz is truncated or damaged: Bad CRC-32")


def test_file_changed_or_removed_after_opening_raises_one_line_error(tmp_path: Path) -> None:
    save_file({"a": np.ones(4)}, tmp_path / "t.safetensors")
    read = open_stored(tmp_path / "t.safetensors").arrays["a"]
    (tmp_path / "t.safetensors").write_bytes(b"1")
    with pytest.raises(BadInput, match=r"^t.safetensors cannot be read any more: "):
        read()
    (tmp_path / "t.safetensors").unlink()
    with pytest.raises(BadInput, match=r"^t.safetensors cannot be read any more: "):
        read()
