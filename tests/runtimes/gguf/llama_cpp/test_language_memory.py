"""A language model on llama.cpp frees its memory when it is closed or no longer referenced."""

from __future__ import annotations

import gc
from pathlib import Path

import psutil
import pytest

from tests.support.gguf_language import PROMPT, generated, opened
from tests.support.tiny_gguf import tiny_gguf, tiny_halves
from workbench.core.errors import BadInput
from workbench.decoding.generation import Decoding
from workbench.runtimes.gguf.llama_cpp import language as module


def test_close_frees_the_memory_of_weights_and_kv_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RESERVED_TOKENS", 4000)
    tiny_halves(tmp_path / "it.gguf", num_key_value_heads=4, head_dim=128, max_position_embeddings=4096)
    process = psutil.Process()

    def resident_bytes() -> int:
        gc.collect()
        return int(process.memory_info().rss)

    def cycle() -> int:
        language = opened(tmp_path / "it.gguf")
        steps = language.generate(language.prompt([PROMPT]), Decoding((), max_new_tokens=4000))
        next(steps)
        peak = resident_bytes()
        language.close()
        return peak

    cycle()
    before = resident_bytes()
    peaks = [cycle() for _ in range(4)]
    assert peaks[0] - before > 40e6  # the size of the keys and values of all positions
    assert resident_bytes() - before < 4e6


def test_unreferenced_model_is_freed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_gguf(tmp_path / "it.gguf")
    language = opened(tmp_path / "it.gguf")
    generated(language, [PROMPT], Decoding((), max_new_tokens=2))
    free = language.model._free
    del language
    gc.collect()
    assert not free.alive


def test_unstarted_generation_of_a_closed_model_raises_one_line_error(tmp_path: Path) -> None:
    tiny_gguf(tmp_path / "it.gguf")
    language = opened(tmp_path / "it.gguf")
    steps = language.generate(language.prompt([PROMPT]), Decoding((), max_new_tokens=9))
    language.close()
    with pytest.raises(BadInput, match=r"^it\.gguf is closed; open it again$"):
        next(steps)


def test_running_generation_of_a_closed_model_raises_one_line_error(tmp_path: Path) -> None:
    tiny_gguf(tmp_path / "it.gguf")
    language = opened(tmp_path / "it.gguf")
    steps = language.generate(language.prompt([PROMPT]), Decoding((), max_new_tokens=9))
    next(steps)
    language.close()
    with pytest.raises(BadInput, match=r"^it\.gguf is closed; open it again$"):
        next(steps)
