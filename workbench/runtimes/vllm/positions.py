"""Checks the rotary positions of a plain language model before an engine loads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workbench.core.errors import Unavailable


def check_positions(directory: Path, max_length: int | None) -> None:
    """Raises `Unavailable` for positions that vLLM computes differently from transformers.

    longrope has factors for short and for long texts. transformers uses the long ones beyond the model's original
    context, and an engine that takes longer requests uses them for every request.

    Args:
        directory: of a language model whose configuration transformers can read.
        max_length: the engine's, None for the model's own.
    """
    import transformers

    config: Any = transformers.AutoConfig.from_pretrained(
        str(directory), local_files_only=True, trust_remote_code=False
    )
    positions = config.rope_parameters or {}
    if positions.get("rope_type") != "longrope":
        return
    original = positions.get("original_max_position_embeddings") or config.max_position_embeddings
    scale = config.max_position_embeddings / original  # vLLM always scales attention by this one
    scales_alike = positions.get("attention_factor") is None and positions.get("factor") in (None, scale)
    if scales_alike and max_length is not None and max_length <= original:
        return
    remedy = f", or with a max_length of at most {original}" if scales_alike else ""
    raise Unavailable(
        f"rope_type in {directory.name}/config.json is 'longrope', which vLLM computes differently from transformers; "
        f"open the model on pytorch{remedy}"
    )
