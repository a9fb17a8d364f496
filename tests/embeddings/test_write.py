"""Written embeddings are read back by this project and by the libraries of the formats."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from safetensors.torch import load as load_tensors

from workbench.core.errors import BadInput
from workbench.embeddings import ENCODINGS, as_base64, read_embedding, write_embedding

FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
VALUES = arrays(np.float32, st.tuples(st.integers(1, 6), st.integers(1, 9)), elements=FINITE)


@given(VALUES, st.sampled_from(ENCODINGS))
def test_every_encoding_round_trips(values: np.ndarray, encoding: str) -> None:
    content = write_embedding(values, None, encoding)
    assert content == write_embedding(values, None, encoding)
    for source in (content, as_base64(content)):
        embedding = read_embedding(source, encoding=encoding)
        np.testing.assert_array_equal(embedding.values, values)
        assert (embedding.dtype, embedding.shape, embedding.notes) == ("float32", values.shape, ())


@given(VALUES)
def test_format_libraries_read_the_written_files(values: np.ndarray) -> None:
    read_arrays = {
        "npy": np.load(io.BytesIO(write_embedding(values, None, "npy")), allow_pickle=False),
        "npz": np.load(io.BytesIO(write_embedding(values, None, "npz")), allow_pickle=False)["embedding"],
        "pt": torch.load(io.BytesIO(write_embedding(values, None, "pt")), weights_only=True).numpy(),
        "safetensors": load_tensors(write_embedding(values, None, "safetensors"))["embedding"].numpy(),
    }
    assert read_arrays.keys() == set(ENCODINGS)
    for array in read_arrays.values():
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, values)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_encoding_is_taken_from_the_file_suffix(tmp_path: Path, encoding: str) -> None:
    values = np.arange(12, dtype=np.float64).reshape(4, 3).T
    path = write_embedding(values, tmp_path / f"e.{encoding.upper()}")
    assert path.read_bytes() == write_embedding(values, None, encoding)
    np.testing.assert_array_equal(read_embedding(path, encoding=encoding).values, values)
    assert read_embedding(write_embedding(values, tmp_path / "e.bin", encoding)).name == "e.bin"


def test_invalid_embeddings_raise_an_error_and_write_no_file(tmp_path: Path) -> None:
    def assert_refused(values: np.ndarray, path: Path | None, encoding: str | None, message: str) -> None:
        with pytest.raises(BadInput, match=message):
            write_embedding(values, path, encoding)  # type: ignore[call-overload]

    valid = np.ones((2, 3), np.float32)
    assert_refused(
        valid, None, "gguf", "cannot be written with the encoding 'gguf'; expected one of npy, npz, pt, safetensors"
    )
    assert_refused(valid, tmp_path / "e.wav", None, "with a name that ends in '.wav'; expected one of npy")
    assert_refused(valid, tmp_path / "none" / "e.npy", None, "cannot be written to .*e.npy: No such file or directory")
    assert_refused(valid.astype(np.int32), None, "npy", "holds int32; expected floating-point numbers")
    assert_refused(valid[0], None, "npy", r"has the shape \(3,\); expected \(tokens, hidden\)")
    assert_refused(np.full((2, 3), np.nan), None, "npy", "has 6 values that are NaN or infinite")
    assert list(tmp_path.iterdir()) == []
