"""Explanations of a candidate whose weights are those of a quantised file."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.support.networks import computed
from workbench.compare import compare, judge
from workbench.compare.explain import with_hints
from workbench.compare.guesses.guess import Hint
from workbench.compare.noise.spread import Clean, noise_by_spread
from workbench.trace.trace import Trace


def test_fault_is_explained_beside_the_rounding_of_quantised_weights() -> None:
    """A hint predicts from the checkpoint's weights; those of the file move every stage."""
    stage = "encoder.layers.3"
    reference = computed()
    exact = Trace(computed("q8_0"), reference.meta | {"dtype": "float64"})
    spread = Clean([computed("q8_0", reverse=True)], exact, "q8_0", same_weights=True)

    def explained(fault: Callable[[np.ndarray], np.ndarray], same_weights: Trace | None = None) -> Hint | None:
        candidate = computed("q8_0", faults={stage: fault})
        noise = noise_by_spread(reference, candidate, spread)
        assert noise.first_bug and noise.first_bug.stage == stage and noise.first_bug.bound < 1e-4
        comparison = compare(reference, candidate)
        comparison = with_hints(comparison, noise, reference, candidate, same_weights=same_weights)
        return judge(comparison, noise).explanation

    hint = explained(lambda x: x[::-1])
    assert hint is not None and hint.kind == "rows reversed" and 1e-3 < hint.remaining < 0.1
    assert explained(lambda x: 1.02 * x) is None, "2 % is too small beside the weights"
    hint = explained(lambda x: 1.02 * x, exact)
    assert hint is not None and hint.sentence.startswith("it is 1.02 times the reference") and hint.remaining < 1e-4
    draw = np.random.default_rng(0)
    for same_weights in (None, exact):
        assert explained(lambda x: x + 0.3 * draw.standard_normal(x.shape), same_weights) is None
