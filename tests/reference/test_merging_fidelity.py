"""The embedding merge equals FireRedASR's where that is correct: one placeholder per row, equal speech lengths."""

from __future__ import annotations

import importlib
import importlib.util
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from workbench.embeddings.merge import PaddingSide, merge_speech

pytestmark = pytest.mark.reference

PAD, SPEECH = 9, 7


def original_merge() -> Any:
    """The method of the original class, whose `self` it uses for two numbers of the configuration."""
    if importlib.util.find_spec("fireredasr") is None:
        pytest.skip("compares with the original FireRedASR code, which is not on the path here: PYTHONPATH=its folder")
    return importlib.import_module(
        "fireredasr.models.fireredasr_llm"
    ).FireRedAsrLlm._merge_input_ids_with_speech_features


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("frames", [1, 2, 17])
def test_merged_embeddings_and_mask_equal_those_of_the_original_code(
    side: PaddingSide, batch: int, frames: int
) -> None:
    draw = np.random.default_rng(frames)
    tokens, width = 6, 8
    ids = draw.integers(0, 7, (batch, tokens))
    present = np.ones((batch, tokens), bool)
    for row, pads in enumerate([0, 3, 1, 2][:batch]):
        padding = slice(0, pads) if side == "left" else slice(tokens - pads, tokens)
        ids[row, padding], present[row, padding] = PAD, False
        ids[row, draw.choice(np.flatnonzero(present[row]))] = SPEECH
    text = torch.randn(batch, tokens, width)
    speech = torch.randn(batch, frames, width)

    original = SimpleNamespace(
        llm=SimpleNamespace(config=SimpleNamespace(pad_token_id=PAD, default_speech_token_id=SPEECH))
    )
    embeddings, mask, _ = original_merge()(
        original, speech, text, torch.from_numpy(ids), torch.from_numpy(present.astype(np.int64))
    )
    merged = merge_speech(ids, text, speech, np.full(batch, frames), SPEECH, present, side)
    assert torch.equal(merged.embeddings, embeddings)
    np.testing.assert_array_equal(merged.attention_mask, mask.numpy().astype(bool))
