"""Writes an array as the bytes of a file that PyTorch loads, as vLLM's servers take embeddings. Imports no torch.

The file is a zip archive: `data.pkl` describes the tensor and names `data/0`, which holds its values. This file writes
the description opcode by opcode and never reads it back.
"""

from __future__ import annotations

import io
import struct
import zipfile

import numpy as np

ROOT = "embeddings"  # the folder inside the archive; its name has no meaning


def saved_tensor(array: np.ndarray) -> bytes:
    """Returns what `torch.save` would write for a float32 array of any shape."""
    values = np.asarray(array, dtype="<f4", order="C")  # not ascontiguousarray, which turns zero dimensions into one
    strides = [step // values.itemsize for step in values.strides]
    description = b"".join(
        [
            b"\x80\x02",  # protocol 2
            b"ctorch._utils\n_rebuild_tensor_v2\n",
            b"(",  # its arguments
            b"(",  # the storage, by a persistent id
            *(_text("storage"), b"ctorch\nFloatStorage\n", _text("0"), _text("cpu"), _integer(values.size)),
            b"tQ",
            _integer(0),  # position of the first value
            _tuple(values.shape),
            _tuple(strides),
            b"\x89",  # requires no gradient
            b"ccollections\nOrderedDict\n)R",  # no hooks
            b"tR.",
        ]
    )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in (
            ("data.pkl", description),
            ("byteorder", b"little"),
            ("data/0", values.tobytes()),
            ("version", b"3\n"),
        ):
            archive.writestr(zipfile.ZipInfo(f"{ROOT}/{name}"), content)
    return buffer.getvalue()


def _text(text: str) -> bytes:
    encoded = text.encode()
    return b"X" + struct.pack("<I", len(encoded)) + encoded


def _integer(number: int) -> bytes:
    """Returns the opcode of a whole number of up to 63 bits."""
    encoded = number.to_bytes(8, "little", signed=True)
    return b"\x8a\x08" + encoded


def _tuple(numbers: tuple[int, ...] | list[int]) -> bytes:
    return b"(" + b"".join(map(_integer, numbers)) + b"t"
