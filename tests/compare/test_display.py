"""HTML and repr of a comparison in a notebook."""

from __future__ import annotations

import numpy as np

from tests.support.html_fragments import HOSTILE, checked, text_of
from tests.support.networks import computed
from workbench.compare import compare, judge
from workbench.trace.trace import Trace


def faulty_trace() -> Trace:
    return computed(faults={"encoder.layers.1": lambda x: x * 1.5})


def test_clean_comparison_is_displayed_as_within() -> None:
    comparison = compare(computed(), computed())
    text = text_of(comparison._repr_html_())
    assert "✓ within" in text and "Identical" in text and "✗" not in text
    assert repr(comparison) == f"<Comparison of {len(comparison.stages)} stages: all within tolerance f32>"


def test_faulty_comparison_displays_the_first_stage_beyond_tolerance() -> None:
    comparison = compare(computed(), faulty_trace())
    text = text_of(comparison._repr_html_())
    assert "✗ beyond" in text and all(each in text for each in judge(comparison).sentences)
    assert "first encoder.layers.1 tolerance f32" in repr(comparison)
    assert "encoder.layers.1" in text_of(judge(comparison)._repr_html_())


def test_stage_names_and_texts_are_escaped_in_html() -> None:
    one, other = (
        {HOSTILE.replace("\x00", "").replace("\x1b", ""): np.ones((2, 3)), "text": np.array(text)}
        for text in ("a", HOSTILE)
    )
    checked(compare(Trace(one, {"model": HOSTILE}), Trace(other, {"runtime": HOSTILE}))._repr_html_())


def test_non_finite_values_are_displayed_as_beyond_tolerance() -> None:
    one, other = (Trace({"encoder.output": np.array([[1.0, value]])}, {}) for value in (1.0, np.nan))
    assert "✗" in text_of(compare(one, other)._repr_html_())
