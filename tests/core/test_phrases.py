"""Counts and lists in sentences."""

from __future__ import annotations

import pytest

from workbench.core.phrases import as_sentence, counted, enumerated, numbers_below


def test_counted_uses_the_singular_for_one_only() -> None:
    assert [counted(number, "stage") for number in (0, 1, 2)] == ["0 stages", "1 stage", "2 stages"]


def test_numbers_below_one_is_the_only_number() -> None:
    assert [numbers_below(count) for count in (1, 2, 7)] == ["0", "0 to 1", "0 to 6"]


@pytest.mark.parametrize(("parts", "said"), [(["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")])
def test_enumerated_joins_the_last_item_with_and(parts: list[str], said: str) -> None:
    assert enumerated(parts) == said


def test_sentence_keeps_the_name_of_a_stage_at_its_beginning() -> None:
    assert as_sentence("frontend.features is in it without the factor 4") == (
        "frontend.features is in it without the factor 4."
    )
    assert as_sentence("rows 1, 2 hold others. They differ") == "Rows 1, 2 hold others. They differ."
    assert as_sentence("e") == "E." and as_sentence("") == "."
