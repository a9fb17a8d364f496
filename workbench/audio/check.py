"""Refuses a file that holds no sound before a model is loaded for it. It decodes the first block alone."""

from __future__ import annotations

import os
from pathlib import Path

from workbench.audio.read import blocks_of
from workbench.audio.refused import check_path, check_rate, no_samples


def check_sound(source: str | os.PathLike[str]) -> None:
    """Raises `BadInput` with the sentence of `workbench.audio.read.read` for a file whose beginning it would refuse."""
    path = Path(check_path(source))
    blocks, rate, close = blocks_of(path)
    try:
        check_rate(path.name, rate)
        if next(blocks, None) is None:
            raise no_samples(path.name)
    finally:
        close()
