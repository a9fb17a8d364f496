"""PyTorch files are read as PyTorch reads them: every view of a storage, every dtype, both byte orders."""

from __future__ import annotations

import io
from collections import OrderedDict

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.embeddings.files import archive, assert_holds, assert_refused, members, pt
from workbench.core.errors import BadInput
from workbench.embeddings import read_embedding
from workbench.embeddings.floats import FLOATS


def load_with_torch(content: bytes) -> np.ndarray:
    """The tensor that torch loads from a file with `weights_only`, in float32."""
    tensor = torch.load(io.BytesIO(content), weights_only=True, map_location="cpu").detach()
    return tensor.reshape(tensor.shape[-2:]).to(torch.float32).numpy()


@st.composite
def views(draw: st.DrawFn) -> torch.Tensor:
    """A tensor of two dimensions, or three with a leading one of size 1, as nested views of a larger storage."""
    shape = draw(st.lists(st.integers(1, 6), min_size=2, max_size=4))
    dtype = getattr(torch, draw(st.sampled_from(sorted(FLOATS))))
    tensor = torch.randn(shape, generator=torch.Generator().manual_seed(draw(st.integers(0, 9)))).to(dtype)
    while tensor.ndim > 2:
        tensor = tensor.select(draw(st.integers(0, tensor.ndim - 1)), 0)
    for _ in range(draw(st.integers(0, 3))):
        match draw(st.integers(0, 4)):
            case 0:
                tensor = tensor.t()
            case 1:
                tensor = tensor[draw(st.integers(0, tensor.shape[0] - 1)) :, :: draw(st.integers(1, 3))]
            case 2:
                tensor = tensor[:: draw(st.integers(1, 3)), draw(st.integers(0, tensor.shape[1] - 1)) :]
            case 3:
                tensor = tensor[:1].expand(draw(st.integers(1, 5)), -1)
            case 4:
                tensor = tensor.clone()
    if draw(st.booleans()):
        tensor = tensor[None]
    if draw(st.booleans()):
        tensor = torch.nn.Parameter(tensor, requires_grad=draw(st.booleans()))
    return tensor


@given(views())
def test_tensor_views_are_read_as_torch_reads_them(tensor: torch.Tensor) -> None:
    content = pt(tensor)
    embedding = read_embedding(content)
    assert_holds(embedding, load_with_torch(content))
    assert embedding.dtype == str(tensor.dtype).removeprefix("torch.") and embedding.shape == tuple(tensor.shape)


@settings(max_examples=40)
@given(
    st.dictionaries(st.one_of(st.text(max_size=5).filter(bool), st.integers(0, 300)), views(), min_size=2, max_size=4),
    st.data(),
)
def test_every_tensor_of_a_dict_is_found_by_its_key(tensors: dict, data: st.DataObject) -> None:
    assume(len(set(map(str, tensors))) == len(tensors))
    key = data.draw(st.sampled_from(list(tensors)))
    for value in (tensors, OrderedDict(tensors), {**tensors, "note ": "plain", "list ": [1, 2.5, None, (True,), {}]}):
        embedding = read_embedding(pt(value), tensor=str(key))
        assert_holds(embedding, load_with_torch(pt(tensors[key])))


def test_keys_of_the_same_spelling_are_refused() -> None:
    with pytest.raises(BadInput, match="two tensors that are called '0'"):
        read_embedding(pt({"0": torch.ones(1, 2), 0: torch.zeros(1, 2)}), tensor="0")


def test_tensors_sharing_a_storage_are_read_separately() -> None:
    full = torch.arange(60.0).reshape(6, 10)
    content = pt({"whole": full, "left": full[:, :5], "flipped": full.t()})
    assert sum(name.startswith("archive/data/") for name in members(content)) == 1
    assert_holds(read_embedding(content, tensor="left"), full[:, :5].numpy())
    assert_holds(read_embedding(content, tensor="flipped"), full.t().numpy())


def test_state_dict_is_read_as_a_dict_of_tensors() -> None:
    layer = torch.nn.Linear(8, 3)
    embedding = read_embedding(pt(layer.state_dict()), tensor="weight")
    assert_holds(embedding, layer.weight.detach().numpy())


def test_non_tensor_values_in_a_dict_are_ignored_with_a_note() -> None:
    tensor = torch.randn(3, 4)
    embedding = read_embedding(pt({"embedding": tensor, "text": "seven", "rate": 16000}))
    assert_holds(embedding, tensor.numpy())
    assert embedding.notes == ("ignored, because they are not tensors: 'text', 'rate'",)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "float8_e5m2"])
def test_big_endian_files_are_read(dtype: str) -> None:
    tensor = torch.randn(3, 4).to(getattr(torch, dtype))
    parts = members(pt(tensor))
    raw = np.frombuffer(parts["archive/data/0"], FLOATS[dtype])
    big_endian = {**parts, "archive/byteorder": b"big", "archive/data/0": raw.byteswap().tobytes()}
    embedding = read_embedding(archive(big_endian))
    assert_holds(embedding, tensor.to(torch.float32).numpy())
    if dtype != "float8_e5m2":
        assert_holds(embedding, load_with_torch(archive(big_endian)))
    del parts["archive/byteorder"]
    assert_holds(read_embedding(archive(parts)), tensor.to(torch.float32).numpy())
    assert_refused(
        archive({**parts, "archive/byteorder": b"middle"}), "says that its bytes are in the order b'middle'; expected"
    )


def test_tensor_saved_on_a_gpu_is_read() -> None:
    tensor = torch.randn(3, 4)
    parts = members(pt(tensor))
    parts["archive/data.pkl"] = parts["archive/data.pkl"].replace(b"\x03\x00\x00\x00cpu", b"\x06\x00\x00\x00cuda:3")
    assert_holds(read_embedding(archive(parts)), tensor.numpy())


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (torch.ones(3, 4, dtype=torch.uint16), "holds uint16; expected floating-point"),
        (torch.ones(3, 4, dtype=torch.complex128), "holds complex128; expected floating-point"),
        (torch.ones(3, 4).to(torch.float8_e4m3fnuz), "holds float8_e4m3fnuz; expected floating-point"),
        (torch.ones(3, 4).to_sparse(), "the embedding holds a sparse tensor; expected one dense"),
        (torch.ones(3, 4).to_sparse_csr(), "the embedding holds a sparse tensor; expected one dense"),
        (torch.ones(3, 4, device="meta"), "holds a tensor on the device meta, without values; expected one dense"),
        (torch.nn.Buffer(torch.ones(3, 4)), "holds a tensor of a class of its own, or with attributes; expected one"),
        (torch.ones(3, 4, dtype=torch.complex64).conj().imag, "that PyTorch negates or conjugates"),
        (
            torch.nn.Linear(3, 4),
            "asks for torch.nn.modules.linear.Linear, which is code, not a tensor, and was not run",
        ),
        (
            [torch.ones(3, 4)],
            "holds a list of 1; expected one dense tensor, as torch.save(tensor.detach().cpu(), path)",
        ),
        ((torch.ones(3, 4), 1), "holds a tuple of 2; expected one dense tensor"),
        ({"a": {"b": torch.ones(3, 4)}}, "holds no tensors (ignored, because they are not tensors: 'a')"),
        (None, "holds nothing; expected one dense tensor"),
        ("text", "holds a str; expected one dense tensor"),
        (torch.ones(3).untyped_storage(), "holds a storage; expected one dense tensor"),
        (np.ones((3, 4)), "holds an array of numpy, which numpy.save writes; expected one dense"),
    ],
)
def test_unsupported_pickled_objects_are_reported(value: object, message: str) -> None:
    assert_refused(pt(value), message)


def test_a_torchscript_program_is_refused() -> None:
    parts = members(pt(torch.ones(3, 4)))
    for name in ("constants.pkl", "code/__torch__.py"):
        program = archive({**parts, f"archive/{name}": b""})
        assert_refused(program, "the embedding is a TorchScript program; expected a tensor, as torch.save writes it")


def test_a_newer_pickle_is_refused() -> None:
    assert_refused(
        pt(torch.ones(3, 4), pickle_protocol=4), "is written with pickle protocol 4; expected torch.save's own, 2"
    )


def test_missing_or_truncated_storage_is_refused() -> None:
    parts = members(pt(torch.ones(3, 4)))
    truncated = {**parts, "archive/data/0": bytes(40)}
    assert_refused(archive(truncated), "has its values in 48 bytes, and 'archive/data/0' has 40")
    del parts["archive/data/0"]
    assert_refused(archive(parts), "has its values in 'archive/data/0', which the archive does not have")
    with_two_descriptions = members(pt(torch.ones(3, 4))) | {"other/data.pkl": b""}
    assert_refused(archive(with_two_descriptions), "holds 2 files data.pkl; expected one")


def test_expanded_tensor_of_gigabytes_is_refused() -> None:
    assert_refused(pt(torch.ones(1).expand(1_000_000, 1000)), "the embedding has 4.0 GB; expected at most 256 MB")
