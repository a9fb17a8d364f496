"""The view of embeddings: the rows that a language model receives from the sound, among its own tokens' embeddings."""

from __future__ import annotations

import numpy as np

from workbench.embeddings.components import principal
from workbench.embeddings.nearest import directions
from workbench.plots.layers import Axis, Layer, Scale
from workbench.visualise.answers import AUDIO_EMBEDDINGS, EMBEDDINGS
from workbench.visualise.options import ViewOptions
from workbench.visualise.scene import Scene
from workbench.visualise.view_content import ViewContent

MAX_NAMED = 200  # rows whose nearest tokens are written; the table of more could not be read


def embedded(scene: Scene, options: ViewOptions) -> ViewContent:
    """Returns the plane in which rows and vocabulary vary most, and the nearest tokens of each row.

    The plane shows directions (vectors of length 1), like the cosine of the nearest tokens. The rows may be many times
    longer than the vectors of tokens, which would otherwise all lie on one point.
    """
    stages = scene.stages(AUDIO_EMBEDDINGS, EMBEDDINGS)
    stage = AUDIO_EMBEDDINGS if AUDIO_EMBEDDINGS in stages else EMBEDDINGS
    rows = scene.stage(stage, "embeddings in front of a language model")
    neighbours = scene.session.neighbours(rows, options.count)
    plane = principal(directions(rows), directions(neighbours.sample))
    first, second = (f"component {number} ({share:.0%} of variance)" for number, share in enumerate(plane.shares, 1))
    words = tuple(texts[0] if texts else "" for texts in neighbours.texts)
    x, y = Axis(first), Axis(second)
    named_rows = min(len(rows), MAX_NAMED)
    columns = (
        Axis("row", "rows", ticks=tuple(map(str, range(named_rows))))
        if scene.times(stage) is None
        else scene.rows(stage)
    )
    nearest = Layer(
        "nearest",
        "table",
        "nearest tokens of each row",
        neighbours.cosines[:named_rows].T,
        columns,
        Axis("nearest", "rows", ticks=tuple(str(place + 1) for place in range(neighbours.ids.shape[1])), down=True),
        labels=tuple(
            neighbours.texts[row][place] for place in range(neighbours.ids.shape[1]) for row in range(named_rows)
        ),
        scale=Scale("cosine", float(min(neighbours.cosines.min(initial=0.0), 0.0)), 1.0),
    )
    layers = (
        Layer("vocabulary", "points", "rows (blue) among tokens of the vocabulary", plane.others, x, y),
        Layer("rows", "points", "rows", plane.tokens, x, y, labels=words, over=True),
        nearest,
        Layer(
            "norms",
            "bars",
            "norm of each row",
            np.linalg.norm(rows.astype(np.float64), axis=1),
            scene.rows(stage),
            Axis("norm"),
        ),
    )
    notes = (f"the table names the first {named_rows} of {len(rows)} rows",) if named_rows < len(rows) else ()
    return ViewContent("Embeddings and nearest tokens", layers, scene.tokens(), notes)
