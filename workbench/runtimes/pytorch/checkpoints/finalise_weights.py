"""Copies a loaded network's weights into memory, in the layout that this machine multiplies fastest.

A checkpoint is memory-mapped while it is read. If the weights stayed mapped, replacing the file would change them under
a running session. So each tensor is copied once, and its mapped pages are released before the next one is copied: the
process never holds much more than one copy. On a CPU, linear layers are copied straight into oneDNN's blocked layout,
which saves a sixth to a third of their time in float32. oneDNN has no such layout for float64, and one for 16 bits only
where the processor multiplies in them. Results change by rounding only. Where OpenMP may start fewer threads than
oneDNN asks for, layers keep PyTorch's layout, because oneDNN's products would be wrong. This file knows no family.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from workbench.runtimes.pytorch.checkpoints.memory_mapping import mapped_regions, release_pages
from workbench.runtimes.pytorch.numerics.products import (
    FLOAT32,
    Arithmetic,
    convert_inputs,
    onednn_multiplies,
    product_type,
)
from workbench.system.processors import may_lack_threads

ROWS = 512  # a typical number of frames, for which oneDNN chooses its blocks; other numbers work too

_packing: ContextVar[bool] = ContextVar("packing", default=True)


@contextlib.contextmanager
def without_packing() -> Iterator[None]:
    """Lets `finalise_weights` leave linear layers as they are inside the block: their weights can then be replaced."""
    token = _packing.set(False)
    try:
        yield
    finally:
        _packing.reset(token)


class PackedLinear(nn.Module):
    """A linear layer whose weight is stored in oneDNN's own layout. Its input may have a gradient; the weight has
    none. It converts its input to the type of the weight.
    """

    def __init__(self, linear: nn.Linear, dtype: torch.dtype = torch.float32):
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach().to(dtype), ROWS)
        self.bias = None if linear.bias is None else linear.bias.detach().to(dtype, copy=True)

    def forward(self, x: Tensor) -> Tensor:
        """Maps [..., in] to [..., out]."""
        x = x.to(self.weight.dtype)
        if x.requires_grad:
            rows: Tensor = _Product.apply(x.flatten(0, -2), self.weight, self.bias)
            return rows.unflatten(0, x.shape[:-1])
        return _product(x, self.weight, self.bias)


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return product


class _Product(torch.autograd.Function):
    """`_product` of rows x [rows, in] with a gradient, because torch has none for oneDNN's product."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.weight = weight
        return _product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        [gradient] = gradients
        return gradient @ ctx.weight.to_dense(), None, None


def finalise_weights(
    network: nn.Module,
    device: torch.device,
    *weights: Path,
    arithmetic: Arithmetic = FLOAT32,
    exact: Sequence[str] = (),
) -> None:
    """Copies the network's weights to the device, from tensors that may be mapped from the files `weights`.

    Modules whose weights are not loaded yet (on the device `meta`) stay as they are.

    Args:
        arithmetic: where its products have a type of their own, so have the weights that are multiplied, and modules
            convert their inputs. Otherwise weights keep the type that they were loaded in.
        exact: globs of modules that keep the type of everything else.
    """
    regions = mapped_regions(*weights)
    pack = device.type == "cpu" and _packing.get() and not may_lack_threads(torch.get_num_threads())
    # Largest first: while a tensor is copied, both the copy and the mapped original are in memory.
    for name, module in sorted(network.named_modules(), key=lambda item: -_own_bytes(item[1])):
        originals = [parameter.detach() for parameter in module.parameters(recurse=False)]
        if any(original.is_meta for original in originals):
            continue
        is_mixed = arithmetic.is_mixed and not any(fnmatchcase(name, glob) for glob in exact)
        kind = product_type(module, arithmetic) if is_mixed else None
        if pack and isinstance(module, nn.Linear) and _can_pack(kind or module.weight.dtype):
            parent, _, attribute = name.rpartition(".")
            setattr(network.get_submodule(parent), attribute, PackedLinear(module, kind or module.weight.dtype))
        else:
            for parameter in module.parameters(recurse=False):
                parameter.data = parameter.detach().to(device, kind or parameter.dtype, copy=True)
            if is_mixed:
                convert_inputs(module)
        for original in originals:
            release_pages(original, regions)


def _own_bytes(module: nn.Module) -> int:
    return sum(parameter.nbytes for parameter in module.parameters(recurse=False))


@functools.cache
def _can_pack(dtype: torch.dtype) -> bool:
    """Returns whether oneDNN has a layout for the type on this processor, after a small product in it."""
    operations = torch.ops.mkldnn
    if not onednn_multiplies(dtype) or not all(
        hasattr(operations, name) for name in ("_reorder_linear_weight", "_linear_pointwise")
    ):
        return False
    if dtype == torch.float32:
        return True
    linear = nn.Linear(32, 32, dtype=dtype)
    ones = torch.ones(4, 32, dtype=dtype)
    try:
        with torch.no_grad():
            return torch.allclose(PackedLinear(linear, dtype)(ones), linear(ones), rtol=2e-2, atol=2e-2)
    except RuntimeError:
        return False
