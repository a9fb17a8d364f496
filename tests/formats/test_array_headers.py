"""Headers of array files are checked against the file size; further cases are in the tests of their readers."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from workbench.core.errors import BadInput
from workbench.formats.array_headers import check_claim, read_array_header, read_json, read_tensor_header


@given(st.lists(st.integers(0, 9), max_size=4), st.sampled_from(["<f4", ">i2", "|b1", "<c8"]), st.booleans())
def test_npy_header_is_read_and_checked_against_the_file_size(shape: list[int], dtype: str, fortran: bool) -> None:
    file = io.BytesIO()
    np.save(file, np.zeros(shape, dtype, order="F" if fortran else "C"))
    size, _ = file.tell(), file.seek(0)
    header = read_array_header(file, "x.npy")
    assert (header.shape, header.dtype) == (tuple(shape), np.dtype(dtype))
    assert header.bytes == size - file.tell()
    check_claim(header, header.bytes, header.bytes, "x.npy")
    if header.bytes:
        with pytest.raises(BadInput, match=r"x\.npy is truncated: its shape"):
            check_claim(header, header.bytes - 1, header.bytes, "x.npy")
        with pytest.raises(BadInput, match=f"x.npy is {header.bytes} bytes large; expected at most"):
            check_claim(header, header.bytes, header.bytes - 1, "x.npy")


def test_safetensors_header_gives_tensor_positions() -> None:
    arrays = {"a": np.arange(6, dtype="<f4").reshape(2, 3), "b": np.arange(4, dtype="<i8")}
    content = save(arrays, {"by": "us"})
    places, metadata = read_tensor_header(io.BytesIO(content), len(content), "x")
    assert metadata == {"by": "us"} and places.keys() == arrays.keys()
    for name, array in arrays.items():
        place = places[name]
        assert (place.shape, place.dtype, place.bytes) == (array.shape, array.dtype, array.nbytes)
        assert content[place.start : place.start + place.bytes] == array.tobytes()
    with pytest.raises(BadInput, match="tensor 'b' of x holds 'I64'; expected one of F32"):
        read_tensor_header(io.BytesIO(content), len(content), "x", {"F32": "<f4"})
    with pytest.raises(BadInput, match=r"the header of x is \d+ bytes long; expected at most 10"):
        read_tensor_header(io.BytesIO(content), len(content), "x", longest=10)


def test_too_deeply_nested_json_header_is_refused() -> None:
    with pytest.raises(BadInput, match="the header of x is not JSON: "):
        read_json(b"[" * 100_000, "the header of x")
