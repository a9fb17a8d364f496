"""Weights of every type, against the `gguf` package's own quantiser and dequantiser."""

from __future__ import annotations

import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.constants import GGML_QUANT_SIZES

from tests.support.gguf_parts import by_hand, tensor, write
from workbench.core.errors import BadInput, Unavailable
from workbench.formats.gguf_file import read_gguf
from workbench.formats.gguf_types import TENSOR_TYPES


def test_tensor_type_table_equals_that_of_the_gguf_package() -> None:
    expected = {int(kind): (kind.name, *sizes) for kind, sizes in GGML_QUANT_SIZES.items()}
    table = {number: (kind.name, kind.block, kind.block_bytes) for number, kind in TENSOR_TYPES.items()}
    assert expected.items() <= table.items()
    assert set(table) - set(expected) <= {42}  # Q2_0, which ggml has and the package does not know yet


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int8", "int16", "int32", "int64"])
@pytest.mark.parametrize("shape", [(3,), (5, 7), (2, 3, 4), (2, 1, 3, 5)])
def test_unquantised_tensors_of_every_dtype_are_read(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    values = (100 * np.random.default_rng(1).standard_normal(shape)).astype(dtype)
    file = read_gguf(write(tmp_path / "it.gguf", lambda writer: writer.add_tensor("w", values)))
    assert file.tensors["w"].shape == shape
    assert file.array("w").dtype == np.float32
    np.testing.assert_array_equal(file.array("w"), values.astype(np.float32))
    np.testing.assert_array_equal(file.raw("w"), values.reshape(-1).view(np.uint8))


QUANTISED = ["BF16", "Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0", "TQ1_0", "TQ2_0"]


@pytest.mark.parametrize("name", QUANTISED)
def test_values_match_those_of_the_gguf_package(tmp_path: Path, name: str) -> None:
    kind = GGMLQuantizationType[name]
    values = np.random.default_rng(1).standard_normal((5000 if name == "Q8_0" else 50, 256), np.float32)
    stored = gguf.quants.quantize(values, kind)
    file = read_gguf(write(tmp_path / "it.gguf", lambda writer: writer.add_tensor("w", stored, raw_dtype=kind)))
    assert (file.tensors["w"].shape, file.tensors["w"].type, file.quantization) == (values.shape, name, name.lower())
    expected = gguf.quants.dequantize(stored, kind)
    np.testing.assert_array_equal(file.array("w"), expected)
    np.testing.assert_array_equal(file.rows("w", [7, 0, 7]), expected[[7, 0, 7]])


@pytest.mark.parametrize("kind", [kind for kind in GGML_QUANT_SIZES if kind in gguf.quants._type_traits])
def test_random_quantised_blocks_are_dequantised_as_by_the_gguf_package(
    tmp_path: Path, kind: GGMLQuantizationType
) -> None:
    block, size = GGML_QUANT_SIZES[kind]
    stored = np.random.default_rng(1).integers(0, 256, (3, 2 * size * max(1, 32 // block)), dtype=np.uint8)
    file = read_gguf(write(tmp_path / "it.gguf", lambda writer: writer.add_tensor("w", stored, raw_dtype=kind)))
    with np.errstate(all="ignore"):
        expected = gguf.quants.dequantize(stored, kind)
    np.testing.assert_array_equal(file.array("w"), expected)


def test_type_readable_only_by_ggml_raises_an_error(tmp_path: Path) -> None:
    path = by_hand(tmp_path / "it.gguf", tensors=[tensor(shape=(256,), kind=15)], data=bytes(292))
    with pytest.raises(BadInput, match=r"tensor w in it.gguf is of type Q8_K, which only ggml itself can read"):
        read_gguf(path).array("w")


def test_quantised_weights_without_the_gguf_package_raise_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = [tensor("plain", (32,), 0), tensor("quantised", (32,), 8, 128)]
    file = read_gguf(by_hand(tmp_path / "it.gguf", tensors=tensors, data=bytes(200)))
    monkeypatch.setitem(sys.modules, "gguf", None)
    assert file.array("plain").shape == (32,)
    with pytest.raises(Unavailable, match=r"Python package gguf; run: pip install gguf"):
        file.array("quantised")
