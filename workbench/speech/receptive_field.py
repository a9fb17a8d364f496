"""The receptive field of a codec's decoder: which frames change the samples of a frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Convolution:
    """A convolution over time, without its weights."""

    kernel: int
    stride: int
    padding: int
    dilation: int = 1
    transposed: bool = False


def receptive_field(layers: Sequence[Convolution], hop: int) -> tuple[int, int]:
    """Returns the receptive field: how many frames before and after a frame change its samples.

    The samples of a frame are followed back through the layers of the decoder, which come in the order in which they
    run. Skip connections reach no farther.

    Args:
        hop: samples per frame.
    """
    frame = 1 << 20  # any that is far from the beginning
    first, last = frame * hop, (frame + 1) * hop - 1
    for layer in reversed(layers):
        kernel, stride, padding = layer.kernel, layer.stride, layer.padding
        if layer.transposed:  # output i * stride - padding + k of input i, k below the kernel size
            first, last = -((kernel - 1 - padding - first) // stride), (last + padding) // stride
        else:
            first, last = first * stride - padding, last * stride - padding + (kernel - 1) * layer.dilation
    return frame - first, last - frame
