"""Comparison of token sequences and texts: alignment, error rates and accepted array types."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.compare.tokens.discrete import Edit, as_text, as_tokens, explain_tokens, measure_text, measure_tokens
from workbench.core.errors import BadInput

IDS = st.lists(st.integers(0, 4), max_size=12)


def distance(one: list[int], other: list[int]) -> int:
    """Returns the Levenshtein distance by its definition."""
    row = list(range(len(other) + 1))
    for n, a in enumerate(one, 1):
        last, row[0] = row[0], n
        for m, b in enumerate(other, 1):
            last, row[m] = row[m], min(row[m] + 1, row[m - 1] + 1, last + (a != b))
    return row[-1]


@pytest.mark.parametrize(
    ("candidate", "sentence"),
    [
        ([5, 6, 7, 8], None),
        ([1, 5, 6, 7, 8], "at place 0, and nowhere else, the candidate puts in 1"),
        ([5, 6, 7], "at place 3, and nowhere else, the candidate leaves out 8"),
        ([5, 2, 3, 7, 8], "at place 1, and nowhere else, the candidate has 2 3 for 6"),
        ([5, 6, 7, 7, 8], "at place 3, and nowhere else, the candidate puts in 7"),
        ([], "at place 0, and nowhere else, the candidate leaves out 5 6 7 8"),
        ([5, *range(10, 20)], "the ids differ from place 1 on, 6 and 10"),
        ([5, 6, 7, 8, *range(10, 20)], "the ids differ from place 4 on, the end and 10"),
    ],
)
def test_place_and_kind_of_a_token_difference_are_named(candidate: list[int], sentence: str | None) -> None:
    assert explain_tokens(np.array([5, 6, 7, 8]), np.array(candidate, int)) == sentence


@given(IDS, IDS)
def test_tokens_are_aligned_with_the_fewest_edits(one: list[int], other: list[int]) -> None:
    measures = measure_tokens(np.array(one, int), np.array(other, int))
    assert measures.errors == distance(one, other)
    assert measures.error_rate == pytest.approx(measures.errors / max(len(one) or len(other), 1))
    first = next((n for n, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))
    assert measures.first_difference == (None if one == other else first)
    assert (measures.reference_length, measures.candidate_length) == (len(one), len(other))
    reference = [int(token) for edit in measures.edits for token in edit.reference.split()]
    candidate = [int(token) for edit in measures.edits for token in edit.candidate.split()]
    assert reference == one and candidate == other, "the script makes one of the other"


def test_text_comparison_reports_wer_and_cer_and_is_case_sensitive() -> None:
    measures = measure_text("three seven one", "Three seven one")
    assert (measures.unit, measures.errors, measures.wer) == ("WER", 1, pytest.approx(1 / 3))
    assert measures.cer == pytest.approx(1 / 15) and measures.first_difference == 0
    assert measures.edits[0] == Edit("substitute", "three", "Three")
    assert measure_text("三七一", "三七").cer == pytest.approx(1 / 3)
    same = measure_text("one", "one")
    assert same.first_difference is None and same.error_rate == 0
    assert measure_text("one  two", "one two").first_difference == 4, "white space is no word, but a difference"
    assert measure_text("", "one").error_rate == 1 and measure_text("", "").error_rate == 0


@pytest.mark.parametrize("array", [np.array([1.0, 2.0], np.float32), np.array([[1, 2]], np.uint16)])
def test_float_and_2d_arrays_are_read_as_token_ids(array: np.ndarray) -> None:
    assert as_tokens("tokens", array).tolist() == [1, 2]


@pytest.mark.parametrize("array", [np.array([1.5]), np.array([np.nan]), np.array(["1"]), np.array([1j])])
def test_arrays_without_whole_numbers_are_refused_as_token_ids(array: np.ndarray) -> None:
    with pytest.raises(BadInput, match=r"^stage tokens holds .* expected whole numbers$"):
        as_tokens("tokens", array)


@pytest.mark.parametrize(
    "array", [np.array([3, 2**64 - 1], np.uint64), np.array([3, 1e30]), np.array([3, -(2.0**63) * 2])]
)
def test_ids_beyond_64_bits_are_refused(array: np.ndarray) -> None:
    with pytest.raises(BadInput, match=r"^stage tokens holds the numbers .*, not token ids; expected numbers of"):
        as_tokens("tokens", array)
    assert as_tokens("tokens", np.array([-(2.0**63), 2.0**62])).tolist() == [-(2**63), 2**62]
    assert as_tokens("tokens", np.array([2**63 - 1], np.uint64)).tolist() == [2**63 - 1]


@pytest.mark.parametrize(
    "array", [np.array("七 a"), np.array([b"\xe4\xb8\x83 a"]), np.frombuffer("七 a".encode(), np.uint8)]
)
def test_text_is_read_from_a_string_or_utf8_bytes(array: np.ndarray) -> None:
    assert as_text("text", array) == "七 a"


@pytest.mark.parametrize("array", [np.array(1.0), np.array(["a", "b"]), np.array([1, 2])])
def test_arrays_without_one_string_are_refused_as_text(array: np.ndarray) -> None:
    with pytest.raises(BadInput, match=r"^stage text holds .* expected one string or bytes of UTF-8$"):
        as_text("text", array)
