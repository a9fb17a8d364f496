"""Structs in Thrift's compact protocol, and the sizes that the headers of Parquet pages state."""

from __future__ import annotations

import io

import pytest

from workbench.formats.parquet_files import page_sizes
from workbench.formats.thrift_values import MAX_STRUCT_BYTES, ThriftReader


def number(value: int) -> bytes:
    found = b""
    while value > 0x7F:
        found += bytes([value & 0x7F | 0x80])
        value >>= 7
    return found + bytes([value])


def page(unpacked: int, content: bytes) -> bytes:
    """Returns a page with its header: the type, both sizes, a struct with statistics of two texts, and a truth."""
    statistics = b"\x18" + number(300) + b"x" * 300 + b"\x18\x01y\x00"
    inner = b"\x15\x14\x15\x00\x15\x06\x15\x06\x1c" + statistics + b"\x11\x00"
    return (
        b"\x15\x00\x15"
        + number(2 * unpacked)
        + b"\x15"
        + number(2 * len(content))
        + b"\x2c"
        + inner
        + b"\x00"
        + content
    )


def test_fields_of_every_type_are_read() -> None:
    content = (
        b"\x15\x03"  # field 1: -2
        b"\x11\x12"  # fields 2 and 3: true, false
        b"\x18\x02ab"  # field 4
        b"\x19\x25\x02\x04"  # field 5: a list of 1 and 2
        b"\x1c\x15\x0a\x00"  # field 6: a struct with 5
        b"\x1b\x01\x85\x01a\x02"  # field 7: a map
        b"\x17" + bytes(8) + b"\x05\xc8\x01\x02"  # field 8: a double, and field 100: 1
        b"\x00rest"
    )
    file = io.BytesIO(content)
    found = ThriftReader(file).read_struct()
    assert found == {1: -2, 2: True, 3: False, 4: b"ab", 5: [1, 2], 6: {1: 5}, 7: None, 8: bytes(8), 100: 1}
    assert file.read() == b"rest"


@pytest.mark.parametrize(
    "content, reason",
    [
        (b"\x15", "ends inside"),
        (b"\x18\xff\xff\xff\x7f", f"longer than {MAX_STRUCT_BYTES} bytes"),
        (b"\x15" + b"\xff" * 11, "a number is too long"),
        (b"\x1c" * 100, "nested too deeply"),
        (b"\x19" + b"\x19" * 100, "nested too deeply"),
        (b"\x1b" + b"\x01\xbb" * 100, "nested too deeply"),
        (b"\x19\xfc\xff\xff\xff\x7f" + bytes(1 << 22), "more than 2097152 values"),
        (b"\x1e", "the type 14"),
    ],
)
def test_malformed_and_huge_structs_are_refused(content: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        ThriftReader(io.BytesIO(content)).read_struct()


def test_sizes_of_pages_are_those_of_their_headers() -> None:
    pages = [page(5, b"abc"), page((1 << 31) - 1, b""), page(70_000, b"x" * 9000)]
    file = io.BytesIO(b"PAR1" + b"".join(pages) + b"PAR1")
    length = sum(map(len, pages))
    assert list(page_sizes(file, 4, length)) == [5, (1 << 31) - 1, 70_000]
    with pytest.raises(ValueError, match=f"no page at byte {4 + length}|ends inside|type"):
        list(page_sizes(file, 4, length + 4))
