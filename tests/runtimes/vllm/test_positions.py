"""Rotary positions that vLLM computes differently from transformers are refused before an engine starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import transformers

from workbench.core.errors import Unavailable
from workbench.runtimes.vllm.positions import check_positions

LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0] * 4,
    "long_factor": [2.0] * 4,
    "original_max_position_embeddings": 64,
}


def write_config(directory: Path, positions: dict[str, Any]) -> Path:
    transformers.Qwen3Config(
        hidden_size=32, num_attention_heads=4, head_dim=8, max_position_embeddings=256, rope_parameters=positions
    ).save_pretrained(directory)
    return directory


@pytest.mark.parametrize("max_length", [None, 65])
def test_longrope_is_refused_for_requests_beyond_the_original_context(max_length: int | None, tmp_path: Path) -> None:
    directory = write_config(tmp_path / "it", LONGROPE)
    sentence = r"it/config\.json is 'longrope', .* open the model on pytorch, or with a max_length of at most 64$"
    with pytest.raises(Unavailable, match=sentence):
        check_positions(directory, max_length)
    check_positions(directory, 64)


@pytest.mark.parametrize("scale", [{"factor": 2.0}, {"attention_factor": 1.5}])
def test_longrope_with_another_scale_of_attention_is_refused(scale: dict[str, float], tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"open the model on pytorch$"):
        check_positions(write_config(tmp_path / "it", LONGROPE | scale), 64)
    check_positions(write_config(tmp_path / "same", LONGROPE | {"factor": 4.0}), 64)


def test_other_positions_are_accepted(tmp_path: Path) -> None:
    check_positions(write_config(tmp_path / "it", {"rope_type": "default", "rope_theta": 10000.0}), None)
