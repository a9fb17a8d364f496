"""All floating-point numbers are converted to the same float32 values as in PyTorch."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

from workbench.embeddings import embedding_of
from workbench.embeddings.floats import FLOATS, as_float32


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "float16", "bfloat16"])
def test_every_value_of_8_and_16_bit_floats_equals_torch(dtype: str) -> None:
    width = np.dtype(FLOATS[dtype]).itemsize
    bits = np.arange(256**width, dtype=f"<u{width}")
    expected = torch.from_numpy(bits.copy()).view(getattr(torch, dtype)).to(torch.float32).numpy()
    actual = as_float32(bits.view(FLOATS[dtype]), dtype)
    assert actual.dtype == np.float32
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("dtype", FLOATS)
def test_float32_result_is_contiguous_and_a_copy(dtype: str) -> None:
    values = np.arange(12, dtype=FLOATS[dtype]).reshape(3, 4)
    for array in (values, values.astype(values.dtype.newbyteorder(">")), values.T, values[:, ::2]):
        result = as_float32(array, dtype)
        assert result.flags.c_contiguous and result.shape == array.shape and not np.shares_memory(result, values)


def test_values_beyond_float32_become_infinite() -> None:
    assert as_float32(np.array([[1e300, -1e300, 1.0]]), "float64").tolist() == [[np.inf, -np.inf, 1.0]]


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_ml_dtypes_array_is_read_with_its_values(dtype: str) -> None:
    """NumPy and JAX arrays have these types from the package ml_dtypes."""
    exact = np.array([[1.0, -2.5], [0.5, 4.0], [0.0, -16.0]])
    narrow = exact.astype(getattr(ml_dtypes, dtype))
    for values, expected in ((narrow, exact), (np.asfortranarray(narrow), exact), (narrow.T, exact.T)):
        embedding = embedding_of(values)
        assert embedding.dtype == dtype
        np.testing.assert_array_equal(embedding.values, expected)
