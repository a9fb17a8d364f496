"""Beam search agrees with transformers' own, yields after every token, and can be stopped after each."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.support.tiny_language import random_network
from workbench.decoding.generation import ENDED, Decoding
from workbench.embeddings.merge import Merged
from workbench.runtimes.pytorch.language_models.beams import beam_search

STOPS = tuple(range(0, 60, 6))  # so many that hypotheses end at different steps
PAD = 3
DECODING = Decoding(STOPS, max_new_tokens=12, beam_size=3, pad_id=PAD)


@cache
def network() -> Any:
    return random_network("qwen2", vocab_size=64, eos_token_id=None, pad_token_id=None)


def prompts(*lengths: int, seed: int = 1) -> Merged[Tensor]:
    """Embeddings of random prompts, padded on the left with zeros."""
    longest = max(lengths)
    mask = np.arange(longest) >= longest - np.array(lengths)[:, None]
    random_embeddings = torch.randn(len(lengths), longest, 32, generator=torch.Generator().manual_seed(seed))
    embeddings = torch.where(torch.from_numpy(mask)[..., None], random_embeddings, torch.zeros(()))
    return Merged(embeddings, mask, np.where(mask, np.cumsum(mask, axis=1) - 1, 0))


def generate(prompt: Merged[Tensor], row: int, decoding: Decoding, limit: int) -> list[int]:
    """One row by transformers' `generate`, called directly, up to its stop id."""
    with torch.inference_mode():
        [output] = network().generate(
            inputs_embeds=prompt.embeddings[row : row + 1, -int(prompt.lengths[row]) :],
            attention_mask=torch.ones(1, int(prompt.lengths[row]), dtype=torch.long),
            max_new_tokens=limit,
            num_beams=decoding.beam_size,
            length_penalty=decoding.length_penalty,
            repetition_penalty=decoding.repetition_penalty,
            min_new_tokens=decoding.min_new_tokens or None,
            do_sample=False,
            eos_token_id=list(STOPS),
            pad_token_id=PAD,
        )
    ids = output.tolist()
    ends = [index for index, number in enumerate(ids) if number in STOPS]
    return ids[: ends[0] + 1] if ends else ids


def rows(table: np.ndarray) -> list[list[int]]:
    return [row[row != ENDED].tolist() for row in table]


@pytest.fixture(autouse=True)
def no_remaining_thread() -> Iterator[None]:
    thread_count = threading.active_count()
    yield
    assert threading.active_count() == thread_count


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"beam_size": 5, "length_penalty": 0.0},
        {"length_penalty": 2.0, "repetition_penalty": 3.0},
        {"min_new_tokens": 5},
        {"max_new_tokens": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.filterwarnings("ignore:Passing `repetition_penalty` with `inputs_embeds`")  # both sides do so
def test_final_beam_search_result_equals_transformers_generate(changes: dict[str, Any], seed: int) -> None:
    decoding = replace(DECODING, **changes)
    prompt = prompts(7, seed=seed)
    *_, last = beam_search(network(), prompt, decoding)
    assert last.dtype == np.int64
    assert rows(last) == [generate(prompt, 0, decoding, int(decoding.max_new_tokens))]


def test_reference_hypotheses_end_by_stop_token_and_by_length_limit() -> None:
    lengths = {len(generate(prompts(7, seed=seed), 0, DECODING, 12)) for seed in range(12)}
    assert 12 in lengths and len(lengths) > 2


@pytest.mark.parametrize("limits", [12, (12, 3, 9), (1, 2, 12)], ids=str)
def test_batched_beam_search_equals_single_rows_with_limits_per_row(limits: int | tuple[int, ...]) -> None:
    prompt = prompts(9, 4, 6)
    *tables, last = beam_search(network(), prompt, replace(DECODING, max_new_tokens=np.array(limits)))
    row_limits = np.broadcast_to(limits, 3)
    assert rows(last) == [generate(prompt, row, DECODING, int(row_limits[row])) for row in range(3)]
    assert all(table.shape[0] == 3 for table in tables)


def test_beam_search_yields_each_step_before_the_next_is_computed() -> None:
    steps = 0

    def count(*_: Any) -> None:
        nonlocal steps
        steps += 1

    hook = network().register_forward_hook(count)
    try:
        search = beam_search(network(), prompts(7), replace(DECODING, min_new_tokens=12))
        step_lengths = []
        for table in search:
            step_lengths.append((steps, len(rows(table)[0])))
            if len(step_lengths) == 4:
                break
        search.close()
        assert step_lengths == [(1, 1), (2, 2), (3, 3), (4, 4)]
        assert steps <= 5  # within one token
    finally:
        hook.remove()


def test_unstarted_or_dropped_search_closes_without_error() -> None:
    beam_search(network(), prompts(7), DECODING).close()
    search = beam_search(network(), prompts(7), DECODING)
    next(search)
    del search


def test_network_error_is_raised_to_the_caller() -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("out of memory")

    hook = network().register_forward_hook(fail)
    try:
        with pytest.raises(RuntimeError, match="out of memory"):
            list(beam_search(network(), prompts(7), DECODING))
    finally:
        hook.remove()


def test_generation_config_of_the_model_is_ignored() -> None:
    prompt = prompts(7)
    expected = generate(prompt, 0, DECODING, 12)
    from transformers import GenerationConfig

    network().generation_config = GenerationConfig(no_repeat_ngram_size=1, repetition_penalty=9.0, min_new_tokens=12)
    try:
        *_, last = beam_search(network(), prompt, DECODING)
        assert rows(last) == [expected]
    finally:
        network().generation_config = GenerationConfig()
