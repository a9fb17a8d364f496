"""Telephone numbers of an invented country: a grammar from which a language model can learn something.

A number is 0, an area code of 3 digits, an exchange of 3 digits in that area, and a line of 3 digits. There are few
areas and exchanges, and some are much larger than others, so that the first 7 digits of a number are far from random.
This file knows no sounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from workbench.training.data.digits import words_of

AREAS = 12
EXCHANGES = 5  # of an area
LINES = 1000  # of an exchange
SEED = 18


@dataclass(frozen=True)
class NumberingPlan:
    """The areas with their exchanges, each code in digits."""

    areas: tuple[tuple[int, ...], ...]
    exchanges: tuple[tuple[tuple[int, ...], ...], ...]  # of each area
    shares: tuple[float, ...]  # of the areas in all numbers; the exchanges of an area are equally frequent

    def draw(self, rng: np.random.Generator) -> tuple[int, ...]:
        """Returns the digits of a number."""
        area = int(rng.choice(len(self.areas), p=self.shares))
        exchange = self.exchanges[area][int(rng.integers(len(self.exchanges[area])))]
        return (0, *self.areas[area], *exchange, *_digits(int(rng.integers(LINES))))


def found_numbering_plan() -> NumberingPlan:
    """Returns the plan, always the same."""
    rng = np.random.default_rng(SEED)
    areas = tuple(_digits(int(code)) for code in rng.choice(np.arange(100, 1000), AREAS, replace=False))
    exchanges = tuple(
        tuple(_digits(int(code)) for code in rng.choice(np.arange(200, 1000), EXCHANGES, replace=False)) for _ in areas
    )
    shares = 1 / np.arange(1.0, AREAS + 1)
    return NumberingPlan(areas, exchanges, tuple((shares / shares.sum()).tolist()))


def draw_numbers(plan: NumberingPlan, count: int, seed: int) -> list[tuple[int, ...]]:
    """Returns the digits of `count` numbers; the same seed gives the same numbers."""
    rng = np.random.default_rng([SEED, seed])
    return [plan.draw(rng) for _ in range(count)]


def sentences_of(numbers: Sequence[Sequence[int]]) -> list[str]:
    """Returns the numbers as sentences of spoken words."""
    return [words_of(number) for number in numbers]


def _digits(code: int) -> tuple[int, ...]:
    return tuple(int(digit) for digit in f"{code:03d}")
