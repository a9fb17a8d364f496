"""numpy files: every memory order of values, and headers that claim data the file does not have."""

from __future__ import annotations

import io
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.embeddings.files import Trap, archive, assert_holds, assert_refused, npy, npy_header, npz
from workbench.embeddings import read_embedding

FINITE = st.floats(-60000, 60000, width=16)
ARRAYS = arrays(
    st.sampled_from(["<f2", ">f2", "<f4", ">f4", "<f8", ">f8"]),
    st.one_of(
        st.tuples(st.integers(1, 6), st.integers(1, 6)), st.tuples(st.just(1), st.integers(1, 6), st.integers(1, 6))
    ),
    elements=FINITE,
)


@given(ARRAYS, st.sampled_from(["C", "F"]), st.booleans(), st.sampled_from([(1, 0), (2, 0)]))
def test_arrays_are_read_as_numpy_wrote_them(array: np.ndarray, order: str, small: bool, version: tuple) -> None:
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(array, order=order), version)
    expected = array.reshape(array.shape[-2:]).astype(np.float32)
    for content in (file.getvalue(), npz(small, a=np.asarray(array, order=order))):
        embedding = read_embedding(content)
        assert_holds(embedding, expected)
        assert embedding.dtype == array.dtype.name and embedding.shape == array.shape


def test_header_claiming_gigabytes_is_refused_without_allocating_memory() -> None:
    large = npy_header((10 << 20, 256))
    assert_refused(
        large, "the embedding is truncated: its shape (10485760, 256) of float32 is 10737418240 bytes, and it has 0"
    )
    message = "'a.npy' in the embedding is truncated: its shape (10485760, 256) of float32 is 10737418240 bytes"
    assert_refused(archive({"a.npy": large}), message)
    assert_refused(archive({"a.npy": large}, zipfile.ZIP_DEFLATED), message)
    assert_refused(npy_header((1 << 27, 1 << 27)), "the embedding is truncated")
    assert_refused(
        npy_header((int("9" * 4000),) * 2),
        "the embedding claims the shape 2^63 or more×2^63 or more, which no array has",
    )
    assert_refused(npy_header((10**15,) * 500), "the embedding claims a shape of 500 axes; expected at most 64")
    assert_refused(npy_header((-5, 8)) + bytes(160), "the embedding is not an .npy array: it claims the shape (-5, 8)")


def test_a_header_of_megabytes_is_not_read() -> None:
    content = b"\x93NUMPY\x02\x00" + (50_000_000).to_bytes(4, "little") + b" " * 50_000_000
    tracemalloc.start()
    try:
        assert_refused(content, "the embedding is truncated or not an .npy array")
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_extra_bytes_after_an_array_are_refused() -> None:
    values = np.ones((5, 8), np.float32)
    assert_refused(npy(values) + npy(values), "has 288 bytes behind the values of its shape (5, 8); expected one array")
    assert_refused(archive({"a.npy": npy(values) + b"\0"}), "'a.npy' in the embedding has 1 bytes behind the values")


def test_objects_are_not_unpickled(tmp_path: Path) -> None:
    array = np.empty((2, 2), object)
    array[:] = Trap(tmp_path / "made")
    message = "holds objects, which are pickled and not read; expected floating-point numbers"
    assert_refused(npy(array, allow_pickle=True), f"the embedding {message}")
    assert_refused(npz(a=array), f"'a.npy' in the embedding {message}")
    assert not (tmp_path / "made").exists()
    np.load(io.BytesIO(npy(array[:1, :1], allow_pickle=True)), allow_pickle=True)
    assert (tmp_path / "made").exists()  # numpy runs the code if pickles are allowed


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([["a", "b"]]), "holds text; expected floating-point"),
        (np.array([[b"a", b"b"]]), "holds text; expected floating-point"),
        (np.zeros((2, 2), [("a", "f4"), ("b", "i4")]), "holds records; expected floating-point"),
        (np.zeros((2, 2), "V2"), "holds values of 2 bytes without a type (such files do not say bfloat16; "),
        (np.zeros((2, 2), "M8[s]"), "holds datetime64[s]; expected floating-point"),
        (np.zeros((2, 2), np.longdouble), f"holds {np.dtype(np.longdouble).name}; expected floating-point"),
    ],
)
def test_unsupported_dtype_is_reported(array: np.ndarray, message: str) -> None:
    assert_refused(npy(array), message)
    assert_refused(npz(a=array), message)


def test_headers_that_numpy_refuses_are_refused() -> None:
    for header in (b"", b"\x03\x00\x10\x00\x00\x00", b"\x01\x00\x05\x00hello", b"\x09\x00"):
        assert_refused(
            b"\x93NUMPY" + header, "the embedding is truncated or not an .npy array; expected a file that numpy.save"
        )
