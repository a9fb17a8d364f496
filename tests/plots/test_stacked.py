"""Figures of stacked layers: every layer kind, long and short arrays, unusual labels, and file size."""

from __future__ import annotations

import io
import warnings
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib import rc_context
from matplotlib.figure import Figure

from workbench.plots.layers import Axis, Layer, Scale, diverging_scale, scale_of
from workbench.plots.stacked import layers_figure, panels_of

SECONDS, ROWS = Axis("seconds", "seconds", -0.24, 0.06), Axis("row", "rows")
WORDS = Axis("token", "tokens", ticks=("three", "$7$", "三", "\u0000\U000f0000"), down=True)
DRAWN = np.random.default_rng(0)


def saved(figure: Figure, kind: str = "svg") -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        content = io.BytesIO()
        with rc_context({"svg.fonttype": "none"}):
            figure.savefig(content, format=kind)
    return content.getvalue()


KINDS = [
    Layer("a", "image", "an image", DRAWN.random((4, 30)), SECONDS, WORDS, scale=Scale("probability", 0, 1)),
    Layer("b", "image", "small images", DRAWN.random((5, 6, 6)), ROWS, ROWS, ("one", "two"), scale=Scale("x", 0, 1)),
    Layer("c", "lines", "lines $x$", DRAWN.random((3, 30)), SECONDS, ROWS, ("left", "middle", "right")),
    Layer("d", "band", "band", np.stack([-DRAWN.random(50), DRAWN.random(50)]), SECONDS),
    Layer("e", "bars", "bars", DRAWN.random(30), SECONDS),
    Layer("f", "marks", "marks", np.array([0.1, 0.4]), SECONDS, labels=("here",)),
    Layer("g", "spans", "spans", np.array([[0.0, 0.4], [0.5, 1.0]]), SECONDS, labels=("ein", "zwei")),
    Layer("h", "points", "points", DRAWN.normal(size=(9, 2)), ROWS, ROWS, labels=("near",)),
    Layer(
        "i", "table", "table", DRAWN.random((2, 3)), ROWS, ROWS, tuple("abcdef"), diverging_scale("d", DRAWN.random(6))
    ),
]


@pytest.mark.parametrize("layer", KINDS, ids=lambda layer: layer.kind)
def test_every_layer_kind_is_drawn_alone_as_overlay_and_with_nan_values(layer: Layer) -> None:
    over = [Layer("path", "points", "", np.array([[0.0, 0.5], [1.0, 1.5]]), SECONDS, over=True)]
    figure = layers_figure([layer, *(over if layer.kind == "image" and layer.values.ndim == 2 else ())], seconds=1.8)
    assert saved(figure) and saved(figure, "png").startswith(b"\x89PNG")
    wrong = np.full_like(layer.values, np.nan)
    if layer.kind not in ("marks", "spans", "points", "band"):
        assert saved(
            layers_figure([Layer(layer.name, layer.kind, "nothing", wrong, layer.x, layer.y, layer.labels)], 1.0)
        )


@pytest.mark.parametrize(
    "name", ["energy $\\frac{a}$", "a $b$ c_{", "注意力", "🙂\n\t", "\x00\u202e<b>&", "\ud800", " "]
)
def test_names_of_axes_and_scales_are_drawn_as_they_stand(name: str) -> None:
    axis, scale = Axis(name, "seconds", 0.0, 0.1), Scale(name, 0, 1)
    one = Layer("a", "image", name, np.eye(3), axis, Axis(name), scale=scale)
    several = Layer("b", "image", name, np.zeros((5, 3, 3)), axis, Axis(name), (name,), scale)
    content = saved(layers_figure([one, several], title=name))
    shown = " ".join(ElementTree.fromstring(content).itertext())
    assert name != "energy $\\frac{a}$" or shown.count(name) >= 6
    assert saved(layers_figure([one, several]), "png")


def test_panels_group_a_base_layer_with_its_overlays() -> None:
    mark = Layer("mark", "marks", "", np.array([0.5]), SECONDS, over=True)
    panels = panels_of([KINDS[2], mark, KINDS[4]])
    assert [(panel.base.name, [each.name for each in panel.over]) for panel in panels] == [("c", ["mark"]), ("e", [])]
    with pytest.raises(ValueError, match="needs a layer"):
        layers_figure([])


def test_figure_of_one_hour_of_frames_is_smaller_than_3_mb() -> None:
    long = Layer(
        "long", "image", "an hour", DRAWN.random((80, 60_000), dtype=np.float32), Axis("s", "seconds", 0, 0.06)
    )
    assert len(saved(layers_figure([long]))) < 3_000_000


def test_colour_scales_cover_the_finite_values() -> None:
    values = np.array([np.nan, -1.0, 3.0, np.inf])
    assert scale_of("v", values) == Scale("v", -1.0, 3.0) and scale_of("v", np.zeros(3)) == Scale("v", 0.0, 1.0)
    assert diverging_scale("d", values[:3]) == Scale("d", -3.0, 3.0, diverging=True)
    assert diverging_scale("d", np.zeros(2)).high > 0 and scale_of("v", np.empty(0)) == Scale("v", 0.0, 1.0)
