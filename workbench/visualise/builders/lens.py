"""The logit lens: what a model would write if it stopped after each of its layers.

nostalgebraist, "interpreting GPT: the logit lens", 2020. The output of a layer takes the place of the last layer's
output, and the model itself computes the last norm and the head from there. So the lens works on every runtime that can
go on from given stages, and its last row is the model's own result.
"""

from __future__ import annotations

import numpy as np

from workbench.decoding.alternatives import likeliest
from workbench.plots.layers import Axis, Layer, Scale
from workbench.visualise.answers import EMBEDDINGS, OF_ANSWERS, answered
from workbench.visualise.builders.ctc import BLANK, blank_of, peaks_of
from workbench.visualise.options import ViewOptions
from workbench.visualise.scene import Scene
from workbench.visualise.stacks import LAYERS, WRITING, stack_of
from workbench.visualise.view_content import ViewContent, token_spans

MAX_LAYERS = 16  # passes of the model; of more layers, as many that are evenly spread
PROBABILITY = Scale("highest probability", 0.0, 1.0)


def lens(scene: Scene, options: ViewOptions) -> ViewContent:
    """Returns the likeliest tokens and their probabilities by layer."""
    scene.stages(*LAYERS, *OF_ANSWERS)  # in one pass
    prefix, count = stack_of(scene, options.stack, WRITING)
    answer = answered(scene) if prefix == "llm.layers" else None
    ids = answer.ids if answer else scene.stage("tokens")
    substituted = {EMBEDDINGS: answer.embeddings} if answer else {}
    states = scene.stages_resumed_from(substituted, f"{prefix}.*") if substituted else scene.stages(f"{prefix}.*")
    shown_layers = np.unique(np.linspace(0, count - 1, min(count, MAX_LAYERS)).round().astype(int)).tolist()
    logits = [
        scene.stages_resumed_from({**substituted, f"{prefix}.{count - 1}": states[f"{prefix}.{number}"]}, "logits")[
            "logits"
        ]
        for number in shown_layers
    ]
    layers = tuple(map(str, shown_layers))
    notes = [f"of {count} layers, {len(layers)} are shown"] if len(layers) < count else []
    if prefix == "encoder.layers":
        return _of_frames(scene, np.asarray(ids), logits, layers, options.count, notes)
    if answer:
        logits = [each[answer.rows] for each in logits]
    words = scene.texts(ids)
    x = Axis("token that was written", "tokens", ticks=tuple(map(_visible_text, words)))
    table = _table(scene, "lens", "likeliest tokens by layer", logits, layers, x, options.count)
    return ViewContent("Logit lens", (table,), scene.tokens(), tuple(notes))


def _of_frames(
    scene: Scene,
    ids: np.ndarray,
    logits: list[np.ndarray],
    layers: tuple[str, ...],
    count: int,
    notes: list[str],
) -> ViewContent:
    """Returns the lens of a CTC model: for every frame, and for the frame of each token where it is likeliest."""
    powers = np.exp(logits[-1] - logits[-1].max(axis=1, keepdims=True))
    blank = blank_of(powers, ids.tolist())
    every = _table(
        scene, "lens", "likeliest token of each frame by layer", logits, layers, scene.rows("logits"), 1, blank
    )
    tokens = scene.tokens()
    frames, names = peaks_of(logits[-1], blank)
    x = Axis("token that was written", "tokens", ticks=tuple(_visible_text(name) for name in scene.texts(names)))
    parts = [each[frames] for each in logits]
    short = _table(scene, "tokens_lens", "likeliest tokens at the frame of each token", parts, layers, x, count, blank)
    return ViewContent("Logit lens", (every, token_spans(tokens), short), tokens, tuple(notes))


def _table(
    scene: Scene,
    name: str,
    title: str,
    logits: list[np.ndarray],
    layers: tuple[str, ...],
    x: Axis,
    count: int,
    blank: int | None = None,
) -> Layer:
    """Returns a table with a row for each layer and a column for each row of its logits; cells have `count` tokens."""
    values, labels = [], []
    for each in logits:
        ids, logprobs = likeliest(each, count)
        words = iter(scene.texts(ids.ravel()))
        values.append(np.exp(logprobs[:, 0]) if len(each) else np.empty(0))
        labels += [
            " ".join(BLANK if number == blank else _visible_text(word) for number, word in zip(row, words))
            for row in ids.tolist()
        ]
    y = Axis("layer", "layers", ticks=layers, down=True)
    return Layer(name, "table", title, np.stack(values), x, y, labels=tuple(labels), scale=PROBABILITY)


def _visible_text(text: str) -> str:
    """Returns a token's text with its spaces visible."""
    return text.replace(" ", "␣").replace("\n", "↵") or "·"
