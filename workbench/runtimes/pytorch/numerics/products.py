"""Mixed precision: audio encoders and recognisers have one type for products and one for everything else.

In bfloat16 or float16, a processor's matrix units multiply several times as fast as in float32, but eight or eleven
bits are too few to add up a residual stream. So with such a `dtype` the linear layers and convolutions of this
project's networks multiply in 16 bits, and norms, sums, CIF and the softmax of attention stay in float32 (Micikevicius
et al., "Mixed Precision Training", ICLR 2018). A port that computes everything in 16 bits is another matter: the
setting `stepwise` is for that. This file knows no network.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from workbench.core.settings import Settings
from workbench.runtimes.pytorch.numerics.arithmetic import HALVES, name_of, network_dtype
from workbench.system.processor_kind import INTEL, vendor

MULTIPLIES = (nn.Linear, nn.Conv1d, nn.Conv2d)
ADDS = (nn.LayerNorm,)
# What ONEDNN_MAX_CPU_ISA says where it lets oneDNN use matrix units, or vector instructions for bfloat16.
_WITH_AMX = re.compile(r"all|default|.*amx.*", re.IGNORECASE)
_WITH_BFLOAT16 = re.compile(r"all|default|.*(bf16|fp16|amx|avx10).*", re.IGNORECASE)


@dataclass(frozen=True)
class Arithmetic:
    """The types of a network."""

    values: torch.dtype = torch.float32  # of its inputs, norms and sums
    products: torch.dtype = torch.float32  # of what linear layers and convolutions multiply

    @property
    def name(self) -> str:
        """The name of its least precise type, as in settings and traces."""
        return name_of(self.products)

    @property
    def is_mixed(self) -> bool:
        """Whether products have another type than the rest."""
        return self.products != self.values


FLOAT32 = Arithmetic()


def arithmetic_of(settings: Settings, device: torch.device, language: str = "") -> Arithmetic:
    """Returns the types of an audio encoder, or of a network without a language model.

    Args:
        language: the type of the language model beside it, if there is one. With `auto`, an audio encoder computes in
            16 bits only if the language model does.
    """
    dtype = settings.dtype
    if settings.stepwise or dtype not in ("auto", *HALVES):
        kind = network_dtype(dtype, settings.stepwise)
        return Arithmetic(kind, kind)
    if dtype == "auto":
        fast_type = fast_half(device)
        return FLOAT32 if fast_type is None or language not in ("", *HALVES) else Arithmetic(products=fast_type)
    return Arithmetic(products=HALVES[dtype])


def fast_half(device: torch.device) -> torch.dtype | None:
    """Returns the 16-bit type that the device multiplies faster than float32; None if there is none."""
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    return torch.bfloat16 if device.type == "cpu" and _is_processor_fast_in_bfloat16() else None


def _is_processor_fast_in_bfloat16() -> bool:
    """Returns whether oneDNN multiplies in bfloat16 at twice the rate of float32 or more.

    It does so on matrix units, and with AMD's vector instructions. Intel's vector instructions for bfloat16 multiply at
    half the rate of those for float32.
    """
    if torch.backends.cpu.get_cpu_capability() == "DEFAULT" or not onednn_multiplies(torch.bfloat16):
        return False
    allowed = os.environ.get("ONEDNN_MAX_CPU_ISA") or "all"
    if torch.cpu._is_amx_tile_supported() and _WITH_AMX.fullmatch(allowed):
        return True
    has_vectors = torch.cpu._is_avx512_bf16_supported() and _WITH_BFLOAT16.fullmatch(allowed)
    return bool(has_vectors) and vendor() != INTEL


def onednn_multiplies(dtype: torch.dtype) -> bool:
    """Returns whether oneDNN multiplies in a type on this processor."""
    if not torch.backends.mkldnn.is_available():
        return False
    if dtype == torch.float32:
        return True
    function_name = {torch.bfloat16: "_is_mkldnn_bf16_supported", torch.float16: "_is_mkldnn_fp16_supported"}.get(dtype)
    return bool(
        function_name and hasattr(torch.ops.mkldnn, function_name) and getattr(torch.ops.mkldnn, function_name)()
    )


def product_type(module: nn.Module, arithmetic: Arithmetic) -> torch.dtype:
    """Returns the type for a module's own weights.

    Depthwise convolutions add up few products of many values, so they gain nothing from 16 bits.
    """
    is_depthwise = isinstance(module, (nn.Conv1d, nn.Conv2d)) and module.groups > 1
    return arithmetic.products if isinstance(module, MULTIPLIES) and not is_depthwise else arithmetic.values


def convert_inputs(module: nn.Module) -> None:
    """Lets a module of `MULTIPLIES` or `ADDS` convert its input to the type of its weights."""
    if isinstance(module, (*MULTIPLIES, *ADDS)) and module.weight is not None:
        module.register_forward_pre_hook(_convert_inputs)


def _convert_inputs(module: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    x: Tensor = inputs[0]
    return (x.to(module.weight.dtype), *inputs[1:])
