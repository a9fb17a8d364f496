"""The dimensions of FireRedASR's Conformer encoder and adapter, as its checkpoint files give them."""

from __future__ import annotations

from dataclasses import dataclass

CONTEXT_FRAMES = 7  # that one output of the subsampling sees; the last six of them may lie behind the recording
SUBSAMPLING = 4


@dataclass(frozen=True)
class ConformerConfig:
    """A Conformer encoder (Gulati et al., "Conformer", Interspeech 2020) with relative positions (Dai et al. 2019)."""

    idim: int  # mel bands
    n_layers: int
    n_head: int
    d_model: int
    kernel_size: int  # of the depthwise convolution, in encoder frames
    pe_maxlen: int  # most encoder frames that positions exist for


def encoder_frames(frames: int) -> int:
    """Encoder frames of so many feature frames: a quarter, rounded up."""
    return -(-frames // SUBSAMPLING)


def valid_frames(frames: int, length_rule: str) -> int:
    """How many of the encoder's frames count as speech, of so many feature frames.

    `release`: all of them, as the weights were trained and FireRedASR2 has it. `head`: those that the convolutions
    would give without the zeros behind the recording, as the first project's latest code has it: one or two fewer.
    """
    if length_rule == "head":
        return max(((frames - 3) // 2 + 1 - 3) // 2 + 1, 0)
    return encoder_frames(frames)
