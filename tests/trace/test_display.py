"""HTML and repr of a trace in a notebook."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.html_fragments import HOSTILE, checked, text_of
from workbench.trace import display
from workbench.trace.read import read_trace
from workbench.trace.trace import Trace


def trace() -> Trace:
    rng = np.random.default_rng(0)
    stages = {
        "frontend.fbank": rng.standard_normal((30, 80), dtype=np.float32),
        "encoder.layers.0": rng.standard_normal((5, 16), dtype=np.float32),
        "encoder.output": np.full((5, 16), np.nan, dtype=np.float32),
        "predictor.alphas": np.linspace(0, 1, 5, dtype=np.float32),
        "logits": np.zeros((0, 7), dtype=np.float32),
        "tokens": np.array([3, 1, 2]),
        "text": np.array(HOSTILE),
    }
    return Trace(
        stages, {"model": HOSTILE, "runtime": "pytorch", "dtype": "float32", "input_digest": "0123456789abcdef"}
    )


def test_stages_are_listed_with_shapes_and_values() -> None:
    html = trace()._repr_html_()
    text = text_of(html)
    for part in ("7 stages", "30 × 80", "not finite", "0123456789ab", "alert(1)", "frontend.fbank"):
        assert part in text
    assert len(list(checked(html).iter("img"))) == 2  # the filter bank and the encoder's output


def test_stored_trace_has_the_same_html(tmp_path: Path) -> None:
    path = trace().save(tmp_path / "t.safetensors")
    assert read_trace(path)._repr_html_() == trace()._repr_html_()  # type: ignore[operator]


def test_large_stages_are_listed_without_reading_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "MAX_READ", 9000)
    text = text_of(trace()._repr_html_())
    assert text.count("not read") == 1  # the filter bank has 9,600 bytes


def test_empty_traces_and_traces_without_metadata_have_html() -> None:
    assert "Trace by" not in text_of(Trace({"a": np.zeros(3)}, {})._repr_html_())
    assert "Trace by m on r" in text_of(Trace({}, {"model": "m", "runtime": "r"})._repr_html_())
    assert "Trace by r" in text_of(Trace({}, {"runtime": "r"})._repr_html_())
    assert "0 stages" in text_of(Trace({}, {})._repr_html_())


def test_the_repr_of_many_stages_is_short() -> None:
    many = Trace({f"encoder.layers.{n}": np.zeros((2, 3)) for n in range(70)}, {"model": "m", "runtime": "r"})
    text = repr(many)
    assert "... 58 more ..." in text and "encoder.layers.0 2×3" in text and "encoder.layers.69 2×3" in text
    assert len(text) < 500
