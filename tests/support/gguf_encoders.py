"""Writes the hearing halves of speech language models as GGUF files of nothing else, and compares stages.

The layout is that of `workbench.conversion`, written here once more and straight from a state dictionary.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np
from torch import Tensor

from workbench.formats.gguf_file import GgufFile, read_gguf
from workbench.trace.trace import Trace

EXACT = ("norm", "fsmn_block", "depthwise_conv", "pos_bias")  # parts of names; matrices beside them are quantised


def write_hearing(path: Path, tensors: Mapping[str, Tensor], quantization: str = "f32") -> GgufFile:
    """A file of these tensors, matrices quantised where their rows allow it."""
    writer = gguf.GGUFWriter(str(path), "hearing")
    wanted = gguf.GGMLQuantizationType[quantization.upper()]
    for name, tensor in tensors.items():
        values = tensor.float().numpy()
        if name.endswith(("fsmn_block.weight", "depthwise_conv.weight")):
            values = np.ascontiguousarray(values[:, 0].T)
        elif values.ndim == 3:
            values = values[:, :, 0]
        matrix = values.ndim == 2 and not any(part in name for part in EXACT)
        fits = matrix and values.shape[1] % gguf.GGML_QUANT_SIZES[wanted][0] == 0
        kind = wanted if fits else gguf.GGMLQuantizationType.F32
        writer.add_tensor(name, gguf.quants.quantize(np.ascontiguousarray(values), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return read_gguf(path)


def cosine(x: np.ndarray, y: np.ndarray) -> float:
    """Of two arrays of one shape, taken as vectors."""
    assert x.shape == y.shape
    a, b = (np.asarray(values, dtype=np.float64).ravel() for values in (x, y))
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def assert_traces_agree(trace: Trace, expected: Trace) -> None:
    """The same stages, ids and texts, and values that differ by rounding."""
    assert list(trace) == list(expected)
    for stage in expected:
        if stage in ("tokens", "tokens.alternatives", "text", "prompt.tokens", "prompt.text"):
            np.testing.assert_array_equal(trace[stage], expected[stage])
        else:
            tolerance = 1e-3 * np.abs(expected[stage]).max()
            np.testing.assert_allclose(trace[stage], expected[stage], rtol=1e-3, atol=tolerance, err_msg=stage)
