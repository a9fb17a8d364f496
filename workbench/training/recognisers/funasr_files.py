"""Writes the common files of a FunASR checkpoint directory: configuration, CMVN, weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from torch import Tensor

from workbench.training.data.pool import write_am_mvn

FRONTEND = {
    "fs": 16000,
    "window": "hamming",
    "n_mels": 80,
    "frame_length": 25,
    "frame_shift": 10,
    "lfr_m": 7,
    "lfr_n": 6,
    "cmvn_file": None,
}


def write_funasr_files(
    directory: Path,
    configuration: Mapping[str, Any],
    files: Mapping[str, Any],
    cmvn: tuple[np.ndarray, np.ndarray] | None,
    tensors: Mapping[str, Tensor],
) -> int:
    """Writes config.yaml, configuration.json, am.mvn and model.pt; returns the number of parameters.

    Args:
        configuration: of config.yaml, without the front end.
        files: `file_path_metas` of configuration.json.
    """
    if cmvn is not None:
        write_am_mvn(directory / "am.mvn", *cmvn)
    full = {**configuration, "frontend": "WavFrontend", "frontend_conf": FRONTEND}
    (directory / "config.yaml").write_text(yaml.safe_dump(full, sort_keys=False, allow_unicode=True), encoding="utf-8")
    card = {
        "framework": "pytorch",
        "task": "auto-speech-recognition",
        "model": {"type": "funasr"},
        "pipeline": {"type": "funasr-pipeline"},
        "file_path_metas": files,
    }
    (directory / "configuration.json").write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    torch.save({name: value.detach().clone() for name, value in tensors.items()}, directory / "model.pt")
    return sum(value.numel() for value in tensors.values())
