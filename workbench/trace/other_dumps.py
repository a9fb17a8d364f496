"""Says how to write arrays as a trace, given a file of another kind that holds them, or a part of them.

Nothing is unpickled, so the files of torch.save and pickle are not read.
"""

from __future__ import annotations

import re
from pathlib import Path

_HEAD = 1 << 16  # bytes at the beginning that show what a file is
_PICKLE = b"\x80"  # the first byte of a pickle of protocol 2 or later
_WIDE = (b"\xff\xfe", b"\xfe\xff")  # byte order marks of UTF-16
_HDF5 = b"\x89HDF\r\n\x1a\n"
_TORCH_MEMBER = b"data.pkl"
_GGML_TENSOR = re.compile(rb"^.{0,80}?: +.{1,128}? = \(\w{2,8}\) +[A-Z][A-Z0-9_]+\(", re.MULTILINE)
_TEXT_BYTES = bytes({7, 8, 9, 10, 12, 13, 27, *range(32, 256)})

TORCH = "it was written by torch.save, and may run code when it is read"


def how_to_write(path: Path) -> str | None:
    """Returns what a file is and how to write its arrays instead, as a clause; None if it is not known."""
    with path.open("rb") as file:
        head = file.read(_HEAD)
    if head.startswith(_WIDE):  # PowerShell writes so what a program prints
        head = head.decode("utf-16", "replace").encode()
    if head.startswith(b"PK\x03\x04") and _TORCH_MEMBER in head:
        return torch_advice(path.name)
    if head.startswith(_PICKLE):
        loaded = f"pickle.load(open('{path.name}', 'rb'))"
        return f"it is a pickle, and may run code when it is read; {_advice('value', loaded)}"
    if head.startswith(_HDF5):
        return f"it is an HDF5 file; {_advice('value[:]', f'h5py.File({path.name!r})')}"
    if _GGML_TENSOR.search(head):
        return (
            "it is the text that ggml prints of its tensors, which leaves out most values; write each tensor as a "
            "whole to a .npy file, as `dump_tensor` in docs/port.md does at the same place (cb_eval)"
        )
    if head and not head.translate(None, _TEXT_BYTES):
        return "it is a text, whose numbers are rounded; write the arrays with numpy.savez, or as .npy files"
    return None


def torch_advice(name: str) -> str:
    """Returns the clause about a file of torch.save."""
    value = "(value.float() if value.is_floating_point() else value).cpu().numpy()"
    return f"{TORCH}; {_advice(value, f'torch.load({name!r})')}"


def _advice(value: str, loaded: str) -> str:
    return f"write the arrays with `numpy.savez('port.npz', **{{name: {value} for name, value in {loaded}.items()}})`"
