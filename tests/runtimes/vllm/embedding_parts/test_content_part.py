"""The form of an embedding in a chat message."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest

from workbench.core.errors import BadInput
from workbench.runtimes.vllm.embedding_parts.content_part import (
    NOTHING,
    PLACE,
    embedding_part,
    read_part,
    stated_placeholder,
)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_embedding_part_contains_the_values_as_float32_npy(dtype: type) -> None:
    values = np.random.default_rng(0).standard_normal((3, 4)).astype(dtype)
    part = embedding_part(values)
    assert part["type"] == "embedding" and set(part) == {"type", "embedding"}
    data, encoding, tensor = read_part(part)
    assert (encoding, tensor) == ("npy", None)
    array = np.load(io.BytesIO(base64.b64decode(data)), allow_pickle=False)
    assert array.dtype == np.float32 and np.array_equal(array, values.astype(np.float32))


def test_embedding_with_nan_is_refused() -> None:
    with pytest.raises(BadInput, match="NaN or infinite"):
        embedding_part(np.full((2, 2), np.nan))


def test_embedding_part_may_name_a_tensor_of_its_file() -> None:
    embedding = {"data": "QUJD", "encoding": "safetensors", "tensor": "speech"}
    assert read_part({"type": "embedding", "embedding": embedding}) == ("QUJD", "safetensors", "speech")


@pytest.mark.parametrize(
    "part, message",
    [
        ({}, 'a content part of type embedding has no embedding; expected {"type": "embedding", "embedding": {"data"'),
        ({"embedding": "QUJD"}, "has no embedding; expected"),
        ({"embedding": {"encoding": "npy"}}, "the embedding has no data; expected"),
        ({"embedding": {"data": "", "encoding": "npy"}}, "the embedding has no data; expected"),
        ({"embedding": {"data": "QUJD"}}, "the encoding of the embedding is None; expected one of npy"),
        ({"embedding": {"data": "QUJD", "encoding": "zip"}}, "the encoding of the embedding is 'zip'; expected one of"),
        ({"embedding": {"data": "QUJD", "encoding": ["npy"]}}, "the encoding of the embedding is ['npy']"),
        (
            {"embedding": {"data": "QUJD", "encoding": "pt", "dtype": 1}},
            "the embedding has the field 'dtype'; expected",
        ),
        ({"embedding": {"data": "QUJD", "encoding": "pt", "tensor": 1}}, "the tensor of the embedding is 1; expected"),
    ],
)
def test_malformed_embedding_parts_are_refused(part: dict, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_part({"type": "embedding", **part})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "refusal, placeholder",
    [
        (f"{NOTHING}; expected a part", "<|fim_pad|>"),
        (f'{NOTHING}{PLACE}"<|image_pad|>"', "<|image_pad|>"),
        (f'Error: {NOTHING}{PLACE}"<|image_pad|>". Try again', "<|image_pad|>"),
        (f"{NOTHING}{PLACE}nothing that is JSON", "<|fim_pad|>"),
        (f"{NOTHING}{PLACE}3", "<|fim_pad|>"),
        (f'{NOTHING}{PLACE}""', "<|fim_pad|>"),
        ("Unsupported chat content part type: 'embedding'", None),
        (f'{PLACE}"<|image_pad|>"', None),
    ],
)
def test_placeholder_is_read_from_the_refusal_of_a_server(refusal: str, placeholder: str | None) -> None:
    assert stated_placeholder(refusal) == placeholder
