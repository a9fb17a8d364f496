"""Log-probability scores of texts: begin token, tokens, end token, and texts that cannot be scored."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from workbench.core.errors import BadInput
from workbench.pipelines.text_scores import scored


def model(special: dict[str, int], stops: tuple[int, ...] = (), context: int = 8) -> Any:
    """A model with a token for each letter."""
    tokenizer = SimpleNamespace(plain_ids=lambda text: list(text.encode()), special_ids=special)
    return SimpleNamespace(
        tokenizer=tokenizer, language=SimpleNamespace(stop_ids=stops, context=context, directory=Path("folder/it"))
    )


class Rows:
    """Gives each token its own number as its log-probability."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []

    def __call__(self, rows: Sequence[Sequence[int]]) -> list[np.ndarray]:
        self.asked += [list(row) for row in rows]
        return [np.array(row[1:], dtype=np.float64) for row in rows]


def test_text_is_scored_with_begin_and_end_tokens() -> None:
    rows = Rows()
    found = scored(model({"bos": 1, "eos": 2}), ["ab", "", "ab"], True, rows)
    assert rows.asked == [[1, 97, 98, 2], [1, 2]]
    assert [each.ids.tolist() for each in found] == [[97, 98], [], [97, 98]]
    assert [each.logprobs.tolist() for each in found] == [[97, 98], [], [97, 98]]
    assert [each.end for each in found] == [2, 2, 2] and [each.total for each in found] == [197, 2, 197]
    assert all(each.ids.dtype == np.int64 and each.logprobs.dtype == np.float64 for each in found)


def test_empty_text_without_an_end_token_needs_no_forward_pass() -> None:
    rows = Rows()
    found = scored(model({"eos": 2}), ["", "a"], False, rows)
    assert rows.asked == [[2, 97]], "eos begins where there is no bos"
    assert [(each.total, each.end) for each in found] == [(0.0, None), (97.0, None)]
    assert scored(model({"eos": 2}), [], True, rows) == [] and len(rows.asked) == 1


def test_end_token_falls_back_to_the_configuration() -> None:
    rows = Rows()
    scored(model({}, (5, 6)), ["a"], True, rows)
    assert rows.asked == [[5, 97, 5]]
    with pytest.raises(BadInput, match=r"^it names no token that ends a text \(eos\); texts cannot be scored$"):
        scored(model({}), ["a"], True, rows)


def test_text_longer_than_the_context_is_refused() -> None:
    assert len(scored(model({"eos": 2}), ["abcdefg"], True, Rows())[0].ids) == 7
    with pytest.raises(BadInput, match=r"^the text 'abcdefgh'\.\.\. has 8 tokens; expected at most 7, which the"):
        scored(model({"eos": 2}), ["a", "abcdefgh"], False, Rows())
