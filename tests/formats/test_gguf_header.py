"""The GGUF header: values of every type against the gguf package's writer, and refused files."""

from __future__ import annotations

import struct
import time
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf import GGUFValueType, GGUFWriter
from hypothesis import given
from hypothesis import strategies as st

from tests.support.gguf_parts import by_hand, key, tensor, text, write
from workbench.core.errors import BadInput
from workbench.formats.gguf_file import is_gguf, read_gguf

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
    stored = read_gguf(path).metadata["it"]
    assert stored == value and type(stored) is type(value)


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


def test_metadata_equals_that_of_the_gguf_package(tmp_path: Path) -> None:
    def fill(writer: GGUFWriter) -> None:
        for number, (kind, value) in enumerate(SCALARS):
            writer.add_key_value(f"scalar.{number}", value, kind)
        writer.add_array("texts", ["a", "b"])

    path = write(tmp_path / "it.gguf", fill)
    expected = {name: field.contents() for name, field in gguf.GGUFReader(path).fields.items()}
    metadata = dict(read_gguf(path).metadata)
    assert metadata == {name: value for name, value in expected.items() if not name.startswith("GGUF.")}


def test_gguf_with_a_large_vocabulary_opens_within_a_second(tmp_path: Path) -> None:
    def fill(writer: GGUFWriter) -> None:
        writer.add_array("tokenizer.ggml.tokens", [f"token{number}" for number in range(152_000)])
        writer.add_array("tokenizer.ggml.merges", [f"left{number} right" for number in range(151_000)])
        writer.add_uint32("after", 1)

    path = write(tmp_path / "it.gguf", fill)
    started = time.process_time()
    file = read_gguf(path)
    seconds = time.process_time() - started
    assert file.whole("after") == 1
    assert seconds < 1  # some 50 ms
    tokens = file.texts("tokenizer.ggml.tokens")
    assert tokens is not None and (len(tokens), tokens[-1]) == (152_000, "token151999")


@given(texts=st.lists(st.text(st.characters(codec="utf-8")), max_size=40), after=st.integers(0, 255))
def test_lazily_skipped_texts_of_any_length_are_read_correctly(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], after: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("workbench.formats.gguf_header._WINDOW", 16)  # so that they cross its edges
        path = tmp_path_factory.getbasetemp() / "texts.gguf"
        values = struct.pack("<IQ", 8, len(texts)) + b"".join(text(each) for each in texts)
        by_hand(path, [key("texts", 9, values), key("after", 0, bytes([after]))])
        file = read_gguf(path)
        assert file.texts("texts") == texts and file.whole("after") == after


# What is refused.


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it.gguf is not a GGUF file"),
        (b"GG", "it.gguf is not a GGUF file"),
        (b"PK\x03\x04" + bytes(100), "it does not begin with the letters GGUF"),
        (b"GGUF", "is damaged or cut short: the version takes 4 bytes at byte 4, and the file has 0 more"),
        (b"GGUF\0\0\0\x03" + bytes(16), "it.gguf is a big-endian GGUF file; expected a little-endian one"),
        (b"GGUF\x01\0\0\0" + bytes(16), "of version 1; expected version 2 or 3"),
        (b"GGUF\0\0\0\0" + bytes(16), "of version 0; expected version 2 or 3"),
        (b"GGUF\x03\0\0\0" + bytes(10), "the number of keys takes 8 bytes at byte 16, and the file has 2 more"),
    ],
)
def test_files_that_are_no_supported_gguf_are_refused(tmp_path: Path, content: bytes, reason: str) -> None:
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
def test_absurd_counts_are_refused_before_memory_is_allocated(tmp_path: Path, count: int) -> None:
    for counts, entries in (((0, count), "metadata keys"), ((count, 0), "tensors")):
        path = by_hand(tmp_path / "it.gguf", counts=counts)
        with pytest.raises(BadInput, match=f"states that it has {count} {entries}, more than"):
            read_gguf(path)
    for kind, value in (
        (8, struct.pack("<Q", count)),
        (9, struct.pack("<IQ", 8, count)),
        (9, struct.pack("<IQ", 4, count)),
    ):
        with pytest.raises(BadInput, match=f"(takes|has) {count * (4 if value[0] == 4 else 1)}|the value of it"):
            read_gguf(by_hand(tmp_path / "it.gguf", [key("it", kind, value)]))


def test_text_limit_applies_to_all_arrays_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.formats.gguf_header.MAX_TEXTS", 3)
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
        ([key("", 13, b"1")], "the value of '' in it.gguf"),
        ([key("k" * 64, 13, b"1")], f"the value of {'k' * 64} in it.gguf"),
        ([key("k" * 65, 13, b"1")], f"the value of '{'k' * 65}' in it.gguf"),
        ([key("k" * 300, 13, b"1")], f"the value of '{'k' * 79} in it.gguf"),  # cut
        *(
            (
                [key("general.alignment", 4, struct.pack("<I", size))],
                f"general.alignment in it.gguf is {size}; expected",
            )
            for size in (0, 4, 33, 2**31)
        ),
        ([key("general.alignment", 8, text("32"))], "general.alignment in it.gguf is '32'; expected a power of two"),
        (
            [key("split.no", 2, struct.pack("<H", 1)), key("split.count", 2, struct.pack("<H", 3))],
            "it.gguf is part 2 of 3 of a split model; join them with llama.cpp's tool: llama-gguf-split --merge",
        ),
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
        ([tensor(), tensor("v", (16,), offset=32)], "and 32 of them are missing"),
        ([tensor(shape=(8, 2), kind=1), tensor("v", (8,), offset=64)], "32 bytes behind tensor w belong to no tensor"),
        ([tensor(offset=2**63)], f"{2**63} bytes behind its table of tensors belong to no tensor"),
    ],
)
def test_damaged_tensor_tables_are_refused(tmp_path: Path, tensors: list[bytes], reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        read_gguf(by_hand(tmp_path / "it.gguf", tensors=tensors))


def test_damage_in_lazily_read_values_is_found_when_they_are_read(tmp_path: Path) -> None:
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
