"""Counts and lists in sentences."""

from __future__ import annotations

import pytest

from workbench.core.phrases import counted, enumerated, numbers_below


def test_counted_uses_the_singular_for_one_only() -> None:
    assert [counted(number, "stage") for number in (0, 1, 2)] == ["0 stages", "1 stage", "2 stages"]


def test_numbers_below_one_is_the_only_number() -> None:
    assert [numbers_below(count) for count in (1, 2, 7)] == ["0", "0 to 1", "0 to 6"]


@pytest.mark.parametrize(("parts", "said"), [(["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")])
def test_enumerated_joins_the_last_item_with_and(parts: list[str], said: str) -> None:
    assert enumerated(parts) == said
