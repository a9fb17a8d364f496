"""Checks of a request before it reaches an engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.core.errors import BadInput
from workbench.runtimes.vllm.requests.request import Limits, Request, check_request

LIMITS = Limits(hidden_size=4, vocabulary=10, max_length=12)
SOUND = np.zeros(1600, np.float32)


def rows(count: int, width: int = 4) -> np.ndarray:
    return np.ones((count, width), np.float32)


@given(
    ids=st.lists(st.integers(0, 9), min_size=1, max_size=14),
    sound=st.integers(0, 14),
)
def test_request_is_accepted_only_if_it_leaves_room_for_one_token(ids: list[int], sound: int) -> None:
    request = Request(ids, SOUND, sound) if sound else Request(ids)
    positions = len(ids) - bool(sound) + sound  # the positions of the sound replace its token
    assert request.positions == positions
    if positions < LIMITS.max_length:
        check_request(request, LIMITS)
    else:
        with pytest.raises(BadInput, match="larger max_length"):
            check_request(request, LIMITS)


def test_embeddings_mixed_with_token_ids_are_accepted() -> None:
    mixed = rows(3)
    mixed[0] = np.nan  # the row of a token id is not used
    check_request(Request([1, 0, 0], embeddings=mixed, is_embedding=np.array([False, True, True])), LIMITS)
    check_request(Request([0, 0], embeddings=rows(2).astype(np.float16)), LIMITS)


@pytest.mark.parametrize(
    ("request_of", "sentence"),
    [
        ({"ids": []}, "the prompt is empty"),
        ({"ids": [10]}, "token 10; expected numbers from 0 to 9"),
        ({"ids": [-1]}, "token -1"),
        ({"ids": [1], "audio": np.zeros((2, 3), np.float32), "audio_tokens": 1}, r"shape \(2, 3\); expected mono"),
        ({"ids": [1], "audio": SOUND[:0], "audio_tokens": 1}, "expected mono samples"),
        ({"ids": [1], "audio": np.full(9, np.nan, np.float32), "audio_tokens": 1}, "not finite"),
        ({"ids": [1], "audio": SOUND, "audio_tokens": 0}, "too short"),
        ({"ids": [1], "audio": SOUND, "audio_tokens": 1, "embeddings": rows(1)}, "sound and embeddings"),
        ({"ids": [1, 2], "embeddings": rows(2, 5)}, r"shape \(2, 5\); expected \(2, 4\)"),
        ({"ids": [1, 2], "embeddings": rows(3)}, r"shape \(3, 4\); expected \(2, 4\)"),
        ({"ids": [1], "embeddings": rows(1)[None]}, r"shape \(1, 1, 4\)"),
        ({"ids": [1], "embeddings": np.ones((1, 4), np.int8)}, "hold int8"),
        ({"ids": [1, 1], "embeddings": np.array([[1.0] * 4, [1, np.inf, 1, 1]])}, "row 1 of the embeddings"),
        ({"ids": [1], "is_embedding": np.array([True])}, "positions of embeddings and no embeddings"),
        ({"ids": [1], "embeddings": rows(1), "is_embedding": np.array([1])}, "expected a truth value"),
        ({"ids": [1], "embeddings": rows(1), "is_embedding": np.array([True, False])}, "each of the 1 positions"),
    ],
)
def test_invalid_request_raises_an_error_with_found_and_expected_values(
    request_of: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(BadInput, match=sentence):
        check_request(Request(**request_of), LIMITS)


def test_audio_for_a_text_only_model_is_refused() -> None:
    with pytest.raises(BadInput, match="the request has sound, and the model takes text alone"):
        check_request(Request([1], SOUND, 1), Limits(4, 10, 12, accepts_audio=False))
