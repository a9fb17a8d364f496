"""Language models on llama.cpp: prompts, what they write after them, and what transformers writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from workbench.decoding.generation import ENDED, Decoding
from workbench.formats.gguf_file import read_gguf
from workbench.runtimes.gguf.files.language_file import language_config
from workbench.runtimes.gguf.llama_cpp.language import LanguageModel, open_language
from workbench.trace.recorder import Recorder
from workbench.trace.trace import StageFilter

PROMPT = [5, 300, 17, 17, 290, 8]
ROWS = [PROMPT, [9, 9], [400, 3, 271, 33, 61, 12, 250, 7, 7, 90], [1]]


def opened(path: Path, kv_cache: str = "f32") -> LanguageModel:
    file = read_gguf(path)
    return open_language(file, language_config(file), threads=1, kv_cache=kv_cache)


def generated(language: LanguageModel, rows: Sequence[Sequence[int]], decoding: Decoding) -> list[list[int]]:
    """The ids of every row, its end included."""
    columns = np.stack(list(language.generate(language.prompt(rows), decoding)), axis=1)
    for row in columns:  # once ended, a row stays so
        ended = np.flatnonzero(row == ENDED)
        assert len(ended) == 0 or (row[ended[0] :] == ENDED).all()
    return [row[row != ENDED].tolist() for row in columns]


def reference(network: Any, row: Sequence[int], stops: Sequence[int] = (), **options: Any) -> list[int]:
    """What transformers' generate gives after a prompt."""
    with torch.inference_mode():
        embeddings = network.get_input_embeddings()(torch.tensor([row]))
        [found] = network.generate(
            inputs_embeds=embeddings,
            attention_mask=torch.ones(1, len(row), dtype=torch.long),
            eos_token_id=list(stops) or None,
            pad_token_id=511,
            **{"do_sample": False, "max_new_tokens": 24, **options},
        ).tolist()
    ends = [place for place, number in enumerate(found) if number in stops]
    return found[: ends[0] + 1] if ends else found


def traced(language: LanguageModel, row: Sequence[int], pattern: str = "") -> dict[str, np.ndarray]:
    recorder = Recorder(StageFilter(f"*{pattern}*"))
    language.trace(language.prompt([row]), recorder)
    return recorder.stages
