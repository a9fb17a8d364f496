"""The view of codec streams: the rows that a language model over codec streams wrote, and the codes in them.

In the rows, stream n runs n rows behind the first (the delay pattern); aligned, each column is one frame of sound.
"""

from __future__ import annotations

import numpy as np

from workbench.plots.layers import Axis, Layer, Scale
from workbench.speech.delay import aligned
from workbench.speech.layout import SpeechLayout
from workbench.visualise.options import ViewOptions
from workbench.visualise.scene import Scene
from workbench.visualise.view_content import ViewContent


def codec(scene: Scene, options: ViewOptions) -> ViewContent:
    """Returns the streams as written, and the codes frame by frame. It requests an answer in speech from the model."""
    scene = Scene(scene.session, scene.card, scene.source, {"modalities": "audio", **scene.options})
    rows = scene.stage("codec.rows", "an answer with speech")
    layout = SpeechLayout(**scene.meta["layout"])
    codes = aligned(rows, layout)
    scale = Scale("code", 0, layout.codes - 1)
    stream_codes = (rows - layout.pads - 1).astype(np.float64)
    stream_codes[stream_codes < 0] = np.nan  # the pads of the delay
    streams = Axis("stream", "rows", ticks=tuple(map(str, range(layout.streams))), down=True)
    layers = [
        Layer(
            "rows",
            "image",
            "rows as written: each stream is delayed by its number",
            stream_codes.T,
            Axis("row", "rows"),
            streams,
            scale=scale,
        ),
        Layer(
            "codes",
            "image",
            "codes, frame by frame",
            codes.T.astype(np.float64),
            scene.rows("codec.codes"),
            streams,
            scale=scale,
        ),
    ]
    return ViewContent(
        "Codec streams", tuple(layers), notes=("times count in the answer's audio, not in the recording",)
    )
