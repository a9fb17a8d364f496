"""The language model on llama.cpp with other types of weights and KV cache."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.gguf_language import PROMPT, ROWS, generated, opened, reference, traced
from tests.support.tiny_gguf import tiny_gguf, tiny_halves
from workbench.core.errors import BadInput
from workbench.decoding.generation import Decoding


@pytest.mark.parametrize("quantization", ["f16", "q8_0", "q4_0"])
@pytest.mark.parametrize("write", [tiny_gguf, tiny_halves])
def test_quantised_weights_give_logits_close_to_transformers(
    tmp_path: Path, write: Callable[..., Any], quantization: str
) -> None:
    shape = {"hidden_size": 64, "intermediate_size": 128, "head_dim": 32}
    network = write(tmp_path / "it.gguf", quantization=quantization, tie_word_embeddings=True, **shape)
    language = opened(tmp_path / "it.gguf")
    assert language.dtype == quantization
    stages = traced(language, PROMPT)
    with torch.inference_mode():
        expected = network(torch.tensor([PROMPT])).logits[0].numpy()
    min_cosine = {"f16": 0.9999, "q8_0": 0.999, "q4_0": 0.9}[quantization]
    logits = stages["logits"].ravel()
    assert (logits @ expected.ravel()) / np.linalg.norm(logits) / np.linalg.norm(expected) > min_cosine
    first = int(stages["logits"][-1].argmax())
    assert generated(language, [PROMPT], Decoding((), max_new_tokens=4))[0][0] == first


@pytest.mark.parametrize("quantization", ["f16", "q8_0", "q4_0"])
def test_language_part_of_a_speech_file_gives_the_logits_of_a_plain_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quantization: str
) -> None:
    monkeypatch.delenv("WORKBENCH_AMX", raising=False)
    shape = {"hidden_size": 64, "intermediate_size": 128, "head_dim": 32, "quantization": quantization}
    logits = []
    for write in (tiny_gguf, tiny_halves):
        write(tmp_path / f"{write.__name__}.gguf", **shape)
        logits.append(traced(opened(tmp_path / f"{write.__name__}.gguf"), PROMPT)["logits"])
    np.testing.assert_array_equal(logits[0], logits[1])


@pytest.mark.parametrize("kv_cache", ["f16", "q8_0"])
def test_rounded_kv_cache_gives_close_logits_and_the_same_first_token(tmp_path: Path, kv_cache: str) -> None:
    network = tiny_gguf(tmp_path / "it.gguf", head_dim=32)
    exact, rounded = (traced(opened(tmp_path / "it.gguf", kind), PROMPT)["logits"] for kind in ("f32", kv_cache))
    assert 0 < np.abs(exact - rounded).max() < 0.2
    assert (
        generated(opened(tmp_path / "it.gguf", kv_cache), ROWS, Decoding((), max_new_tokens=2))[0][0]
        == (reference(network, PROMPT, max_new_tokens=1)[0])
    )


def test_unknown_or_unfitting_kv_cache_type_is_refused(tmp_path: Path) -> None:
    tiny_gguf(tmp_path / "it.gguf")  # its heads are 8 wide
    for kind, message in (("q4_0", "kv_cache is 'q4_0'; expected one of f32, f16, q8_0"), ("q8_0", "cannot be stored")):
        with pytest.raises(BadInput, match=message):
            generated(opened(tmp_path / "it.gguf", kind), [PROMPT], Decoding((), max_new_tokens=2))
