"""The dimensions of FireRedASR's Conformer encoder and adapter, from its checkpoint files."""

from __future__ import annotations

from dataclasses import dataclass

# Feature frames that one output of the subsampling depends on; the last six may be after the end of the recording.
CONTEXT_FRAMES = 7
SUBSAMPLING = 4


@dataclass(frozen=True)
class ConformerConfig:
    """A Conformer encoder (Gulati et al., "Conformer", Interspeech 2020) with relative positions (Dai et al. 2019)."""

    idim: int  # mel bands
    n_layers: int
    n_head: int
    d_model: int
    kernel_size: int  # of the depthwise convolution, in encoder frames
    pe_maxlen: int  # the most encoder frames with positions


def encoder_frames(frames: int) -> int:
    """Returns the number of encoder frames of `frames` feature frames: a quarter, rounded up."""
    return -(-frames // SUBSAMPLING)


def valid_frames(frames: int, length_rule: str) -> int:
    """Returns how many encoder frames of `frames` feature frames count as speech.

    `release`: all of them, as in the training of the weights and in FireRedASR2. `head`: those that the convolutions
    would give without the zeros after the recording, as in the latest code of the first project: one or two fewer.
    """
    if length_rule == "head":
        return max(((frames - 3) // 2 + 1 - 3) // 2 + 1, 0)
    return encoder_frames(frames)
