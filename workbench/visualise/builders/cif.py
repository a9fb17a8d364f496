"""The view of continuous integrate-and-fire: weights, their running sum, and where tokens begin and end.

Dong and Xu, "CIF", ICASSP 2020. The function that computes the transcript's times also computes the borders, from the
same weights.
"""

from __future__ import annotations

import numpy as np

from workbench.decoding.cif import peaks
from workbench.families.sanm.paraformer import MARKERS, PEAK, token_times
from workbench.plots.layers import Axis, Layer
from workbench.visualise.options import ViewOptions
from workbench.visualise.scene import Scene
from workbench.visualise.view_content import SECONDS, ViewContent, token_spans

ALPHAS, FINE_ALPHAS = "predictor.alphas", "predictor.fine_alphas"


def cif(scene: Scene, options: ViewOptions) -> ViewContent:
    """Returns weights, running sum, integrator, fires and token borders."""
    alphas = scene.stage(ALPHAS, "the weights of a CIF predictor")
    ids = scene.stage("tokens")
    fine_alphas = scene.stages(FINE_ALPHAS).get(FINE_ALPHAS)
    words = [word for word in scene.texts(ids) if word not in MARKERS]
    tokens = scene.tokens()
    layers = _integration(alphas, scene.rows(ALPHAS), "", "")
    finest_axis = scene.rows(ALPHAS)
    if fine_alphas is not None:
        finest_axis = scene.rows(FINE_ALPHAS)
        layers += _integration(fine_alphas, finest_axis, "fine_", " of the finer head, which times the tokens")
    weights = alphas if fine_alphas is None else fine_alphas
    firing = token_times(weights, len(words), finest_axis.step, fine_alphas is not None) if words else None
    times = firing.times if firing else None
    notes = []
    if words and times is None:
        notes.append("the weights fire another number of times than there are tokens, so the tokens have no times")
    elif firing and not np.array_equal(firing.weights, weights):
        notes.append("for the token times, the weights were scaled so that they fire once for each token")
    borders = np.array(times or [], dtype=np.float64).reshape(-1, 2)
    marks = Layer(
        "borders", "spans", "tokens, from border to border", borders, SECONDS, labels=tuple(words[: len(borders)])
    )
    spans = token_spans(tokens, "transcript", "tokens of the transcript")
    return ViewContent("CIF integration", (*layers, marks, spans), tokens, tuple(notes))


def _integration(alphas: np.ndarray, x: Axis, prefix: str, title_suffix: str) -> list[Layer]:
    """Returns weights [frames] as bars, their running sum, the integrator, and where it fires."""
    values = peaks(alphas, PEAK if prefix else 1.0)
    fires = np.flatnonzero(values >= PEAK)
    return [
        Layer(f"{prefix}weights", "bars", f"weights{title_suffix}", alphas, x, Axis("weight")),
        Layer(
            f"{prefix}sum",
            "lines",
            f"running sum of the weights{title_suffix}",
            alphas.cumsum(dtype=np.float64)[None],
            x,
            Axis("tokens so far"),
            labels=("sum",),
        ),
        Layer(
            f"{prefix}integrator",
            "lines",
            f"integrator{title_suffix}",
            values[None],
            x,
            Axis("value"),
            labels=("integrator",),
        ),
        Layer(f"{prefix}fires", "marks", f"fires{title_suffix}", x.start + fires * x.step, SECONDS, over=True),
    ]
