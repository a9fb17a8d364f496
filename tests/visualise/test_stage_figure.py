"""Figures of a trace stage and of a plain array."""

from __future__ import annotations

import io

import numpy as np
import pytest
from matplotlib.figure import Figure

from workbench.trace.trace import Trace
from workbench.visualise.stage_figure import stage_figure


def saved(figure: Figure) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format="svg")
    return content.getvalue()


@pytest.mark.parametrize("shape", [(12,), (12, 5), (4, 12, 12)])
def test_stage_figure_is_drawn_for_a_trace_stage_and_an_array(shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).random(shape)
    trace = Trace({"encoder.x": array}, {"row_seconds": {"encoder.*": [-0.12, 0.06]}, "audio_seconds": 0.6})
    assert b"<!-- seconds -->" in saved(stage_figure(trace, "encoder.x")) and b"<!-- seconds -->" not in saved(
        stage_figure(array)
    )
    with pytest.raises(KeyError):
        stage_figure(trace, "encoder.y")
    with pytest.raises(ValueError, match="expected numbers in rows"):
        stage_figure(np.array("text"))


def test_queries_are_drawn_as_one_image_of_channels_over_rows_for_each_head() -> None:
    queries = np.random.default_rng(0).random((12, 3, 5))  # rows, heads, channels
    trace = Trace({"encoder.layers.0.attention.query": queries}, {"row_seconds": {"encoder.*": [0.0, 0.06]}})
    *heads, _ = stage_figure(trace, "encoder.layers.0.attention.query").axes  # the last is the scale
    assert len(heads) == 3 and heads[0].get_ylabel() == "channel" and heads[0].get_xlim()[1] == pytest.approx(12 * 0.06)
    np.testing.assert_array_equal(heads[1].images[0].get_array(), queries[:, 1].T)
