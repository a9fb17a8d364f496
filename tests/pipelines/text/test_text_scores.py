"""Log-probability scores of texts: begin token, tokens, end token, and texts that cannot be scored."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from workbench.core.errors import BadInput
from workbench.pipelines.text.text_scores import scored


def model(special: dict[str, int], stops: tuple[int, ...] = (), context: int = 8) -> Any:
    """A model with a token for each letter."""
    tokenizer = SimpleNamespace(encode_plain=lambda text: list(text.encode()), special_ids=special)
    return SimpleNamespace(
        tokenizer=tokenizer, language=SimpleNamespace(stop_ids=stops, context=context, directory=Path("folder/it"))
    )


class FakeScorer:
    """Returns the id of each token as its log-probability."""

    def __init__(self) -> None:
        self.rows: list[list[int]] = []

    def __call__(self, rows: Sequence[Sequence[int]]) -> list[np.ndarray]:
        self.rows += [list(row) for row in rows]
        return [np.array(row[1:], dtype=np.float64) for row in rows]


def test_text_is_scored_with_begin_and_end_tokens() -> None:
    scorer = FakeScorer()
    scores = scored(model({"bos": 1, "eos": 2}), ["ab", "", "ab"], True, scorer)
    assert scorer.rows == [[1, 97, 98, 2], [1, 2]]
    assert [score.ids.tolist() for score in scores] == [[97, 98], [], [97, 98]]
    assert [score.logprobs.tolist() for score in scores] == [[97, 98], [], [97, 98]]
    assert [score.end for score in scores] == [2, 2, 2] and [score.total for score in scores] == [197, 2, 197]
    assert all(score.ids.dtype == np.int64 and score.logprobs.dtype == np.float64 for score in scores)


def test_empty_text_without_an_end_token_needs_no_forward_pass() -> None:
    scorer = FakeScorer()
    scores = scored(model({"eos": 2}), ["", "a"], False, scorer)
    assert scorer.rows == [[2, 97]], "eos is the begin token if there is no bos"
    assert [(score.total, score.end) for score in scores] == [(0.0, None), (97.0, None)]
    assert scored(model({"eos": 2}), [], True, scorer) == [] and len(scorer.rows) == 1


def test_end_token_falls_back_to_the_configuration() -> None:
    scorer = FakeScorer()
    scored(model({}, (5, 6)), ["a"], True, scorer)
    assert scorer.rows == [[5, 97, 5]]
    with pytest.raises(BadInput, match=r"^it names no token that ends a text \(eos\); texts cannot be scored$"):
        scored(model({}), ["a"], True, scorer)


def test_text_longer_than_the_context_is_refused() -> None:
    assert len(scored(model({"eos": 2}), ["abcdefg"], True, FakeScorer())[0].ids) == 7
    with pytest.raises(BadInput, match=r"^the text 'abcdefgh'\.\.\. has 8 tokens; expected at most 7, which the"):
        scored(model({"eos": 2}), ["a", "abcdefgh"], False, FakeScorer())
