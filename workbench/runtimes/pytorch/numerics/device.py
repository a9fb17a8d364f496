"""Prepares this process to compute: device, threads, and arithmetic that can be compared with other runtimes."""

from __future__ import annotations

import threading

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
    if device.type == "cuda":
        threading.Thread(target=load_libraries, args=(device,), daemon=True, name="cuda-libraries").start()
    return device


@torch.inference_mode()
def load_libraries(device: torch.device) -> None:
    """Runs one small convolution, attention and product, each in float32 and in bfloat16.

    Their first use on a GPU loads libraries, which takes two seconds. A thread does that while the weights are read.
    """
    try:
        for kind in (torch.float32, torch.bfloat16):
            x = torch.zeros(1, 8, 1, 64, dtype=kind, device=device).contiguous(memory_format=torch.channels_last)
            torch.nn.functional.conv2d(x, x.new_zeros(8, 1, 1, 3), padding=(0, 1), groups=8)
            rows = x.new_zeros(1, 1, 64, 64)
            mask = torch.ones(1, 1, 1, 64, dtype=torch.bool, device=device)
            torch.nn.functional.scaled_dot_product_attention(rows, rows, rows, attn_mask=mask)
            torch.nn.functional.linear(rows, rows[0, 0], rows[0, 0, 0])
    except RuntimeError:  # such as no memory left on the GPU, which the session then says itself
        return
