"""Scaled rotary positions against those of transformers, and a layer that a port computes without the scaling."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from transformers import LlamaConfig, Qwen3Config
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

from tests.support.faulty_demos import Demo
from workbench.compare.guesses.language_layers import Rope

LLAMA = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_theta": 5e5,
         "original_max_position_embeddings": 8192}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e6, "original_max_position_embeddings": 32768}


@contextmanager
def closing_session(demo: Demo) -> Iterator[Demo]:
    with closing(demo.session):
        yield demo


@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize(
    ("parameters", "scaling"),
    [
        (LLAMA | {"factor": 8.0}, "as in Llama 3.1"),
        (LLAMA | {"factor": 32.0}, "as in Llama 3.2"),
        (YARN, "by YaRN with the factor 4"),
    ],
)
def test_angles_are_those_of_transformers(width: int, parameters: dict[str, Any], scaling: str) -> None:
    kind, config_class = (
        (Qwen3RotaryEmbedding, Qwen3Config) if scaling.startswith("by") else (LlamaRotaryEmbedding, LlamaConfig)
    )
    config = config_class(head_dim=width, max_position_embeddings=131072, rope_parameters=parameters)
    rows = 3000
    cosines, sines = kind(config)(torch.zeros(1, 1, 1), torch.arange(rows)[None])
    angles = Rope(width, parameters["rope_theta"], "halves", scaling).rotation(rows).queries
    np.testing.assert_allclose(angles.real, cosines[0, :, : width // 2], atol=2e-3)
    np.testing.assert_allclose(angles.imag, sines[0, :, : width // 2], atol=2e-3)


def test_a_port_that_does_not_scale_the_positions_is_told_so(tmp_path: Path) -> None:
    with closing_session(Demo("causal_lm")) as unscaled:
        candidate, directory = unscaled.reference, unscaled.directory
    scaled_directory = tmp_path / "scaled"
    shutil.copytree(directory, scaled_directory)
    config = scaled_directory / "Qwen3-demo" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"rope_parameters": YARN}))
    with closing_session(Demo("causal_lm", scaled_directory)) as scaled:
        stage, hint = scaled.judged(candidate)
    assert stage == "llm.layers.0"
    assert hint is not None and "RoPE is not scaled, where the reference's is scaled by YaRN" in hint, hint
