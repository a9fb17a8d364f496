"""Rotary positions whose rates are scaled for contexts longer than the trained one, as published models have them.

Sources: Peng et al., "YaRN: Efficient Context Window Extension of Large Language Models", ICLR 2024, with the values of
Qwen's model cards; and the scaling of Llama 3.1 and 3.2, which transformers calls `llama3`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np


class Scaled(NamedTuple):
    """The rates of pairs of channels, in radians a position, and a factor of what is turned."""

    rates: np.ndarray
    factor: float = 1.0


class Scaling(NamedTuple):
    """How a family of models scales rotary positions."""

    base: float  # that its models have
    scaled: Callable[[np.ndarray], Scaled]  # takes the rates of that base, [pairs]


def _llama3(rates: np.ndarray, factor: float) -> Scaled:
    """Returns the rates with those of slow pairs divided by `factor`.

    Fast pairs keep their rates, and the rates of the pairs between lie between.
    """
    least, most, trained = 1.0, 4.0, 8192
    turns = trained * rates / (2 * math.pi)  # in the context of the training
    share = np.clip((turns - least) / (most - least), 0.0, 1.0)
    return Scaled(rates * (share + (1 - share) / factor))


def _yarn(rates: np.ndarray, base: float, factor: float) -> Scaled:
    """Returns the same with a linear ramp from the fast to the slow pairs, and a factor above 1."""
    least, most, trained = 1, 32, 32768
    width = 2 * len(rates)

    def pair_with(turns: float) -> float:
        return width * math.log(trained / (2 * math.pi * turns)) / (2 * math.log(base))

    first, last = max(math.floor(pair_with(most)), 0), min(math.ceil(pair_with(least)), width - 1)
    share = 1 - np.clip((np.arange(len(rates)) - first) / max(last - first, 1e-3), 0.0, 1.0)
    return Scaled(rates * (share + (1 - share) / factor), 0.1 * math.log(factor) + 1)


SCALINGS: Mapping[str, Scaling] = {
    "as in Llama 3.1": Scaling(5e5, lambda rates: _llama3(rates, 8.0)),
    "as in Llama 3.2": Scaling(5e5, lambda rates: _llama3(rates, 32.0)),
    "by YaRN with the factor 4": Scaling(1e6, lambda rates: _yarn(rates, 1e6, 4.0)),
}
"""The keys complete the sentence "The positions are scaled ..."."""
