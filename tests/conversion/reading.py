"""What a converted file holds, as the `gguf` package reads it, and what its tensors ought to hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType, quants

from workbench.conversion.checkpoint import convert, plans_of


class Read:
    """A file: keys to plain values, and per tensor its type, numpy shape, stored bytes and numbers."""

    def __init__(self, path: Path):
        reader = gguf.GGUFReader(path)
        self.keys = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}
        self.kinds = {name: tuple(kind.name for kind in field.types) for name, field in reader.fields.items()}
        self.types = {tensor.name: tensor.tensor_type.name.lower() for tensor in reader.tensors}
        self.shapes = {tensor.name: tuple(int(n) for n in tensor.shape[::-1]) for tensor in reader.tensors}
        self.stored = {tensor.name: np.array(tensor.data) for tensor in reader.tensors}
        self.values = {
            tensor.name: quants.dequantize(np.array(tensor.data), tensor.tensor_type).reshape(self.shapes[tensor.name])
            for tensor in reader.tensors
        }

    @property
    def files(self) -> dict[str, bytes]:
        """Returns the small files stored in the GGUF file."""
        contents = [self.keys[f"workbench.file.{number}"] for number in range(len(self.keys["workbench.files"]))]
        plain = [content.encode() if isinstance(content, str) else bytes(content) for content in contents]
        return dict(zip(self.keys["workbench.files"], plain, strict=True))


def converted_file(directory: Path, family: str, quantization: str, out: Path, layout: str = "workbench") -> list[Read]:
    """Converts a checkpoint, checks the predicted size, and reads the written files."""
    plans = plans_of(directory, family, layout)
    paths, _ = convert(plans, quantization, out)
    assert [path.stat().st_size for path in paths] == [plan.file_bytes(quantization) for plan in plans]
    return [Read(path) for path in paths]


def stored_as(values: np.ndarray, quantization: str) -> np.ndarray:
    """Returns the bytes of an array in a type, converted at once by the gguf package, or by numpy for f16."""
    if quantization == "f16":
        return values.astype(np.float16)
    return quants.quantize(np.ascontiguousarray(values, dtype=np.float32), GGMLQuantizationType[quantization.upper()])


def flat(tensors: Mapping[str, torch.Tensor], names: Mapping[str, str] | None = None) -> dict[str, np.ndarray]:
    """Returns torch tensors as float32 arrays, with depthwise kernels [D, 1, K] as [K, D]."""
    arrays = {}
    for name, tensor in tensors.items():
        array = tensor.detach().float().numpy()
        if "fsmn_block" in name or "depthwise_conv" in name:
            array = array.reshape(array.shape[0], -1).T
        if "pointwise_conv" in name:
            array = array[:, :, 0]
        arrays[(names or {}).get(name, name)] = array
    return arrays


def assert_holds(read: Read, expected: Mapping[str, np.ndarray], others: Sequence[str] = ()) -> None:
    """Asserts that the file has exactly these tensors, with their shapes and the values rounded to their types."""
    assert set(read.types) == {*expected, *others}
    for name, array in expected.items():
        assert read.shapes[name] == array.shape, name
        np.testing.assert_array_equal(
            read.stored[name].reshape(-1).view(np.uint8),
            stored_as(array, read.types[name]).reshape(-1).view(np.uint8),
            err_msg=name,
        )
