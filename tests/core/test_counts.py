"""Counts in sentences."""

from __future__ import annotations

from workbench.core.counts import counted


def test_one_is_in_the_singular() -> None:
    assert [counted(number, "stage") for number in (0, 1, 2)] == ["0 stages", "1 stage", "2 stages"]
