"""Token sequences scored together on llama.cpp against transformers, and the reuse of stored prefixes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.tiny_gguf import tiny_gguf
from workbench.core.errors import BadInput
from workbench.formats.gguf_file import read_gguf
from workbench.runtimes.gguf.files.language_file import language_config
from workbench.runtimes.gguf.llama_cpp.language import LanguageModel, open_language
from workbench.runtimes.gguf.llama_cpp.scoring import SEQUENCES, SequenceScorer

ROWS = [[458, 1, 2, 3, 458], [458, 1, 2, 4, 5, 6], [458, 7, 458], [458, 1, 2, 3, 8, 9, 1], [458, 458], [3, 1]]
LATER = [[458, 1, 2, 3, 8, 9, 1, 5, 5], [458, 1, 2, 3, 8, 4], [458, 7, 7, 7], [458, 1, 2, 3, 458]]
CONTEXT = 2048
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LanguageModel, Any]]:
    path = tmp_path_factory.mktemp("scoring") / "it.gguf"
    network = tiny_gguf(path, max_position_embeddings=CONTEXT)
    file = read_gguf(path)
    language = open_language(file, language_config(file), threads=1)
    yield language, network
    language.close()


def scorer_of(language: LanguageModel, room: int = 1024) -> SequenceScorer:
    return SequenceScorer(language.model, language.config.vocabulary, {"threads": 1}, room)


def check(scores: Sequence[np.ndarray], network: Any, rows: Sequence[Sequence[int]]) -> None:
    for values, row in zip(scores, rows, strict=True):
        with torch.inference_mode():
            logprobs = network(torch.tensor([row])).logits[0].double().log_softmax(-1)
        expected = [float(logprobs[place, token]) for place, token in enumerate(row[1:])]
        assert values.dtype == np.float64
        np.testing.assert_allclose(values, expected, rtol=0, atol=TOLERANCE)


def test_token_logprobs_equal_transformers_and_prefixes_are_computed_once(pair: tuple[LanguageModel, Any]) -> None:
    language, network = pair
    scorer = scorer_of(language)
    check(scorer.score(ROWS), network, ROWS)
    nodes = {tuple(row[:end]) for row in ROWS for end in range(1, len(row))}
    assert (scorer.passes, scorer.positions) == (1, len(nodes))
    check(scorer.score(LATER), network, LATER)
    # Two prefixes after the first row and one after the third are new. 458 1 2 3 8 9 and 458 7 are computed again, as
    # their last distributions are not stored, and so is 458 1 2 3 8 for the second row.
    assert scorer.passes == 2 and scorer.positions - len(nodes) <= 2 + 1 + 4
    before = scorer.positions
    check(scorer.score([*ROWS, *LATER]), network, [*ROWS, *LATER])
    assert scorer.positions == before
    check(language.score(ROWS), network, ROWS)
    scorer.close()


@given(
    calls=st.lists(
        st.lists(st.lists(st.integers(0, 2), min_size=2, max_size=7), min_size=1, max_size=12), min_size=1, max_size=6
    ),
    room=st.sampled_from([16, 40, 1024]),
)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_consecutive_scoring_calls_equal_transformers(
    pair: tuple[LanguageModel, Any], calls: list[list[list[int]]], room: int
) -> None:
    language, network = pair
    scorer = scorer_of(language, room)
    for rows in calls:
        check(scorer.score(rows), network, rows)
    scorer.close()


def test_scoring_handles_many_rows_and_rows_beyond_the_context_room(pair: tuple[LanguageModel, Any]) -> None:
    language, network = pair
    scorer = scorer_of(language, 300)
    rng = np.random.default_rng(1)
    many = [[458, *rng.integers(0, 456, 3).tolist()] for _ in range(3 * SEQUENCES)]
    check(scorer.score(many), network, many)
    long = [[458, *rng.integers(0, 456, 700).tolist()]]
    check(scorer.score(long), network, long)
    assert scorer._context is not None and scorer._context.positions >= 701
    check(scorer.score(many[:5]), network, many[:5])
    assert scorer._context.positions < 701, "the context for one long text is freed"
    scorer.close()


def test_unknown_token_id_or_closed_model_raises_one_line_error(tmp_path: Path) -> None:
    path = tmp_path / "it.gguf"
    tiny_gguf(path)
    file = read_gguf(path)
    language = open_language(file, language_config(file), threads=1)
    for wrong in (512, -1):
        with pytest.raises(BadInput, match=r"^a text has ids from .*; expected 0 to 511, the vocabulary of it.gguf$"):
            language.score([[1, 2], [1, wrong]])
    assert len(language.score([[1, 2]])) == 1 and language.score([]) == []
    language.close()
    with pytest.raises(BadInput, match=r"^it\.gguf is closed; open it again"):
        language.score([[1, 3]])
