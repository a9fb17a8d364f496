"""Rows of tokens scored together, compared with a single transformers pass for each row."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.tiny_language import random_network, tiny_language
from workbench.core.errors import BadInput
from workbench.families.language.directory import read_language_config
from workbench.runtimes.pytorch.language_models.language import open_language
from workbench.runtimes.pytorch.language_models.scoring import TreeScorer

KINDS: dict[str, dict[str, Any]] = {
    "qwen3": {"tie_word_embeddings": True},
    "qwen2": {},
    "llama": {"attn_implementation": "eager"},
    "mistral": {"sliding_window": None},
}
ROWS = [[458, 1, 2, 3, 458], [458, 1, 2, 4, 5, 6], [458, 7, 458], [458, 1, 2, 3, 8, 9, 1], [458, 458], [3, 1]]
LATER = [[458, 1, 2, 3, 8, 9, 1, 5, 5], [458, 1, 2, 3, 8, 4], [458, 7, 7, 7], [458, 1, 2, 3, 458]]
EXACT = 1e-5


def reference(network: Any, row: Sequence[int]) -> np.ndarray:
    with torch.inference_mode():
        logprobs = network(torch.tensor([row[:-1]])).logits[0].double().log_softmax(-1)
    return np.array([logprobs[position, token] for position, token in enumerate(row[1:])])


def assert_scores(
    scores: Sequence[np.ndarray], network: Any, rows: Sequence[Sequence[int]], atol: float = EXACT
) -> None:
    for actual, row in zip(scores, rows, strict=True):
        assert actual.dtype == np.float64
        np.testing.assert_allclose(actual, reference(network, row), rtol=0, atol=atol)


@pytest.mark.parametrize("kind", KINDS)
def test_tree_scores_equal_a_single_pass_per_row_and_prefixes_are_computed_once(kind: str) -> None:
    network = random_network(kind, **KINDS[kind])
    scorer = TreeScorer(network)
    assert_scores(scorer.score(ROWS), network, ROWS)
    assert scorer.passes == 1
    nodes = {tuple(row[:end]) for row in ROWS for end in range(1, len(row))}
    assert scorer.positions == len(nodes)
    assert_scores(scorer.score(LATER), network, LATER)
    assert scorer.passes == 2
    nodes |= {tuple(row[:end]) for row in LATER for end in range(1, len(row))}
    assert scorer.positions == len(nodes), "a prefix is computed once"
    assert all((first == second).all() for first, second in zip(scorer.score(ROWS), scorer.score(ROWS), strict=True))
    assert scorer.passes == 2


@pytest.mark.parametrize("room", [1, 9])
def test_small_cache_recomputes_prefixes_with_the_same_scores(room: int) -> None:
    network = random_network("qwen3")
    scorer = TreeScorer(network, room)
    for rows in (ROWS, LATER, ROWS):
        assert_scores(scorer.score(rows), network, rows)
        assert len(scorer._slots) <= max(2 * room, 8)


def test_float64_is_exact_and_half_precision_near(tmp_path: Path) -> None:
    directory = tiny_language(tmp_path / "it")
    for dtype, atol in (("float64", 1e-12), ("bfloat16", 0.5)):
        language = open_language(read_language_config(directory), torch.device("cpu"), dtype)
        with torch.inference_mode():
            exact = open_language(read_language_config(directory), torch.device("cpu"), "float64")
            assert_scores(language.score(ROWS), Float64Network(exact.network), ROWS, atol)


class Float64Network:
    """A network in float64, without transformers' conversions to float32."""

    def __init__(self, network: Any):
        self.network = network

    def __call__(self, ids: torch.Tensor) -> Any:
        from workbench.runtimes.pytorch.numerics.arithmetic import keeping_float64

        with keeping_float64(torch.float64):
            return self.network(ids)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("mistral", {"sliding_window": 4}),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}),
    ],
)
def test_rows_longer_than_the_sliding_window_are_scored_correctly(
    tmp_path: Path, kind: str, changes: dict[str, Any]
) -> None:
    directory = tiny_language(tmp_path / "it", kind, **changes)
    language = open_language(read_language_config(directory), torch.device("cpu"))
    assert_scores(language.score([*ROWS, *LATER]), language.network, [*ROWS, *LATER])


FACTORS = {"short_factor": [1.0] * 4, "long_factor": [3.0] * 4, "original_max_position_embeddings": 8}


@pytest.mark.parametrize("rotary", [{"rope_type": "dynamic", "factor": 2.0}, {"rope_type": "longrope", **FACTORS}])
def test_rotary_rates_of_a_row_depend_on_its_own_length_only(tmp_path: Path, rotary: dict[str, Any]) -> None:
    changes = {"max_position_embeddings": 8, "rope_parameters": {"rope_theta": 10000.0, **rotary}}
    language = open_language(read_language_config(tiny_language(tmp_path / "it", **changes)), torch.device("cpu"))
    rows = [[458, *range(1, count)] for count in (30, 12, 5, 9, 8)]
    for scores in (language.score(rows), language.score(rows)):
        for row_scores, row in zip(scores, rows, strict=True):
            assert_scores([row_scores], random_network(**changes), [row])


def test_unknown_token_id_raises_one_line_error(tmp_path: Path) -> None:
    language = open_language(read_language_config(tiny_language(tmp_path / "it")), torch.device("cpu"))
    for invalid in (512, -1):
        with pytest.raises(BadInput, match=r"^a text has ids from .* to .*; expected 0 to 511$"):
            language.score([[1, 2], [1, invalid]])
    assert language.score([]) == []
