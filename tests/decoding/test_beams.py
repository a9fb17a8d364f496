"""Beam search with numpy against the beam search of transformers, on logits of the same network."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.tiny_language import random_network
from workbench.decoding.beams import BeamSearch
from workbench.decoding.generation import Decoding

STOPS = tuple(range(0, 60, 6))  # so many that hypotheses end at different steps
DECODING = Decoding(STOPS, max_new_tokens=12, beam_size=3)


@cache
def network() -> Any:
    return random_network("qwen2", vocab_size=64, eos_token_id=None, pad_token_id=None)


def prompt(seed: int) -> torch.Tensor:
    return torch.randint(0, 64, (1, 7), generator=torch.Generator().manual_seed(seed))


@torch.inference_mode()
def search_result(ids: torch.Tensor, decoding: Decoding, limit: int = 12) -> list[int]:
    """Returns the search's ids; every hypothesis is computed from its beginning at every step."""
    search = BeamSearch(decoding, limit)
    written = np.empty((decoding.beam_size, 0), dtype=np.int64)
    for step in range(limit):
        sequences = torch.cat([ids.repeat(decoding.beam_size, 1), torch.from_numpy(written)], dim=1)
        step_beams = search.advance(network()(sequences).logits[:, -1].numpy())
        if step_beams is None:
            return search.best
        assert len(search.best) == step + 1
        written = np.column_stack([written[step_beams.parents], step_beams.tokens])
    raise AssertionError("the search goes on beyond its limit")


@torch.inference_mode()
def transformers_result(ids: torch.Tensor, decoding: Decoding, limit: int = 12) -> list[int]:
    [ids] = network().generate(
        inputs_embeds=network().get_input_embeddings()(ids),
        attention_mask=torch.ones_like(ids),
        max_new_tokens=limit,
        num_beams=decoding.beam_size,
        length_penalty=decoding.length_penalty,
        repetition_penalty=decoding.repetition_penalty,
        min_new_tokens=decoding.min_new_tokens or None,
        do_sample=False,
        eos_token_id=list(decoding.stop_ids) or None,
        pad_token_id=63,
    )
    written = ids.tolist()
    ends = [place for place, number in enumerate(written) if number in decoding.stop_ids]
    return written[: ends[0] + 1] if ends else written


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"beam_size": 2, "stop_ids": ()},
        {"beam_size": 5, "length_penalty": 0.0},
        {"length_penalty": 2.0, "repetition_penalty": 3.0},
        {"length_penalty": -1.0},
        {"min_new_tokens": 5, "repetition_penalty": 0.7},
        {"beam_size": 8, "stop_ids": (1, 2)},
    ],
    ids=str,
)
@pytest.mark.filterwarnings(
    "ignore:Passing `repetition_penalty` with `inputs_embeds`"
)  # the test compares this combination
def test_the_result_matches_transformers(changes: dict[str, Any]) -> None:
    decoding = replace(DECODING, **changes)
    for seed in range(12):
        assert search_result(prompt(seed), decoding) == transformers_result(prompt(seed), decoding)


def test_prompts_cover_hypotheses_ended_by_eos_and_by_the_token_limit() -> None:
    lengths = {len(transformers_result(prompt(seed), DECODING)) for seed in range(12)}
    assert 12 in lengths and len(lengths) > 2


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_token_limit_ends_the_beam_search(limit: int) -> None:
    for seed in range(4):
        assert search_result(prompt(seed), DECODING, limit) == transformers_result(prompt(seed), DECODING, limit)


def test_likeliest_sequence_wins_over_the_likeliest_first_token() -> None:
    """Token 1 begins the better text, though token 0 is likelier at first."""
    after = {(): [0.6, 0.4, 1e-9], (0,): [0.5, 0.4999, 1e-4], (1,): [0.001, 0.001, 0.998]}
    search = BeamSearch(Decoding((2,), beam_size=2, length_penalty=0.0), 2)
    going = search.advance(np.log(np.array([after[()]] * 2, np.float32)))
    assert going is not None and going.tokens.tolist() == [0, 1] and going.parents.tolist() == [0, 0]
    assert search.best == [0]
    assert search.advance(np.log(np.array([after[(0,)], after[(1,)]], np.float32))) is None
    assert search.best == [1, 2]
