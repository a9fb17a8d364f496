"""Agreement between two lists of most likely tokens."""

from __future__ import annotations

import math

import pytest

from workbench.decoding.agreement import agreement
from workbench.session.values import Alternative


def alternatives(*tokens: tuple[int, str, float]) -> list[Alternative]:
    return [Alternative(number, text, math.log(share)) for number, text, share in tokens]


def test_agreement_counts_shared_tokens_and_probability_difference() -> None:
    one = alternatives((1, "a", 0.6), (2, "b", 0.3), (3, "c", 0.1))
    other = alternatives((1, "a", 0.5), (3, "c", 0.2))
    shares = agreement(one, other)
    assert (shares.same, shares.shared, shares.of) == (True, 2, 2)
    assert shares.difference == pytest.approx(0.1)


def test_identical_lists_agree_completely() -> None:
    one = alternatives((1, "a", 0.6), (2, "b", 0.4))
    shares = agreement(one, one)
    assert shares.same and (shares.shared, shares.of, shares.difference) == (2, 2, 0.0)


def test_lists_without_shared_tokens_have_the_maximum_difference() -> None:
    shares = agreement(alternatives((1, "a", 0.6)), alternatives((2, "b", 0.6)))
    assert not shares.same and shares.shared == 0 and shares.difference == 1.0


def test_tokens_without_ids_are_matched_by_text() -> None:
    shares = agreement(alternatives((-1, "a", 0.6), (-1, "b", 0.2)), alternatives((1, "a", 0.6)))
    assert shares.same and shares.shared == 1


def test_an_empty_list_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        agreement([], alternatives((1, "a", 1.0)))
