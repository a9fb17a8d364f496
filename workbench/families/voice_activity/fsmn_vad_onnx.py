"""Reads the weights of an FSMN-VAD from its ONNX file, under the torch checkpoint's names.

An exporter keeps some names and replaces others by numbers, so tensors are recognised by their position. The graph is
read in order, and its computing nodes must be the layers of the network, one after another. Nodes that only move values
(shapes, transpositions, padding before a convolution) are skipped. This file runs nothing and does not import torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from workbench.core.errors import BadInput, Unavailable, message_of
from workbench.core.phrases import name_in_folder
from workbench.families.voice_activity.fsmn_vad import FsmnConfig

# Operators that move values without computing.
_PLUMBING = {"Cast", "Concat", "Constant", "ConstantOfShape", "Expand", "Gather", "Identity", "Pad", "Reshape"}
_PLUMBING |= {"Shape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}
_HEAD = ("linear", "bias", "linear", "bias", "relu")
_BLOCK = ("linear", "memory", "residual", "linear", "bias", "relu")
_TAIL = ("linear", "bias", "linear", "bias", "softmax")

Step = tuple[str, np.ndarray | None, int]  # its kind, its tensor, the stride of a memory


def read_onnx_weights(path: Path) -> tuple[FsmnConfig, dict[str, np.ndarray]]:
    """Returns dimensions and tensors (float32, by the names of `model.pt`) of an FSMN-VAD in ONNX form.

    Raises `BadInput`, which names the first wrong step, for damaged files and other networks.
    """
    where = name_in_folder(path)
    steps = _steps(_graph(path, where), where)
    blocks, remainder = divmod(len(steps) - len(_HEAD) - len(_TAIL), len(_BLOCK))
    expected = _HEAD + _BLOCK * max(1, blocks + (remainder > 0)) + _TAIL
    for number, (step, kind) in enumerate(zip(steps, expected), start=1):
        if step[0] != kind:
            raise BadInput(f"{where} is not an FSMN-VAD: step {number} of its graph is {step[0]}, expected {kind}")
    if len(steps) != len(expected):
        raise BadInput(f"{where} is not an FSMN-VAD: its graph has {len(steps)} steps, expected {len(expected)}")
    tensors = {}
    for name, (_, tensor, _) in zip(_names(blocks), (step for step in steps if step[1] is not None)):
        assert tensor is not None
        tensors[name] = tensor
    return _dimensions(tensors, blocks, steps, where), tensors


def _names(blocks: int) -> list[str]:
    """Returns the names of the tensors in the order of the computation."""
    names = []
    for layer in ("in_linear1", "in_linear2"):
        names += [f"encoder.{layer}.linear.weight", f"encoder.{layer}.linear.bias"]
    for block in range(blocks):
        tensors = ("linear.linear.weight", "fsmn_block.conv_left.weight", "affine.linear.weight", "affine.linear.bias")
        names += [f"encoder.fsmn.{block}.{tensor}" for tensor in tensors]
    for layer in ("out_linear1", "out_linear2"):
        names += [f"encoder.{layer}.linear.weight", f"encoder.{layer}.linear.bias"]
    return names


def _graph(path: Path, where: str) -> Any:
    try:
        import onnx
        from google.protobuf.message import DecodeError
    except ImportError as error:
        raise Unavailable("reading an ONNX file needs the onnx package: pip install onnx") from error
    try:
        model = onnx.load(str(path), load_external_data=False)
    except (OSError, DecodeError, ValueError) as error:
        raise BadInput(f"{where} is damaged or not an ONNX file: {message_of(error)}") from error
    if not model.graph.node:
        raise BadInput(f"{where} is damaged or not an ONNX file: it has no graph")
    return model.graph


def _steps(graph: Any, where: str) -> list[Step]:
    """Returns the computing nodes in order; ONNX requires the file's nodes to be sorted."""
    from onnx import TensorProto, numpy_helper

    constants: dict[str, np.ndarray] = {}
    for tensor in graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL:
            raise BadInput(f"{where} keeps tensor {tensor.name} in another file; expected all in one")
        try:
            constants[tensor.name] = numpy_helper.to_array(tensor)
        except (ValueError, TypeError) as error:
            raise BadInput(f"{where}: tensor {tensor.name} is damaged: {error}") from error
    steps: list[Step] = []
    for node in graph.node:
        arrays = [constants[name] for name in node.input if name in constants]
        if node.op_type in _PLUMBING:
            if node.op_type in ("Identity", "Transpose") and arrays:  # the exporter did not fold its constants
                raise BadInput(f"{where}: {node.op_type} of a stored tensor is not understood; fold the constants")
            continue
        steps += _step(node, arrays, where)
    return steps


def _step(node: Any, arrays: Sequence[np.ndarray], where: str) -> list[Step]:
    """Returns the network's steps for one computing node; weights are in the layout of the torch layers."""
    from onnx import helper

    attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    kind = node.op_type
    if kind == "MatMul" and len(arrays) == 1 and arrays[0].ndim == 2:
        return [("linear", _float(arrays[0].T, node, where), 0)]
    scales = attributes.get("alpha", 1.0), attributes.get("beta", 1.0), attributes.get("transA", 0)
    if kind == "Gemm" and len(arrays) == 2 and arrays[0].ndim == 2 and scales == (1.0, 1.0, 0):
        weight = arrays[0] if attributes.get("transB", 0) else arrays[0].T
        return [("linear", _float(weight, node, where), 0), ("bias", _float(arrays[1], node, where), 0)]
    if kind == "Add" and len(arrays) <= 1:
        return [("bias", _float(arrays[0], node, where), 0)] if arrays else [("residual", None, 0)]
    if kind == "Conv" and len(arrays) == 1 and arrays[0].ndim == 4 and arrays[0].shape[1] == arrays[0].shape[3] == 1:
        is_causal = all(stride == 1 for stride in attributes.get("strides", []))
        is_causal = is_causal and not any(attributes.get("pads", [0])[1:])  # zeros before the first frame alone
        if is_causal and attributes.get("group") == arrays[0].shape[0]:
            return [("memory", _float(arrays[0], node, where), attributes.get("dilations", [1])[0])]
    if kind == "Relu":
        return [("relu", None, 0)]
    if kind == "Softmax" and attributes.get("axis", -1) in (-1, 2):
        return [("softmax", None, 0)]
    name = f" ({node.name})" if node.name else ""
    raise BadInput(f"{where} is not an FSMN-VAD in float: its node {kind}{name} has no place in that network")


def _float(array: np.ndarray, node: Any, where: str) -> np.ndarray:
    if array.dtype.kind != "f":
        raise BadInput(f"{where}: node {node.name or node.op_type} has weights of {array.dtype}; expected floats")
    return np.array(array, dtype=np.float32, order="C")  # a copy, as the file's arrays are read-only


def _dimensions(tensors: dict[str, np.ndarray], blocks: int, steps: Sequence[Step], where: str) -> FsmnConfig:
    """Returns the dimensions that all shapes agree on."""
    strides = {stride for kind, _, stride in steps if kind == "memory"}
    config = FsmnConfig(
        input_dim=tensors["encoder.in_linear1.linear.weight"].shape[1],
        input_affine_dim=tensors["encoder.in_linear1.linear.weight"].shape[0],
        linear_dim=tensors["encoder.in_linear2.linear.weight"].shape[0],
        proj_dim=tensors["encoder.fsmn.0.linear.linear.weight"].shape[0],
        lorder=tensors["encoder.fsmn.0.fsmn_block.conv_left.weight"].shape[2],
        lstride=min(strides),
        fsmn_layers=blocks,
        output_affine_dim=tensors["encoder.out_linear1.linear.weight"].shape[0],
        output_dim=tensors["encoder.out_linear2.linear.weight"].shape[0],
    )
    for name, expected in expected_shapes(config).items():
        if tensors[name].shape != expected:
            shape = tensors[name].shape
            raise BadInput(f"{where}: the tensor at {name} has shape {shape}, the layers around it need {expected}")
    if len(strides) > 1:
        raise BadInput(f"{where}: its memory blocks have different strides {sorted(strides)}; expected one")
    return config


def expected_shapes(config: FsmnConfig) -> dict[str, tuple[int, ...]]:
    """Returns the shape of every tensor of a network with these dimensions."""
    c = config
    linear = {
        "in_linear1": (c.input_affine_dim, c.input_dim),
        "in_linear2": (c.linear_dim, c.input_affine_dim),
        "out_linear1": (c.output_affine_dim, c.linear_dim),
        "out_linear2": (c.output_dim, c.output_affine_dim),
    }
    shapes: dict[str, tuple[int, ...]] = {}
    for layer, shape in linear.items():
        shapes[f"encoder.{layer}.linear.weight"] = shape
        shapes[f"encoder.{layer}.linear.bias"] = shape[:1]
    for block in range(c.fsmn_layers):
        prefix = f"encoder.fsmn.{block}"
        shapes[f"{prefix}.linear.linear.weight"] = (c.proj_dim, c.linear_dim)
        shapes[f"{prefix}.fsmn_block.conv_left.weight"] = (c.proj_dim, 1, c.lorder, 1)
        shapes[f"{prefix}.affine.linear.weight"] = (c.linear_dim, c.proj_dim)
        shapes[f"{prefix}.affine.linear.bias"] = (c.linear_dim,)
    return shapes
