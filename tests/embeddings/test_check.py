"""Embeddings that a model cannot accept raise errors with the given and the expected values."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.core.errors import BadInput
from workbench.embeddings import Embedding, check_embeddings, embedding_of


def embedding(tokens: int, hidden: int, name: str) -> Embedding:
    return embedding_of(np.zeros((tokens, hidden), np.float16), name)


def refusal(embeddings: list[Embedding], hidden: int, room: int) -> str:
    with pytest.raises(BadInput) as caught:
        check_embeddings(embeddings, hidden, room, "demo/qwen3")
    return str(caught.value)


def test_embeddings_of_the_right_width_and_length_are_accepted() -> None:
    check_embeddings([], 256, 0, "demo/qwen3")
    check_embeddings([embedding(3, 256, "a"), embedding(4, 256, "b")], 256, 7, "demo/qwen3")


def test_wrong_embedding_width_is_reported() -> None:
    valid, narrow = embedding(3, 256, "a.npy"), embedding(4, 64, "b.npy")
    assert refusal([narrow], 256, 99) == (
        "the embedding b.npy is 64 wide, its shape is (4, 64); demo/qwen3 expects vectors of 256"
    )
    assert refusal([valid, narrow], 256, 99).startswith("embedding 2 of 2 (b.npy) is 64 wide")


def test_embedding_without_a_name_is_reported_by_its_number() -> None:
    valid, narrow = embedding(3, 256, "embedding 1"), embedding(4, 64, "embedding 2")
    assert refusal([embedding(4, 64, "embedding 1")], 256, 99).startswith("the embedding is 64 wide")
    assert refusal([valid, narrow], 256, 99).startswith("embedding 2 of 2 is 64 wide")


def test_too_many_embedding_tokens_are_reported_with_their_count() -> None:
    first, second = embedding(3, 256, "a.npy"), embedding(4, 256, "b.npy")
    assert refusal([first], 256, 2) == (
        "the embedding a.npy is 3 tokens long; the context of demo/qwen3 has room for 2 "
        "beside the text and max_new_tokens"
    )
    assert refusal([first, second], 256, -1) == (
        "the 2 embeddings are 3 + 4 = 7 tokens long; the context of demo/qwen3 has room for 0 "
        "beside the text and max_new_tokens"
    )
