"""The view of continuous integrate-and-fire: weights, their running sum, and where tokens begin and end.

Dong and Xu, "CIF", ICASSP 2020. The function that computes the transcript's times also computes the borders, from the
same weights.
"""

from __future__ import annotations

import numpy as np

from workbench.decoding.cif import peaks
from workbench.families.paraformer import MARKERS, PEAK, token_times
from workbench.plots.layers import Axis, Layer
from workbench.visualise.drawn import SECONDS, Drawn, token_spans
from workbench.visualise.options import ViewOptions
from workbench.visualise.scene import Scene

ALPHAS, FINE = "predictor.alphas", "predictor.fine_alphas"


def cif(scene: Scene, options: ViewOptions) -> Drawn:
    """Returns weights, running sum, integrator, fires and token borders."""
    alphas = scene.stage(ALPHAS, "the weights of a CIF predictor")
    ids = scene.stage("tokens")
    fine = scene.stages(FINE).get(FINE)
    words = [word for word in scene.texts(ids) if word not in MARKERS]
    tokens = scene.tokens()
    layers = _integration(alphas, scene.rows(ALPHAS), "", "")
    finest = scene.rows(ALPHAS)
    if fine is not None:
        finest = scene.rows(FINE)
        layers += _integration(fine, finest, "fine_", " of the finer head, which times the tokens")
    weights = alphas if fine is None else fine
    firing = token_times(weights, len(words), finest.step, fine is not None) if words else None
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
    return Drawn("CIF integration", (*layers, marks, spans), tokens, tuple(notes))


def _integration(alphas: np.ndarray, x: Axis, prefix: str, of: str) -> list[Layer]:
    """Returns weights [frames] as bars, their running sum, the integrator, and where it fires."""
    values = peaks(alphas, PEAK if prefix else 1.0)
    fires = np.flatnonzero(values >= PEAK)
    return [
        Layer(f"{prefix}weights", "bars", f"weights{of}", alphas, x, Axis("weight")),
        Layer(
            f"{prefix}sum",
            "lines",
            f"running sum of the weights{of}",
            alphas.cumsum(dtype=np.float64)[None],
            x,
            Axis("tokens so far"),
            labels=("sum",),
        ),
        Layer(
            f"{prefix}integrator", "lines", f"integrator{of}", values[None], x, Axis("value"), labels=("integrator",)
        ),
        Layer(f"{prefix}fires", "marks", f"fires{of}", x.start + fires * x.step, SECONDS, over=True),
    ]
