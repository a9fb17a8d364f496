"""The view of confidence and entropy over time: for each frame of a CTC head, or for each token that was written."""

from __future__ import annotations

import numpy as np

from workbench.plots.layers import Axis, Layer
from workbench.visualise.answers import EMBEDDINGS, OF_ANSWERS, answered
from workbench.visualise.options import ViewOptions
from workbench.visualise.scene import Scene
from workbench.visualise.view_content import ViewContent, token_spans

OF_FRAMES = ("ctc.posteriors", "vad.scores")


def confidence(scene: Scene, options: ViewOptions) -> ViewContent:
    """Returns the probability of the likeliest token and the entropy, in bits, of each frame or token."""
    tokens = scene.tokens()
    spans = token_spans(tokens)
    span_layers = (spans,) if len(spans.values) else ()
    scene.stages(*OF_FRAMES, *OF_ANSWERS)  # in one pass
    for stage in OF_FRAMES:
        if (posteriors := scene.stages(stage).get(stage)) is not None:
            x = scene.rows(stage)
            return ViewContent(
                "Confidence and entropy", (*_curves(posteriors.astype(np.float64), x), *span_layers), tokens
            )
    if EMBEDDINGS in scene.stages(EMBEDDINGS):
        answer = answered(scene)
        logits = scene.stages_resumed_from({EMBEDDINGS: answer.embeddings}, "logits")["logits"][answer.rows]
        names = scene.texts(answer.ids)
    else:
        logits = scene.stage("logits", "logits")
        names = scene.texts(scene.stage("tokens"))
    x = Axis("token", "tokens", ticks=names)
    layers = _curves(softmax(logits), x)
    bars = [Layer(layer.name, "bars", layer.title, layer.values[0], x, layer.y) for layer in layers]
    return ViewContent("Confidence and entropy", (*bars, *span_layers), tokens)


def softmax(logits: np.ndarray) -> np.ndarray:
    """Returns probabilities of logits [rows, vocabulary] in float64; impossible tokens (minus infinity) get 0."""
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(axis=1, keepdims=True, initial=-np.inf, where=np.isfinite(shifted))
    probabilities = np.exp(shifted)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    return probabilities


def entropy(probabilities: np.ndarray) -> np.ndarray:
    """Returns the entropy in bits of each row of probabilities [rows, choices]: 0 if one is certain."""
    logs = np.log2(probabilities, out=np.zeros_like(probabilities), where=probabilities > 0)
    bits: np.ndarray = -(probabilities * logs).sum(axis=1) + 0.0
    return bits


def _curves(probabilities: np.ndarray, x: Axis) -> tuple[Layer, Layer]:
    likeliest = probabilities.max(axis=1, initial=0.0)[None]
    return (
        Layer(
            "confidence",
            "lines",
            "probability of the likeliest token",
            likeliest,
            x,
            Axis("probability"),
            ("likeliest",),
        ),
        Layer("entropy", "lines", "entropy", entropy(probabilities)[None], x, Axis("bits"), ("entropy",)),
    )
