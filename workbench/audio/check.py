"""Refuses a file that holds no sound before a model is loaded for it. It decodes the first block alone."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from workbench.audio.read import blocks_of, read
from workbench.audio.refused import check_path, check_rate, no_samples_error
from workbench.core.errors import WorkbenchError


def check_sound(source: str | os.PathLike[str]) -> None:
    """Raises `BadInput` with the sentence of `workbench.audio.read.read` for a file whose beginning it would refuse."""
    path = Path(check_path(source))
    blocks, rate, close = blocks_of(path)
    try:
        check_rate(path.name, rate)
        first = next(blocks, None)
    finally:
        close()
    if first is None:
        raise no_samples_error(path.name)
    if not np.isfinite(first).all():
        read(path)  # counts the samples that are not sound, and raises


def refusals(paths: Iterable[str]) -> dict[str, WorkbenchError]:
    """Returns the error of `check_sound` for each path if it refuses all files; otherwise an empty mapping.

    The first file that is accepted ends the check: a model is loaded for it, and refuses the others itself.
    """
    errors: dict[str, WorkbenchError] = {}
    for path in dict.fromkeys(paths):
        try:
            check_sound(path)
            return {}
        except WorkbenchError as error:
            errors[path] = error
    return errors
