"""Counts and lists in sentences."""

from __future__ import annotations

import pytest

from workbench.core.phrases import counted, enumerated


def test_one_is_in_the_singular() -> None:
    assert [counted(number, "stage") for number in (0, 1, 2)] == ["0 stages", "1 stage", "2 stages"]


@pytest.mark.parametrize(("parts", "said"), [(["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")])
def test_lists_end_with_and(parts: list[str], said: str) -> None:
    assert enumerated(parts) == said
