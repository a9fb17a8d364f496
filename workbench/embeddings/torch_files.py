"""Reads `.pt` files of `torch.save`, without PyTorch and without unpickling anything.

Such a file is a zip archive of one folder: `data.pkl` describes the tensors, `data/0` and so on are the storages with
their values, and `byteorder` names the byte order.

This file does not use `torch.load(weights_only=True)`. That function reserves memory before anything can be checked
(half a gigabyte for a file of a few hundred bytes, the full size of a zip bomb), and it hashes keys that take
exponential time. It would need a separate process, where each file waits seconds for the import of PyTorch. This reader
takes a millisecond.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

import numpy as np

from workbench.core.errors import BadInput
from workbench.embeddings.archive import Archive
from workbench.embeddings.content import NAMELESS, Content, StoredTensor, shown
from workbench.embeddings.floats import FLOATS
from workbench.embeddings.torch_pickle import MAX_DESCRIPTION_BYTES, TYPES, DescribedTensor, describe
from workbench.formats.array_headers import check_shape

_DESCRIPTION = re.compile(r"[^/]+/data\.pkl")
_ORDERS: Mapping[bytes, Literal["<", ">"]] = {b"little": "<", b"big": ">"}


def is_torch_archive(archive: Archive) -> bool:
    """Returns whether an archive has a description of tensors."""
    return any(map(_DESCRIPTION.fullmatch, archive.names))


def open_pt(archive: Archive) -> Content:
    """Returns the tensors of a `.pt` file: one without a name, or those of a dict by key."""
    where = archive.where
    roots = [name.removesuffix("data.pkl") for name in archive.names if _DESCRIPTION.fullmatch(name)]
    if len(roots) > 1:
        raise BadInput(f"{where} holds {len(roots)} files data.pkl; expected one, as torch.save writes it")
    [root] = roots
    if f"{root}constants.pkl" in archive or any(name.startswith(f"{root}code/") for name in archive.names):
        raise BadInput(f"{where} is a TorchScript program; expected a tensor, as torch.save writes it")
    order = archive.read(f"{root}byteorder", 10) if f"{root}byteorder" in archive else b"little"
    if order not in _ORDERS:
        raise BadInput(f"{where} says that its bytes are in the order {order!r}; expected little or big")
    content = describe(archive.read(f"{root}data.pkl", MAX_DESCRIPTION_BYTES + 1), where)
    if isinstance(content, DescribedTensor):
        return Content("pt", {NAMELESS: _tensor(archive, root, content, _ORDERS[order], where)})
    tensors: dict[str, StoredTensor] = {}
    ignored = []
    for key, value in content.items():
        name = str(key)
        if not isinstance(value, DescribedTensor):
            ignored.append(shown(name))
        elif name in tensors:
            raise BadInput(
                f"{where} has two tensors that are called {shown(name)}: one key is a text, the other a number"
            )
        else:
            tensors[name] = _tensor(archive, root, value, _ORDERS[order], f"{shown(name)} in {where}")
    notes = (
        f"ignored, because they are not tensors: {', '.join(ignored[:5])}{' and more' if len(ignored) > 5 else ''}",
    )
    return Content("pt", tensors, notes if ignored else ())


def _tensor(archive: Archive, root: str, tensor: DescribedTensor, order: Literal["<", ">"], where: str) -> StoredTensor:
    """Returns a tensor after a check that it lies within its storage."""
    check_shape(tensor.shape, where)
    storage, width = f"{root}data/{tensor.storage}", TYPES[tensor.dtype]
    if storage not in archive:
        raise BadInput(f"{where} has its values in {shown(storage)}, which the archive does not have")
    size = archive.size(storage)
    if size != tensor.storage_bytes:
        raise BadInput(f"{where} has its values in {tensor.storage_bytes} bytes, and {shown(storage)} has {size}")
    if tensor.end * width > size:
        raise BadInput(
            f"{where} ends at byte {tensor.end * width} of its storage, which has {size}: shape {tensor.shape}, "
            f"strides {tensor.strides}, offset {tensor.offset}"
        )

    def read() -> np.ndarray:
        kind = np.dtype(FLOATS[tensor.dtype]).newbyteorder(order)
        # An axis of length 0 or 1 allows any stride, even one too large for numpy.
        strides = [stride * width if side > 1 else 0 for side, stride in zip(tensor.shape, tensor.strides)]
        return np.ndarray(tensor.shape, kind, archive.read(storage), tensor.offset * width, strides)

    count = int(np.prod([1, *tensor.shape], dtype=object))
    return StoredTensor(tensor.shape, tensor.dtype, count * width, read)
