"""Views of the sound itself: the waveform, and the filter bank with the features that enter the encoder."""

from __future__ import annotations

import numpy as np

from workbench.core.errors import BadInput
from workbench.plots.layers import Axis, Layer, scale_of
from workbench.plots.waveform import envelope
from workbench.visualise.options import ViewOptions
from workbench.visualise.scene import Scene
from workbench.visualise.view_content import ViewContent, token_spans

COLUMNS = 4000  # of a waveform: more than a screen has
QUIETEST, LOUDEST = 2.0, 99.8  # percentiles at which colours of energies are clipped


def waveform(scene: Scene, options: ViewOptions) -> ViewContent:
    """Returns the waveform, and the tokens where they were spoken."""
    recording = scene.recording
    if recording is None:
        raise BadInput(f"the input of {scene.session.model} has no recording; expected an audio file")
    samples, rate = recording.samples, recording.sample_rate
    _, low, high = envelope(samples, COLUMNS)
    block = -(-len(samples) // COLUMNS) if len(samples) else 1
    band = Layer(
        "waveform",
        "band",
        "waveform",
        np.stack([low, high]),
        Axis("seconds", "seconds", 0.0, block / rate),
        Axis("amplitude"),
    )
    tokens = scene.tokens()
    spans = token_spans(tokens, over=True)
    return ViewContent("Waveform", (band, spans) if len(spans.values) else (band,), tokens, recording.notes)


def filterbank(scene: Scene, options: ViewOptions) -> ViewContent:
    """Returns the filter bank, and the frames that enter the encoder."""
    stages = scene.stages("frontend.*", "tower.mel")
    layers = []
    for stage, title, values in (
        ("frontend.fbank", "log-mel filter bank", "log energy"),
        ("tower.mel", "log-mel features of the audio tower", "log energy"),
        ("frontend.lfr", "stacked frames (LFR)", "log energy"),
        ("frontend.features", "features that enter the encoder", "value"),
    ):
        if stage in stages and not _repeats(stage, stages):
            layers.append(energies(scene, stage, title, values, stages[stage]))
    if not layers:
        raise scene.lacks("its filter bank", "frontend.fbank")
    return ViewContent("Filter bank", tuple(layers), scene.tokens())


def _repeats(stage: str, stages: dict[str, np.ndarray]) -> bool:
    """Returns whether a stage has the same values as the one before it, as without stacking or CMVN."""
    previous_stage = {"frontend.lfr": "frontend.fbank", "frontend.features": "frontend.lfr"}.get(stage)
    return previous_stage in stages and np.array_equal(stages[stage], stages[previous_stage or ""])


def energies(scene: Scene, stage: str, title: str, values: str, array: np.ndarray) -> Layer:
    """Returns the image of a front end's stage, with the rarest energies clipped; `values` names the quantity."""
    finite = array[np.isfinite(array)]
    low, high = np.percentile(finite, [QUIETEST, LOUDEST]) if finite.size else (0.0, 1.0)
    scale = scale_of(values, array, low=float(low), high=float(high))
    name = stage.rpartition(".")[2]
    bins = "mel bin" if name in ("fbank", "mel") else "value of a frame"
    return Layer(name, "image", title, array.T, scene.rows(stage), Axis(bins), scale=scale)
