"""The view of gradients: which parts of the filter bank a written token depends on.

Simonyan et al., "Deep Inside Convolutional Networks", ICLR 2014 workshop: the gradient of an output with respect to the
input. Here the output is ln P of a token, so a value says by how much ln P grows when one energy grows by 1.
"""

from __future__ import annotations

import numpy as np

from workbench.plots.layers import Axis, Layer, diverging_scale
from workbench.trace.gradients import gradient_stage
from workbench.visualise.builders.sound import energies
from workbench.visualise.options import ViewOptions
from workbench.visualise.scene import Scene, token_number
from workbench.visualise.view_content import ViewContent, token_spans

FBANK = "frontend.fbank"


def gradient(scene: Scene, options: ViewOptions) -> ViewContent:
    """Returns the gradient of one token, its size in each frame, and the filter bank beside it."""
    number = options.token
    if number is None:
        if scene.family.has_language_model:  # most write no tags, so token 0 is likely the one
            scene.stages("tokens", FBANK, gradient_stage(0))
        number = token_number(None, scene.texts(scene.stage("tokens")))
    stage = gradient_stage(number)
    scene.stages("tokens", FBANK, stage)  # in one pass
    words = scene.texts(scene.stage("tokens"))
    name = f"token {number}, {scene.word(words, number)}"
    gradients = scene.stage(stage, "gradients").astype(np.float64)
    x = scene.rows(stage)
    image = Layer(
        "gradient",
        "image",
        f"{name}: gradient of ln P with respect to the filter bank",
        gradients.T,
        x,
        Axis("mel bin"),
        scale=diverging_scale("change of ln P", gradients),
    )
    size = Layer(
        "frames",
        "lines",
        "size of the gradient in each frame",
        np.linalg.norm(gradients, axis=1)[None],
        x,
        Axis("L2 norm"),
        labels=("L2 norm",),
    )
    tokens = scene.tokens()
    spans = token_spans(tokens)
    bank = energies(scene, FBANK, "log-mel filter bank", "log energy", scene.stage(FBANK, "its filter bank"))
    return ViewContent("Gradient of a token", (image, size, bank, *((spans,) if len(spans.values) else ())), tokens)
