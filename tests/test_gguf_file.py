"""The GGUF reader against files of the `gguf` package's own writer, and against hand-made broken ones."""

from __future__ import annotations

import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter
from gguf.constants import GGML_QUANT_SIZES
from hypothesis import given
from hypothesis import strategies as st

from workbench.errors import BadInput, Unavailable
from workbench.gguf_file import GgufFile, is_gguf, read_gguf
from workbench.gguf_types import TENSOR_TYPES

Fill = Callable[[GGUFWriter], Any]


def write(path: Path, fill: Fill | None = None, architecture: str = "sensevoice-small") -> Path:
    """A file with whatever `fill` puts into the package's writer."""
    writer = GGUFWriter(path, architecture)
    if fill is not None:
        fill(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def text(value: str | bytes) -> bytes:
    content = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(content)) + content


def by_hand(
    path: Path,
    keys: list[bytes] | None = None,
    tensors: list[bytes] | None = None,
    data: bytes = bytes(64),
    counts: tuple[int, int] | None = None,
    head: bytes = b"GGUF\x03\0\0\0",
) -> Path:
    """A file from its parts, sound or not; `counts` are of tensors and keys."""
    keys = [text("general.architecture") + struct.pack("<I", 8) + text("it")] if keys is None else keys
    tensors = tensors or []
    content = head + struct.pack("<QQ", *(counts or (len(tensors), len(keys)))) + b"".join(keys + tensors)
    path.write_bytes(content + bytes(-len(content) % 32) + data)
    return path


def tensor(name: str = "w", shape: tuple[int, ...] = (4, 2), kind: int = 0, offset: int = 0) -> bytes:
    """An entry of the tensor table; the shape as it stands in the file."""
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def key(name: str, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


# Metadata.

SCALARS: list[tuple[GGUFValueType, Any]] = [
    (GGUFValueType.UINT8, 255),
    (GGUFValueType.INT8, -128),
    (GGUFValueType.UINT16, 65535),
    (GGUFValueType.INT16, -32768),
    (GGUFValueType.UINT32, 2**32 - 1),
    (GGUFValueType.INT32, -(2**31)),
    (GGUFValueType.UINT64, 2**64 - 1),
    (GGUFValueType.INT64, -(2**63)),
    (GGUFValueType.FLOAT32, 0.5),
    (GGUFValueType.FLOAT64, 0.1),
    (GGUFValueType.BOOL, True),
    (GGUFValueType.STRING, "日本 ✓"),
    (GGUFValueType.STRING, ""),
    (GGUFValueType.STRING, "long " * 2000),
]


@pytest.mark.parametrize(("kind", "value"), SCALARS)
def test_every_kind_of_value_is_read(tmp_path: Path, kind: GGUFValueType, value: Any) -> None:
    path = write(tmp_path / "it.gguf", lambda writer: writer.add_key_value("it", value, kind))
    found = read_gguf(path).metadata["it"]
    assert found == value and type(found) is type(value)


ARRAYS = [
    (GGUFValueType.UINT8, [0, 255]),
    (GGUFValueType.INT8, [-128, 127]),
    (GGUFValueType.UINT16, [1, 65535]),
    (GGUFValueType.INT16, [-1, 2]),
    (GGUFValueType.UINT32, [2**32 - 1]),
    (GGUFValueType.INT32, [0, 1, 2, 14]),
    (GGUFValueType.UINT64, [2**63]),
    (GGUFValueType.INT64, [-(2**40)]),
    (GGUFValueType.FLOAT32, [0.5, -1.5]),
    (GGUFValueType.FLOAT64, [0.1]),
    (GGUFValueType.BOOL, [True, False, True]),
    (GGUFValueType.STRING, ["", "a", "中", "x" * 5000]),
]


@pytest.mark.parametrize(("kind", "values"), ARRAYS)
def test_every_kind_of_array_is_read(tmp_path: Path, kind: GGUFValueType, values: list[Any]) -> None:
    path = write(tmp_path / "it.gguf", lambda writer: writer.add_key_value("it", values, GGUFValueType.ARRAY, kind))
    file = read_gguf(path)
    assert list(file.metadata["it"]) == values
    assert file.length("it") == len(values)
    if kind == GGUFValueType.STRING:
        assert file.texts("it") == values
    else:
        numbers = file.numbers("it")
        assert numbers is not None and numbers.tolist() == values


def test_the_metadata_agrees_with_the_package_s_reader(tmp_path: Path) -> None:
    def fill(writer: GGUFWriter) -> None:
        for number, (kind, value) in enumerate(SCALARS):
            writer.add_key_value(f"scalar.{number}", value, kind)
        writer.add_array("texts", ["a", "b"])

    path = write(tmp_path / "it.gguf", fill)
    theirs = {name: field.contents() for name, field in gguf.GGUFReader(path).fields.items()}
    ours = dict(read_gguf(path).metadata)
    assert ours == {name: value for name, value in theirs.items() if not name.startswith("GGUF.")}


@pytest.fixture
def typed(tmp_path: Path) -> GgufFile:
    def fill(writer: GGUFWriter) -> None:
        writer.add_uint32("whole", 7)
        writer.add_float32("float", 0.25)
        writer.add_bool("flag", True)
        writer.add_string("text", "it")
        writer.add_string("long", "y" * 9000)
        writer.add_array("texts", ["a"])
        writer.add_array("numbers", [1, 2])
        writer.add_float32("nan", float("nan"))

    return read_gguf(write(tmp_path / "it.gguf", fill))


def test_getters_give_values_and_defaults(typed: GgufFile) -> None:
    assert (typed.architecture, typed.whole("whole"), typed.number("float")) == ("sensevoice-small", 7, 0.25)
    assert (typed.number("whole"), typed.flag("flag"), typed.text("text")) == (7.0, True, "it")
    assert typed.text("long") == "y" * 9000
    assert (typed.whole("no", 3), typed.number("no", 0.5), typed.flag("no", False), typed.text("no", "x")) == (
        3,
        0.5,
        False,
        "x",
    )
    assert typed.texts("no") is None and typed.numbers("no") is None and typed.length("no") is None


@pytest.mark.parametrize(
    ("ask", "reason"),
    [
        (lambda file: file.whole("no"), "it.gguf has no metadata key no"),
        (lambda file: file.whole("float"), "float in it.gguf is 0.25; expected a whole number from 0 to"),
        (lambda file: file.whole("flag"), "flag in it.gguf is True; expected a whole number"),
        (lambda file: file.whole("whole", maximum=6), "whole in it.gguf is 7; expected a whole number from 0 to 6"),
        (lambda file: file.whole("texts"), "texts in it.gguf is an array of 1"),
        (lambda file: file.number("nan"), "nan in it.gguf is nan; expected a number"),
        (lambda file: file.number("text"), "text in it.gguf is 'it'; expected a number"),
        (lambda file: file.flag("whole"), "whole in it.gguf is 7; expected true or false"),
        (lambda file: file.text("whole"), "whole in it.gguf is 7; expected a text"),
        (lambda file: file.text("texts"), "texts in it.gguf is an array of 1; expected a text"),
        (lambda file: file.texts("numbers"), "numbers in it.gguf is an array of 2; expected an array of texts"),
        (lambda file: file.texts("long"), "long in it.gguf is a long text; expected an array of texts"),
        (lambda file: file.numbers("whole"), "whole in it.gguf is 7; expected an array of numbers"),
    ],
)
def test_getters_refuse_what_is_something_else(typed: GgufFile, ask: Callable[[GgufFile], Any], reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        ask(typed)


def test_a_large_vocabulary_does_not_slow_opening_down(tmp_path: Path) -> None:
    def fill(writer: GGUFWriter) -> None:
        writer.add_array("tokenizer.ggml.tokens", [f"token{number}" for number in range(152_000)])
        writer.add_array("tokenizer.ggml.merges", [f"left{number} right" for number in range(151_000)])
        writer.add_uint32("after", 1)

    path = write(tmp_path / "it.gguf", fill)
    begun = time.process_time()
    file = read_gguf(path)
    seconds = time.process_time() - begun
    assert file.whole("after") == 1
    assert seconds < 1  # some 50 ms
    tokens = file.texts("tokenizer.ggml.tokens")
    assert tokens is not None and (len(tokens), tokens[-1]) == (152_000, "token151999")


@given(texts=st.lists(st.text(st.characters(codec="utf-8")), max_size=40), after=st.integers(0, 255))
def test_texts_of_any_length_are_passed_over_alike(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], after: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("workbench.gguf_header._WINDOW", 16)  # so that they lie across its edges
        path = tmp_path_factory.getbasetemp() / "texts.gguf"
        values = struct.pack("<IQ", 8, len(texts)) + b"".join(text(each) for each in texts)
        by_hand(path, [key("texts", 9, values), key("after", 0, bytes([after]))])
        file = read_gguf(path)
        assert file.texts("texts") == texts and file.whole("after") == after


# Tensors.


def test_the_table_of_types_is_the_package_s() -> None:
    theirs = {int(kind): (kind.name, *sizes) for kind, sizes in GGML_QUANT_SIZES.items()}
    ours = {number: (kind.name, kind.block, kind.block_bytes) for number, kind in TENSOR_TYPES.items()}
    assert theirs.items() <= ours.items()
    assert set(ours) - set(theirs) <= {42}  # Q2_0, which ggml has and the package does not know yet


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int8", "int16", "int32", "int64"])
@pytest.mark.parametrize("shape", [(3,), (5, 7), (2, 3, 4), (2, 1, 3, 5)])
def test_plain_numbers_are_read(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    values = (100 * np.random.default_rng(1).standard_normal(shape)).astype(dtype)
    file = read_gguf(write(tmp_path / "it.gguf", lambda writer: writer.add_tensor("w", values)))
    assert file.tensors["w"].shape == shape
    assert file.array("w").dtype == np.float32
    np.testing.assert_array_equal(file.array("w"), values.astype(np.float32))
    np.testing.assert_array_equal(file.raw("w"), values.reshape(-1).view(np.uint8))


QUANTISED = ["BF16", "Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0", "TQ1_0", "TQ2_0"]


@pytest.mark.parametrize("name", QUANTISED)
def test_what_the_package_quantises_is_read_as_it_reads_it(tmp_path: Path, name: str) -> None:
    kind = GGMLQuantizationType[name]
    values = np.random.default_rng(1).standard_normal((5000 if name == "Q8_0" else 50, 256), np.float32)
    stored = gguf.quants.quantize(values, kind)
    file = read_gguf(write(tmp_path / "it.gguf", lambda writer: writer.add_tensor("w", stored, raw_dtype=kind)))
    assert (file.tensors["w"].shape, file.tensors["w"].type, file.quantization) == (values.shape, name, name.lower())
    expected = gguf.quants.dequantize(stored, kind)
    np.testing.assert_array_equal(file.array("w"), expected)
    np.testing.assert_array_equal(file.rows("w", [7, 0, 7]), expected[[7, 0, 7]])


@pytest.mark.parametrize("kind", [kind for kind in GGML_QUANT_SIZES if kind in gguf.quants._type_traits])
def test_blocks_of_any_bytes_are_read_as_the_package_reads_them(tmp_path: Path, kind: GGMLQuantizationType) -> None:
    block, size = GGML_QUANT_SIZES[kind]
    stored = np.random.default_rng(1).integers(0, 256, (3, 2 * size * max(1, 32 // block)), dtype=np.uint8)
    file = read_gguf(write(tmp_path / "it.gguf", lambda writer: writer.add_tensor("w", stored, raw_dtype=kind)))
    with np.errstate(all="ignore"):
        expected = gguf.quants.dequantize(stored, kind)
    np.testing.assert_array_equal(file.array("w"), expected)


def test_a_type_that_only_ggml_reads_says_so(tmp_path: Path) -> None:
    path = by_hand(tmp_path / "it.gguf", tensors=[tensor(shape=(256,), kind=15)], data=bytes(292))
    with pytest.raises(BadInput, match=r"tensor w in it.gguf is of type Q8_K, which only ggml itself can read"):
        read_gguf(path).array("w")


def test_without_the_package_quantised_weights_are_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = [tensor("plain", (32,), 0), tensor("quantised", (32,), 8, 128)]
    file = read_gguf(by_hand(tmp_path / "it.gguf", tensors=tensors, data=bytes(200)))
    monkeypatch.setitem(sys.modules, "gguf", None)
    assert file.array("plain").shape == (32,)
    with pytest.raises(Unavailable, match=r"Python package gguf; run: pip install gguf"):
        file.array("quantised")


def test_rows_that_are_not_there_are_refused(tmp_path: Path) -> None:
    def fill(writer: GGUFWriter) -> None:
        writer.add_tensor("w", np.ones((4, 2), np.float32))
        writer.add_tensor("v", np.ones(4, np.float32))

    file = read_gguf(write(tmp_path / "it.gguf", fill))
    assert file.rows("w", []).shape == (0, 2)
    for number in (-1, 4):
        with pytest.raises(BadInput, match=f"tensor w in it.gguf has no row {number}; it has 4 rows"):
            file.rows("w", [0, number])
    with pytest.raises(BadInput, match=r"tensor v in it.gguf has the shape \(4,\); expected a matrix"):
        file.rows("v", [0])
    with pytest.raises(BadInput, match=r"it.gguf has no tensor u"):
        file.array("u")


def test_expect_compares_shapes(tmp_path: Path) -> None:
    def fill(writer: GGUFWriter) -> None:
        writer.add_tensor("w", np.ones((4, 2), np.float32))
        writer.add_tensor("row", np.ones(4, np.float32))

    file = read_gguf(write(tmp_path / "it.gguf", fill))
    assert file.expect("w", (4, 2)) is file.tensors["w"]
    assert file.expect("row", (1, 4)).shape == (4,)  # a file that ggml wrote has no leading ones
    with pytest.raises(BadInput, match=r"tensor w in it.gguf has the shape \(4, 2\); expected \(2, 4\)"):
        file.expect("w", (2, 4))
    with pytest.raises(BadInput, match=r"it.gguf has no tensor v; expected one of shape \(3,\)"):
        file.expect("v", [3])


def test_the_quantization_is_that_of_most_matrices_or_what_the_file_says(tmp_path: Path) -> None:
    def fill(writer: GGUFWriter) -> None:
        writer.add_tensor("norm", np.ones(4000, np.float32))
        writer.add_tensor("w", np.ones((40, 20), np.float16))
        writer.add_tensor("u", np.ones((4, 2), np.float32))

    def stated(writer: GGUFWriter) -> None:
        fill(writer)
        writer.add_string("workbench.quantization", "q4_0")

    assert read_gguf(write(tmp_path / "it.gguf", fill)).quantization == "f16"
    assert read_gguf(write(tmp_path / "it.gguf", stated)).quantization == "q4_0"
    assert read_gguf(write(tmp_path / "it.gguf")).quantization == "f32"


def test_another_alignment_is_kept(tmp_path: Path) -> None:
    def fill(writer: GGUFWriter) -> None:
        writer.add_custom_alignment(256)
        writer.add_tensor("a", np.arange(3, dtype=np.float32))
        writer.add_tensor("b", np.arange(5, dtype=np.float32))

    file = read_gguf(write(tmp_path / "it.gguf", fill))
    assert all(info.offset % 256 == 0 for info in file.tensors.values())
    assert file.array("b").tolist() == [0, 1, 2, 3, 4]


def test_version_2_is_read(tmp_path: Path) -> None:
    file = read_gguf(by_hand(tmp_path / "it.gguf", tensors=[tensor()], head=b"GGUF\x02\0\0\0"))
    assert (file.architecture, file.array("w").shape) == ("it", (2, 4))


def test_weights_cannot_be_written_to(tmp_path: Path) -> None:
    file = read_gguf(write(tmp_path / "it.gguf", lambda writer: writer.add_tensor("w", np.ones((4, 2), np.float32))))
    for values in (file.raw("w"), file.array("w")):
        with pytest.raises(ValueError, match="read-only"):
            values[0] = 0


# What is refused.


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it.gguf is no GGUF file"),
        (b"GG", "it.gguf is no GGUF file"),
        (b"PK\x03\x04" + bytes(100), "it does not begin with the letters GGUF"),
        (b"GGUF", "is damaged or cut short: the version takes 4 bytes at byte 4, and the file has 0 more"),
        (b"GGUF\0\0\0\x03" + bytes(16), "it.gguf is a big-endian GGUF file; expected a little-endian one"),
        (b"GGUF\x01\0\0\0" + bytes(16), "of version 1; expected version 2 or 3"),
        (b"GGUF\0\0\0\0" + bytes(16), "of version 0; expected version 2 or 3"),
        (b"GGUF\x03\0\0\0" + bytes(10), "the number of keys takes 8 bytes at byte 16, and the file has 2 more"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "it.gguf"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=reason):
        read_gguf(path)
    assert is_gguf(path) == content.startswith(b"GGUF")


def test_a_missing_file_and_a_directory_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "no.gguf"):
        assert not is_gguf(path)
        with pytest.raises(BadInput, match="there is no GGUF file"):
            read_gguf(path)


@pytest.mark.parametrize("count", [100, 2**14 + 1, 2**40, 2**64 - 1])
def test_absurd_counts_are_refused_before_anything_is_made(tmp_path: Path, count: int) -> None:
    for counts, what in (((0, count), "metadata keys"), ((count, 0), "tensors")):
        path = by_hand(tmp_path / "it.gguf", counts=counts)
        with pytest.raises(BadInput, match=f"states that it has {count} {what}, more than"):
            read_gguf(path)
    for kind, value in (
        (8, struct.pack("<Q", count)),
        (9, struct.pack("<IQ", 8, count)),
        (9, struct.pack("<IQ", 4, count)),
    ):
        with pytest.raises(BadInput, match=f"(takes|has) {count * (4 if value[0] == 4 else 1)}|the value of it"):
            read_gguf(by_hand(tmp_path / "it.gguf", [key("it", kind, value)]))


def test_texts_are_counted_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.gguf_header.MOST_TEXTS", 3)
    values = struct.pack("<IQ", 8, 2) + text("a") + text("b")
    assert read_gguf(by_hand(tmp_path / "it.gguf", [key("one", 9, values)])).texts("one") == ["a", "b"]
    with pytest.raises(
        BadInput, match=r"the value of two in it.gguf states that it has 2 texts, more than the 1 that are"
    ):
        read_gguf(by_hand(tmp_path / "it.gguf", [key("one", 9, values), key("two", 9, values)]))


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ([key("a", 0, b"1"), key("a", 0, b"2")], "it.gguf has the metadata key a twice"),
        ([key("a", 13, b"1")], "the value of a in it.gguf is of type 13, which GGUF does not have"),
        ([key("a", 7, b"\x02")], "the value of a in it.gguf is the flag 2; expected 0 or 1"),
        ([key("a", 9, struct.pack("<IQ", 9, 1))], "is an array of arrays"),
        ([key("a", 9, struct.pack("<IQ", 99, 1))], "is an array of type 99, which GGUF does not have"),
        ([key("a", 8, text(b"\xff"))], "the value of a in it.gguf is not UTF-8 at its byte 0"),
        ([text(b"\xc3\x28") + struct.pack("<IB", 0, 1)], "the name of metadata key 0 in it.gguf is not UTF-8"),
        ([text("k" * 70_000) + struct.pack("<IB", 0, 1)], "metadata key 0 is 70000 bytes long; expected at most 65535"),
        ([key("a\n", 13, b"1")], r"the value of 'a\\n' in it.gguf"),
        *(
            (
                [key("general.alignment", 4, struct.pack("<I", size))],
                f"general.alignment in it.gguf is {size}; expected",
            )
            for size in (0, 4, 33, 2**31)
        ),
        ([key("general.alignment", 8, text("32"))], "general.alignment in it.gguf is '32'; expected a power of two"),
    ],
)
def test_damaged_metadata_is_refused(tmp_path: Path, keys: list[bytes], reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        read_gguf(by_hand(tmp_path / "it.gguf", keys))


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        ([tensor(shape=(1, 1, 1, 1, 1))], "tensor w in it.gguf states that it has 5 dimensions; expected at most 4"),
        ([tensor(shape=(4, 0))], r"tensor w in it.gguf has the shape \(0, 4\); expected no dimension of 0"),
        ([tensor(shape=(2**40, 2**40, 2**40))], f"and {2**122 - 64} of them are missing"),
        ([tensor(shape=(2**63, 2))], f"and {2**66 - 64} of them are missing"),
        ([tensor(kind=4)], "tensor w in it.gguf is of a type that ggml does not have"),
        ([tensor(kind=2**32 - 1)], "tensor w in it.gguf is of a type that ggml does not have"),
        ([tensor(shape=(33,), kind=8)], "has rows of 33 values; Q8_0 expects a multiple of 32"),
        ([tensor(offset=16)], "tensor w in it.gguf begins at byte 16; expected a multiple of 32"),
        ([tensor(), tensor()], "it.gguf has the tensor w twice"),
        ([tensor("u", (16,)), tensor("v", (8,), offset=32)], "tensors u and v in it.gguf overlap"),
        ([tensor("n" * 65)], "the name of tensor 0 is 65 bytes long; expected at most 64"),
        ([text(b"\xff") + tensor()[9:]], "the name of tensor 0 in it.gguf is not UTF-8"),
        ([tensor(), tensor("v", (8,), offset=64)], "and 32 of them are missing"),
        ([tensor(offset=2**63)], f"and {2**63 - 32} of them are missing"),
    ],
)
def test_damaged_tensor_tables_are_refused(tmp_path: Path, tensors: list[bytes], reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        read_gguf(by_hand(tmp_path / "it.gguf", tensors=tensors))


def test_damage_in_values_that_were_passed_over_is_found_when_they_are_read(tmp_path: Path) -> None:
    keys = [
        key("long", 8, text(b"x" * 5000 + b"\xff")),
        key("texts", 9, struct.pack("<IQ", 8, 2) + text("a") + text(b"\xff")),
        key("flags", 9, struct.pack("<IQ", 7, 2) + b"\x01\x07"),
    ]
    file = read_gguf(by_hand(tmp_path / "it.gguf", keys))
    with pytest.raises(BadInput, match=r"long in it.gguf is not UTF-8 at its byte 5000"):
        file.text("long")
    with pytest.raises(BadInput, match=r"text 1 of texts in it.gguf is not UTF-8 at its byte 0"):
        file.texts("texts")
    with pytest.raises(BadInput, match=r"flags in it.gguf holds the flag 7; expected 0 or 1"):
        file.numbers("flags")


def test_a_truncated_file_says_how_much_is_missing(tmp_path: Path) -> None:
    path = write(tmp_path / "it.gguf", lambda writer: writer.add_tensor("w", np.ones((100, 8), np.float32)))
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(
        BadInput, match=r"it.gguf is cut short or damaged: its tensors take \d+ bytes, and 1000 of them"
    ):
        read_gguf(path)


def test_a_file_that_was_written_to_is_not_read_on(tmp_path: Path) -> None:
    def fill(writer: GGUFWriter) -> None:
        writer.add_array("texts", ["a", "b"])
        writer.add_tensor("w", np.ones((4, 2), np.float32))

    file = read_gguf(write(tmp_path / "it.gguf", fill))
    file.path.write_bytes(file.path.read_bytes()[:-8])
    with pytest.raises(BadInput, match="has been written to since it was opened"):
        file.texts("texts")
    with pytest.raises(BadInput, match="has been written to since it was opened"):
        file.array("w")
    file.path.unlink()
    with pytest.raises(BadInput, match=r"the GGUF file it.gguf cannot be read: No such file"):
        file.texts("texts")
