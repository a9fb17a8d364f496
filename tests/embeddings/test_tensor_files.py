"""safetensors files: as written by their own library, including 8-bit floats, and headers with false claims."""

from __future__ import annotations

import struct

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.embeddings.files import assert_holds, assert_refused, safetensors, tensor_file
from workbench.embeddings import read_embedding
from workbench.embeddings.floats import FLOATS


@given(st.sampled_from(sorted(FLOATS)), st.integers(1, 6), st.integers(1, 6), st.integers(0, 3))
def test_tensors_are_read_as_safetensors_wrote_them(dtype: str, tokens: int, hidden: int, other_count: int) -> None:
    tensor = torch.randn(tokens, hidden, generator=torch.Generator().manual_seed(tokens)).to(getattr(torch, dtype))
    others = {f"b{n}": torch.ones(n + 1, dtype=torch.int8) for n in range(other_count)}
    embedding = read_embedding(safetensors(a=tensor, **others), tensor="a")
    assert_holds(embedding, tensor.to(torch.float32).numpy())
    assert embedding.dtype == dtype


def test_false_header_claims_are_refused() -> None:
    def entry(**changes: object) -> dict:
        return {"a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]} | changes}

    assert_refused(struct.pack("<Q", 10 << 30) + b"{}", "its header claims 10737418240 bytes, and the file has 10")
    assert_refused(tensor_file(b"{nope"), "the header of the embedding is not JSON")
    assert_refused(tensor_file(b'{"a":' + b"[" * 100_000), "the header of the embedding is not JSON")
    assert_refused(
        tensor_file(entry(), bytes(15)), "the embedding is truncated: tensor 'a' of the embedding ends at byte"
    )
    assert_refused(tensor_file(entry(shape=[1 << 40, 2]), bytes(16)), "and 16 bytes, which do not fit")
    assert_refused(tensor_file(entry(dtype="F8_E8M0"), bytes(16)), "holds 'F8_E8M0'; expected one of F64, F32, F16")
    assert_refused(
        tensor_file(entry(shape=[1] * 70 + [4]), bytes(16)), "tensor 'a' of the embedding claims a shape of 71 axes"
    )
    minute = tensor_file(entry(shape=[int("9" * 4000)] * 900), bytes(16))  # multiplying the sides would take a minute
    assert_refused(minute, "bytes long; expected at most 500000")
    large = tensor_file(b'{"' + b"a" * 5_000_000 + b'":1}')
    assert_refused(large, "the header of the embedding is 5000006 bytes long; expected at most 500000")


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_nan_in_an_8_bit_float_tensor_is_refused(dtype: torch.dtype) -> None:
    assert_refused(safetensors(a=torch.tensor([[1.0, float("nan")]]).to(dtype)), "has 1 value that is NaN or infinite")
