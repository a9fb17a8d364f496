"""One of two workers that compute a tower of Fun-ASR-Nano together: `python -m ... MEETING RANK OUT`.

Writes the output of the tower to OUT, with the shapes of the parameters of this worker.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from tests.runtimes.vllm.models.worker import finish_loading, worker
from tests.support.tiny_checkpoints import drawn_tensors
from workbench.families.sanm.encoder import SanmConfig
from workbench.families.speech_llm.funasr_nano import AdaptorConfig
from workbench.runtimes.pytorch.networks.nano_encoder import NanoEncoder
from workbench.runtimes.vllm.models.funasr_nano_tower import NanoTower

ENCODER = SanmConfig(20, 16, 2, 24, 2, 1, 5, 0, 1e-5)
ADAPTOR = AdaptorConfig(1, False, 16, 24, 24, 1, 3)  # three heads cannot be split over two workers
LENGTHS = (17, 16, 5)


def weights() -> dict[str, torch.Tensor]:
    """The weights of every worker, and of the reference network."""
    return drawn_tensors(NanoEncoder(ENCODER, ADAPTOR), 3)


def features() -> list[torch.Tensor]:
    """The features of three recordings."""
    draw = torch.Generator().manual_seed(7)
    return [torch.randn(length, ENCODER.input_size, generator=draw) for length in LENGTHS]


def main() -> None:
    meeting, rank, out = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    with worker(meeting, rank, 2):
        tower = NanoTower(ENCODER, ADAPTOR)
        tower.load_weights(weights().items())
        shapes = {name: tuple(parameter.shape) for name, parameter in tower.named_parameters()}
        finish_loading(tower)
        with torch.inference_mode():
            torch.save({"found": tower(features(), LENGTHS), "shapes": shapes}, out)


if __name__ == "__main__":
    main()
