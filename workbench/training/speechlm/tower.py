"""The audio tower of the demo SpeechLM, of Qwen3-Omni's class. It is trained alone to distinguish digits.

Two heads exist only in training: one names the digit at every position of the tower, from the known places of the takes
in a recording; the other has the CTC loss. The language model later reads the tower's output through an adaptor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from workbench.audio.constants import FRAME_SHIFT, NUM_MELS
from workbench.training.data.pool import FeaturePool, Span, Strings
from workbench.training.loop import Draw
from workbench.training.recognisers.speech_language import DIGITS, IGNORED, ctc_loss

TOWER: dict[str, Any] = {
    "num_mel_bins": NUM_MELS,
    "d_model": 128,
    "encoder_layers": 4,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 384,
    "downsample_hidden_size": 48,
    "output_dim": 128,
    # One chunk holds up to 32 s. Qwen3-Omni's tower has chunks of 1 s (n_window 50) with equal position encodings: they
    # cut many digits in two, and a small tower does not learn which halves belong together.
    "n_window": 1600,
    "n_window_infer": 3200,
    "conv_chunksize": 500,
    "max_source_positions": 1500,
}
STRIDE = 8  # mel frames between two positions of the tower


@dataclass(frozen=True, eq=False)
class Recordings:
    """A batch of recordings for the tower."""

    features: tuple[NDArray[np.float32], ...]  # of each: [frames, mels]
    digits: tuple[tuple[int, ...], ...]
    labels: NDArray[np.int64]  # digit + 1, 0 or IGNORED at the positions of all recordings, one after another

    @property
    def frames(self) -> Tensor:
        """The number of mel frames of each recording [B]."""
        return torch.tensor([len(part) for part in self.features])

    @property
    def mels(self) -> Tensor:
        """All frames one after another, as the tower takes them: [mels, frames]."""
        return torch.from_numpy(np.concatenate(self.features).T.copy())


def make_tower(dropout: float = 0.0) -> Any:
    """Returns an untrained tower."""
    from transformers.models.qwen3_omni_moe.configuration_qwen3_omni_moe import Qwen3OmniMoeAudioEncoderConfig
    from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import Qwen3OmniMoeAudioEncoder

    config = Qwen3OmniMoeAudioEncoderConfig(**TOWER, dropout=dropout, activation_dropout=dropout)
    tower = Qwen3OmniMoeAudioEncoder(config)
    # The class draws weights for a large model. In a small one the sound would be lost under the position encodings.
    for name, value in tower.named_parameters():
        if value.dim() > 1:
            nn.init.kaiming_normal_(value, nonlinearity="relu" if "conv2d" in name else "linear")
    return tower


def positions_of(frames: NDArray[np.int64] | Sequence[int]) -> NDArray[np.int64]:
    """Returns the number of the tower's positions for each number of mel frames, of recordings below 32 s.

    Each of three convolutions with stride 2 halves the frames, rounded up.
    """
    counts = np.asarray(frames, dtype=np.int64)
    for _ in range(3):
        counts = (counts + 1) // 2
    return counts


def position_labels(spans: Sequence[Span], frames: int) -> NDArray[np.int64]:
    """Returns for each position the digit there + 1, or 0 between the takes.

    A take of several digits is IGNORED: their places in it are not known. The middle of position k is frame 8 k.
    """
    labels = np.zeros(int(positions_of([frames])[0]), dtype=np.int64)
    middles = np.arange(len(labels)) * (STRIDE * FRAME_SHIFT)
    for start, end, digits in spans:
        labels[(middles >= start) & (middles < end)] = digits[0] + 1 if len(digits) == 1 else IGNORED
    return labels


def recordings(pool: FeaturePool, frames_per_batch: int) -> Draw:
    """Draws masked recordings of similar length, epoch after epoch."""

    def draw(rng: np.random.Generator) -> Iterator[Recordings]:
        while True:
            for numbers in pool.batches(frames_per_batch, rng):
                yield read_recordings(pool, numbers, rng)

    return draw


def read_recordings(
    pool: Strings, numbers: Sequence[int] | NDArray[np.int64], rng: np.random.Generator | None = None
) -> Recordings:
    """Returns recordings of the pool; a generator masks them."""
    examples = [pool.example(int(number), rng, stack=False) for number in numbers]
    labels = [
        position_labels(pool.spans[int(number)], len(example.features))
        for number, example in zip(numbers, examples, strict=True)
    ]
    return Recordings(
        tuple(example.features for example in examples),
        tuple(example.digits for example in examples),
        np.concatenate(labels),
    )


class TowerLoss(nn.Module):
    """Cross-entropy of the digit at every position, and CTC."""

    def __init__(self, network: Any):
        super().__init__()
        self.network = network
        self.places = nn.Linear(TOWER["output_dim"], DIGITS + 1)
        self.order = nn.Linear(TOWER["output_dim"], DIGITS + 1)

    def forward(self, batch: Recordings, rng: np.random.Generator) -> dict[str, Tensor]:
        """Returns the parts of the loss."""
        frames = batch.frames
        encoded = self.network(batch.mels, frames).last_hidden_state
        return self.parts(encoded, batch)

    def parts(self, encoded: Tensor, batch: Recordings) -> dict[str, Tensor]:
        """Returns the parts of the loss for the tower's output [positions of all recordings, width]."""
        labels = torch.from_numpy(batch.labels)
        counts = positions_of(batch.frames.numpy()).tolist()
        padded = nn.utils.rnn.pad_sequence(encoded.split(counts), batch_first=True)
        return {
            "places": 0.5 * F.cross_entropy(self.places(encoded), labels, ignore_index=IGNORED),
            "order": ctc_loss(self.order(padded), torch.tensor(counts), batch.digits),
        }
