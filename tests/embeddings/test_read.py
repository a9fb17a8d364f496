"""Reading embeddings: every format gives the same embedding, and invalid or damaged files raise one-line errors."""

from __future__ import annotations

import contextlib
import pickle
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.embeddings.files import (
    Trap,
    archive,
    assert_holds,
    assert_refused,
    npy,
    npz,
    pt,
    safetensors,
)
from workbench.core.errors import BadInput
from workbench.embeddings import Embedding, SeveralTensors, as_base64, read_embedding

VALUES = np.random.default_rng(0).standard_normal((5, 8)).astype(np.float16).astype(np.float32)
TENSOR = torch.from_numpy(VALUES)
FORMATS = {
    "npy": npy(VALUES),
    "npz": npz(a=VALUES),
    "pt": pt(TENSOR),
    "safetensors": safetensors(a=TENSOR),
}
SEVERAL = {
    "npz": npz(a=VALUES, b=VALUES[0]),
    "pt": pt({"a": TENSOR, "b": TENSOR[0]}),
    "safetensors": safetensors(a=TENSOR, b=TENSOR[0]),
}


@pytest.mark.parametrize("encoding", FORMATS)
def test_every_format_and_source_form_gives_the_same_embedding(tmp_path: Path, encoding: str) -> None:
    content = FORMATS[encoding]
    path = tmp_path / "speech.bin"
    path.write_bytes(content)
    text = as_base64(content)
    digests = {read_embedding(FORMATS["npy"]).digest}
    for source in (path, content, text, f"data:application/octet-stream;base64,{text}"):
        for stated_encoding in (None, encoding):
            embedding = read_embedding(source, encoding=stated_encoding)
            assert_holds(embedding, VALUES)
            assert (embedding.dtype, embedding.shape, embedding.notes) == ("float32", (5, 8), ())
            assert embedding.name == ("speech.bin" if source is path else "embedding")
            digests.add(embedding.digest)
    assert len(digests) == 1
    assert read_embedding(content, name="mine").name == "mine"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_stored_dtype_is_recorded_and_float64_rounding_is_noted(dtype: torch.dtype) -> None:
    values = (TENSOR.double() * 1.1).to(dtype)
    contents = [pt(values), safetensors(a=values)]
    if dtype != torch.bfloat16:
        contents += [
            npy(values.numpy()),
            npz(a=values.numpy()),
            npy(values.numpy().astype(values.numpy().dtype.newbyteorder(">"))),
        ]
    for content in contents:
        embedding = read_embedding(content)
        assert_holds(embedding, values.to(torch.float32).numpy())
        assert embedding.dtype == str(dtype).removeprefix("torch.")
        assert embedding.notes == (("float64 is rounded to float32",) if dtype == torch.float64 else ())


def test_a_batch_of_one_is_dropped_with_a_note() -> None:
    for content in (npy(VALUES[None]), npz(a=VALUES[None]), pt(TENSOR[None]), safetensors(a=TENSOR[None])):
        embedding = read_embedding(content)
        assert_holds(embedding, VALUES)
        assert (embedding.shape, embedding.notes) == ((1, 5, 8), ("a leading dimension of 1 was dropped",))


@pytest.mark.parametrize("encoding", SEVERAL)
def test_tensor_is_chosen_by_name_from_several(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "two"
    path.write_bytes(SEVERAL[encoding])
    embedding = read_embedding(path, tensor="a")
    assert_holds(embedding, VALUES)
    assert embedding.name == "two: a"
    assert_refused(
        path, "two holds 2 tensors: a (5, 8) float32, b (8,) float32; expected one, or the name of one of them"
    )
    assert_refused(path, "two has no tensor 'c'; expected one of: a (5, 8) float32, b (8,) float32", tensor="c")
    assert_refused(path, "two has no tensor ''; expected one of: a", tensor="")
    assert_refused(path, "'b' in two has the shape (8,)", tensor="b")
    with pytest.raises(SeveralTensors) as caught:
        read_embedding(path)
    assert [(tensor.name, tensor.described) for tensor in caught.value.tensors] == [
        ("a", "(5, 8) float32"),
        ("b", "(8,) float32"),
    ]


@pytest.mark.parametrize("encoding", FORMATS)
def test_single_tensor_needs_no_name(encoding: str) -> None:
    if encoding in ("npz", "safetensors"):
        assert_holds(read_embedding(FORMATS[encoding], tensor="a"), VALUES)
        assert_refused(
            FORMATS[encoding], "the embedding has no tensor 'x'; expected one of: a (5, 8) float32", tensor="x"
        )
    else:
        assert_refused(
            FORMATS[encoding], "holds one tensor without a name; expected no name, and 'a' was asked for", tensor="a"
        )


def test_long_tensor_lists_are_shortened_in_error_messages() -> None:
    sentence = assert_refused(
        safetensors(**{f"layers.{n}": TENSOR for n in range(100)}), "holds 100 tensors: layers.0 (5, 8)"
    )
    assert "and 90 more" in sentence
    strange = {"a\n\x1b[31m": VALUES, "x" * 5000: VALUES}
    assert_refused(npz(**strange), r"'a\n\x1b[31m' (5, 8) float32")


@pytest.mark.parametrize("encoding", FORMATS)
def test_encoding_that_contradicts_the_content_is_refused(encoding: str) -> None:
    for other_encoding in FORMATS.keys() - {encoding}:
        assert_refused(
            FORMATS[encoding],
            f"the embedding is said to be {other_encoding} and is a .{encoding} file",
            encoding=other_encoding,
        )
    assert_refused(
        FORMATS[encoding], "the encoding of x is 'gguf'; expected one of npy, npz, pt, safe", encoding="gguf", name="x"
    )


def in_every_format(array: np.ndarray) -> list[bytes]:
    """The content of a file in every format."""
    tensor = torch.from_numpy(array.copy())
    return [npy(array), npz(a=array), pt(tensor), safetensors(a=tensor)]


@pytest.mark.parametrize("shape", [(), (8,), (2, 5, 8), (1, 1, 5, 8), (3, 1, 8)])
def test_embeddings_of_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    for content in in_every_format(np.zeros(shape, np.float32)):
        assert_refused(content, f"the embedding has the shape {shape}")
        assert_refused(content, "; expected (tokens, hidden) or (1, tokens, hidden)")


@pytest.mark.parametrize("shape", [(0, 8), (5, 0), (1, 0, 8), (0, 5, 8), (0,)])
def test_empty_embeddings_are_refused(shape: tuple[int, ...]) -> None:
    for content in in_every_format(np.zeros(shape, np.float32)):
        assert_refused(content, f"the embedding has the shape {shape}")


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64", "bool", "complex64"])
def test_integer_bool_and_complex_embeddings_are_refused(dtype: str) -> None:
    for content in in_every_format(np.ones((5, 8), dtype)):
        assert_refused(
            content, f"the embedding holds {dtype}; expected floating-point numbers: float16, bfloat16, float32 or"
        )


def test_non_finite_values_are_reported_with_count_and_position() -> None:
    for dtype in (np.float16, np.float32, np.float64):
        values = VALUES.astype(dtype)
        values[3, 2], values[4, 0] = np.nan, -np.inf
        for content in in_every_format(values):
            assert_refused(
                content, "has 2 values that are NaN or infinite, the first (nan) at row 3, column 2, counted from 0"
            )
    values = VALUES[None].copy()
    values[0, 1, 7] = np.inf
    assert_refused(npy(values), "has 1 value that is NaN or infinite, the first (inf) at row 1, column 7")
    assert_refused(pt(torch.from_numpy(values).bfloat16()), "the first (inf) at row 1, column 7")


def test_float64_beyond_float32_is_refused() -> None:
    values = VALUES.astype(np.float64)
    values[2, 3] = -1e39
    for content in in_every_format(values):
        assert_refused(
            content, "has 1 value that is beyond the range of float32, 3.4e+38, the first (-1e+39) at row 2, column 3"
        )
    values[1, 0] = np.nan
    assert_refused(
        npy(values), "has 2 values that are NaN, infinite or beyond the range of float32, 3.4e+38, the first (nan)"
    )
    values[1:3] = 1e-300  # rounds to 0
    assert not read_embedding(npy(values)).values[1].any()


def test_files_of_other_formats_are_refused(tmp_path: Path) -> None:
    assert_refused(b"", "the embedding is empty; expected the content of a .npy, .npz, .pt or .safetensors file")
    assert_refused(
        b"RIFF\x00\x01WAVEfmt ", "the embedding begins with b'RIFF\\x00\\x01WAVEfm'; expected the content of"
    )
    assert_refused(b"\x00" * 50, "the embedding begins with b'\\x00\\x00")
    assert_refused(b"<!DOCTYPE html>{", "the embedding is a text that begins with '<!DOCTYPE ht'; expected the content")
    assert_refused(b"a,b\n1,2\n", "the embedding is a text that begins with 'a,b'; expected the content")
    assert_refused("Grüße 🎙️".encode()[:-1], "the embedding is a text that begins with 'Grüße 🎙'; expected the content")
    assert_refused(b"\x89PNG\r\n\x1a\n", "the embedding is a picture (PNG); expected the content of a .npy")
    assert_refused(b"GGUF\x03\x00\x00\x00", "the embedding is a model (GGUF); expected the content of a .npy")
    assert_refused("AAAAAAAA", "the embedding begins with b'\\x00\\x00")
    assert_refused(Path("\0"), "cannot be read: ")
    assert_refused(tmp_path / "a\nb", "'a\\nb' cannot be read: there is no such file")


def test_bare_pickles_are_refused_and_not_executed(tmp_path: Path) -> None:
    path = tmp_path / "made"
    for protocol in range(2, 6):
        assert_refused(
            pickle.dumps(Trap(path), protocol), "is a bare pickle, which can hold code and is not read; expected .npy"
        )
    for protocol in range(2):
        assert_refused(pickle.dumps(Trap(path), protocol), "begins with ")
    assert_refused(
        pt(TENSOR, _use_new_zipfile_serialization=False),
        "is a PyTorch file of the old form, a bare pickle, which is not read; expected a zip archive",
    )
    assert not path.exists()
    with contextlib.suppress(Exception):
        pickle.loads(pickle.dumps(Trap(path)))
    assert path.exists()  # unpickling runs the code


def test_archives_without_tensors_are_refused() -> None:
    assert_refused(
        archive({"readme.txt": b"hello"}), "holds 'readme.txt'; expected arrays only, as numpy.savez writes them"
    )
    assert_refused(archive({}), "the embedding holds no tensors; expected one")
    assert_refused(safetensors(), "the embedding holds no tensors; expected one")
    assert_refused(pt({"a": 3}), "holds no tensors (ignored, because they are not tensors: 'a'); expected one")


CONTENTS = [
    *FORMATS.values(),
    *SEVERAL.values(),
    npz(True, a=VALUES),
    pt({"a": TENSOR.double().t(), "b": [1, {"c": "d"}]}),
]


@pytest.mark.parametrize("number", range(len(CONTENTS)))
def test_truncated_file_is_refused_at_every_length(number: int) -> None:
    content = CONTENTS[number]
    for length in range(0, len(content) - 1, 5):
        with pytest.raises(BadInput):
            read_embedding(content[:length], tensor="a")


@settings(max_examples=300)
@given(st.data())
def test_randomly_changed_bytes_are_read_or_refused(data: st.DataObject) -> None:
    content = bytearray(data.draw(st.sampled_from(CONTENTS)))
    for _ in range(data.draw(st.integers(1, 4))):
        index = data.draw(st.integers(0, len(content) - 1))
        content[index : index + data.draw(st.sampled_from([1, 1, 1, 0, 4]))] = data.draw(st.binary(max_size=4))
    read_or_refuse(bytes(content))


@given(
    st.sampled_from([b"", b"\x93NUMPY", b"PK\x03\x04", b"PK\x05\x06", b"\x08\x00\x00\x00\x00\x00\x00\x00{", b"\x80"]),
    st.binary(max_size=60),
)
@example(b"\x93NUMPY", b"\x01\x00\x10\x27" + b"(" * 10_000)
@example(b"\x93NUMPY", b"\x01\x00\x10\x27" + b"-" * 10_000)
def test_random_bytes_are_refused(magic: bytes, junk: bytes) -> None:
    read_or_refuse(magic + junk)


def read_or_refuse(content: bytes) -> None:
    """Assert that reading gives an embedding or a one-line BadInput."""
    for tensor in (None, "a"):
        sentence = ""
        try:
            embedding = read_embedding(content, tensor=tensor)
            assert (
                isinstance(embedding, Embedding) and np.isfinite(embedding.values).all() and embedding.values.ndim == 2
            )
        except BadInput as error:
            sentence = str(error)
        assert "\n" not in sentence and len(sentence) < 1200


def test_memory_is_bounded_by_the_size_of_the_values() -> None:
    content = pt(torch.ones(2000, 1000, dtype=torch.float16))
    read_embedding(content)
    tracemalloc.start()
    try:
        read_embedding(content)
        assert tracemalloc.get_traced_memory()[1] < 2000 * 1000 * 4 * 2.2
    finally:
        tracemalloc.stop()


def test_working_folder_as_path_is_refused_with_its_name() -> None:
    with pytest.raises(BadInput, match=r"^\. cannot be read: it is a folder"):
        read_embedding(Path())
