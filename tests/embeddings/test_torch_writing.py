"""Tensor files written without torch, which torch reads with its strictest loading rules."""

from __future__ import annotations

import io

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from workbench.embeddings.torch_writing import saved_tensor


@given(arrays(np.float32, array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5), elements=st.floats(width=32)))
def test_torch_reads_the_written_file(array: np.ndarray) -> None:
    tensor = torch.load(io.BytesIO(saved_tensor(array)), weights_only=True)
    assert tensor.dtype == torch.float32 and tuple(tensor.shape) == array.shape and not tensor.requires_grad
    np.testing.assert_array_equal(tensor.numpy(), array)


def test_array_with_other_memory_order_and_dtype_keeps_its_values() -> None:
    array = np.arange(12, dtype=np.float64).reshape(3, 4).T[::2]
    tensor = torch.load(io.BytesIO(saved_tensor(array)), weights_only=True)
    np.testing.assert_array_equal(tensor.numpy(), array)


def test_strides_and_size_match_those_of_torch() -> None:
    """The same tensor saved by torch has the same strides and takes the same space."""
    array = np.random.default_rng(0).standard_normal((5, 8)).astype(np.float32)
    buffer = io.BytesIO()
    torch.save(torch.from_numpy(array), buffer)
    expected = torch.load(io.BytesIO(buffer.getvalue()), weights_only=True)
    actual = torch.load(io.BytesIO(saved_tensor(array)), weights_only=True)
    assert actual.stride() == expected.stride()
    assert actual.untyped_storage().nbytes() == expected.untyped_storage().nbytes()
