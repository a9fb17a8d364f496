"""The functions that guesses try have their published values, and long lists of places are cut."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.compare.guesses.functions import ACTIVATIONS
from workbench.compare.guesses.guess import in_order, listed


@pytest.mark.parametrize(
    "name, at_minus_one, at_one",
    [
        ("SiLU", -0.268941, 0.731059),
        ("GELU", -0.158655, 0.841345),
        ("GELU by tanh", -0.158808, 0.841192),
        ("GELU by a sigmoid", -0.154204, 0.845796),
        ("ReLU", 0, 1),
        ("squared ReLU", 0, 1),
        ("the identity", -1, 1),
        ("sigmoid", 0.268941, 0.731059),
        ("tanh", -0.761594, 0.761594),
        ("mish", -0.303401, 0.865098),
        ("softplus", 0.313262, 1.313262),
        ("ELU", -0.632121, 1),
        ("hard swish", -1 / 3, 2 / 3),
        ("leaky ReLU", -0.01, 1),
    ],
)
def test_activations_equal_published_values(name: str, at_minus_one: float, at_one: float) -> None:
    values = ACTIVATIONS[name](np.array([-1.0, 1.0]))
    assert values == pytest.approx([at_minus_one, at_one], abs=1e-6)


def test_lists_of_places_are_shortened() -> None:
    assert listed(np.array([3, 9, 10])) == "3, 9, 10"
    assert listed(np.arange(4, 13)) == "4 to 12"
    assert in_order(np.array([5, 1, 9, 2, 7, 0, 3, 8])) == "5, 1, 9, 2, 7, 0, 3, 8"
    assert in_order(np.array([5, 1, 9, 2, 7, 0, 3, 8, 4, 6])) == "5, 1, 9, 2, 7, 0, 3, 8 and 2 more"
