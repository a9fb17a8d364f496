"""Prepares this process to compute: device, threads, and arithmetic that can be compared with other runtimes."""

from __future__ import annotations

import torch

from workbench.core.errors import BadInput, Unavailable
from workbench.core.settings import Settings


def prepare(settings: Settings) -> torch.device:
    """Returns the device of the settings; sets threads and full float32 matrix products for this process.

    Raises `BadInput` for a name that torch does not know, `Unavailable` for a device that does not exist.
    """
    try:
        device = torch.device(settings.device)
    except RuntimeError as error:
        raise BadInput(f"device is {settings.device!r}; expected a name such as cpu, cuda or cuda:1") from error
    if device.type == "meta":
        raise BadInput("device is 'meta', on which torch computes nothing; expected a name such as cpu, cuda or cuda:1")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise Unavailable(
            "this installation of torch sees no CUDA device; use device cpu, or install a CUDA build of torch"
        )
    if settings.threads:
        torch.set_num_threads(settings.threads)
    # TF32 would cut products to 10 bits of mantissa on GPUs, an error far larger than the differences to be compared.
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    return device
