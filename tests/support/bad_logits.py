"""Files of logits that a search refuses: functions that write them into the working folder."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

LOGITS = np.random.default_rng(7).normal(scale=2.0, size=(5, 4))


def array(values: object, dtype: object = np.float64) -> Callable[[], None]:
    return lambda: np.save("bad.npy", np.array(values, dtype=dtype))


def logits_with(frame: int, token: int, value: float) -> Callable[[], None]:
    logits = LOGITS.copy()
    logits[frame, token] = value
    return array(logits)


def text(name: str, content: str | bytes) -> Callable[[], None]:
    return lambda: void(Path(name).write_bytes(content if isinstance(content, bytes) else content.encode()))


def void(_: object) -> None:
    return None


def header(shape: str) -> bytes:
    """The head of an .npy file of float64 with no values behind it."""
    words = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(words)) + words


def archive(*members: tuple[str, bytes]) -> Callable[[], None]:
    def write() -> None:
        with zipfile.ZipFile("bad.npz", "w", zipfile.ZIP_DEFLATED) as packed:
            for name, content in members:
                packed.writestr(name, content)

    return write


def npy(values: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, values, allow_pickle=True)
    return file.getvalue()


def tensors(head: str, size: int | None = None, rest: bytes = b"") -> Callable[[], None]:
    content = head.encode()
    return text("bad.safetensors", struct.pack("<Q", len(content) if size is None else size) + content + rest)


# By a description: what writes the file, its name, and a part of the error.
BAD_LOGITS: dict[str, tuple[Callable[[], None], str, str]] = {
    "missing": (lambda: None, "bad.npy", "there is no file"),
    "another suffix": (text("bad.wav", "RIFF"), "bad.wav", "expected .npy"),
    "folder": (lambda: Path("bad.npy").mkdir(), "bad.npy", "is a folder"),
    "empty file": (text("bad.npy", ""), "bad.npy", "truncated or not an .npy"),
    "text": (text("bad.npy", "1 2 3\n"), "bad.npy", "truncated or not an .npy"),
    "shape that lies": (text("bad.npy", header("(1099511627776, 4)")), "bad.npy", "truncated"),
    "shape beyond numbers": (text("bad.npy", header(f"({10**30}, 4)")), "bad.npy", "no array has"),
    "negative shape": (text("bad.npy", header("(-1, 4)")), "bad.npy", "claims the shape"),
    "objects": (lambda: np.save("bad.npy", np.array([[None]]), allow_pickle=True), "bad.npy", "objects"),
    "integers": (array([[1, 2, 3, 4]], np.int64), "bad.npy", "int64"),
    "booleans": (array([[True, False, True, False]], bool), "bad.npy", "bool"),
    "complex": (array([[1, 2, 3, 4]], np.complex128), "bad.npy", "complex128"),
    "words": (array([["a", "b", "c", "d"]], "<U1"), "bad.npy", "expected one array"),
    "one axis": (array([1.0, 2.0, 3.0, 4.0]), "bad.npy", "shape (4,)"),
    "three axes": (array(LOGITS[None]), "bad.npy", "shape (1, 5, 4)"),
    "scalar": (array(1.0), "bad.npy", "shape ()"),
    "no frames": (array(np.zeros((0, 4))), "bad.npy", "which is empty"),
    "no tokens": (array(np.zeros((4, 0))), "bad.npy", "which is empty"),
    "NaN": (logits_with(1, 2, np.nan), "bad.npy", "nan at frame 1, token 2"),
    "infinite": (logits_with(4, 0, np.inf), "bad.npy", "inf at frame 4, token 0"),
    "impossible frame": (array(np.full((2, 4), -np.inf)), "bad.npy", "-inf for all tokens of frame 0"),
    "narrow": (array(LOGITS[:, :3]), "bad.npy", "3 wide and tokens.txt has 4 tokens"),
    "wide": (array(np.zeros((3, 5))), "bad.npy", "5 wide and tokens.txt has 4 tokens"),
    "no zip": (text("bad.npz", "PK"), "bad.npz", "truncated or not a .npz"),
    "two arrays": (archive(("a.npy", npy(LOGITS)), ("b.npy", npy(LOGITS))), "bad.npz", "holds 2 arrays: a, b"),
    "no arrays": (archive(), "bad.npz", "bad.npz"),
    "packed objects": (archive(("a.npy", npy(np.array([[None]])))), "bad.npz", "objects"),
    "packed lie": (archive(("a.npy", header("(99999999, 4)"))), "bad.npz", "truncated"),
    "short safetensors": (text("bad.safetensors", "abc"), "bad.safetensors", "too short"),
    "long head": (tensors("{}", 1 << 60), "bad.safetensors", "claims"),
    "no JSON": (tensors("{]"), "bad.safetensors", "not JSON"),
    "no tensors": (tensors("{}"), "bad.safetensors", "holds 0 arrays"),
    "tensor that lies": (
        tensors('{"a": {"dtype": "F32", "shape": [9, 4], "data_offsets": [0, 144]}}'),
        "bad.safetensors",
        "truncated",
    ),
    "integer tensor": (
        tensors('{"a": {"dtype": "I8", "shape": [1, 4], "data_offsets": [0, 4]}}', rest=b"1234"),
        "bad.safetensors",
        "int8",
    ),
}
