"""The view of FSMN memories: what the memory of a layer adds to each frame, and the kernel that computes it.

Zhang et al., "Deep-FSMN", ICASSP 2018: each channel of the memory is a short filter over time, added to its input. The
taps are found from what goes in and what comes out, by least squares, so they are those that the runtime computed with.
"""

from __future__ import annotations

import numpy as np

from workbench.core.phrases import counted
from workbench.plots.layers import Axis, Layer, diverging_scale
from workbench.visualise.options import ViewOptions
from workbench.visualise.scene import Scene
from workbench.visualise.stacks import PREFIXES, layer_of, stack_of
from workbench.visualise.view_content import ViewContent, token_spans

MAX_REACH = 15  # frames on either side that a kernel may reach
FIT_TOLERANCE = 5e-3  # relative L2 of what a kernel leaves unexplained; weights in 16 bits stay below
ROWS_PER_TAP = 2  # rows for each tap that make the fit certain


def memory(scene: Scene, options: ViewOptions) -> ViewContent:
    """Returns the output of a layer's memory over time, and its kernels."""
    prefix, count = stack_of(scene, options.stack, ("encoder", "decoder"))
    layer = layer_of(scene, options.layer, prefix, count)
    if options.layer is None and prefix == PREFIXES["decoder"]:
        layer = _last_memory(scene, prefix, layer)
    stage = f"{prefix}.{layer}.fsmn"
    output = scene.stage(stage, "an FSMN memory in this layer")
    x = Axis("token", "tokens", ticks=scene.texts(scene.stage("tokens"))) if prefix.startswith("decoder") else None
    layers = [
        Layer(
            "output",
            "image",
            f"input plus memory, {stage}",
            output.T,
            x or scene.rows(stage),
            Axis("channel", "rows"),
            scale=diverging_scale("value", output),
        )
    ]
    value = scene.stages(f"{prefix}.{layer}.attention.value").get(f"{prefix}.{layer}.attention.value")
    notes = []
    taps = None
    if value is None:
        notes.append("the kernels are not drawn: the runtime does not show what goes into the memory")
    elif not (np.isfinite(value).all() and np.isfinite(output).all()):
        notes.append("the kernels are not drawn: the memory has values that are not finite")
    elif (taps := kernels(value.reshape(len(value), -1), output)) is None:
        notes.append(
            f"the kernels are not drawn: {counted(len(output), 'row')} cannot determine them; "
            "expected a longer recording"
        )
    if taps is not None:
        reach = taps.shape[1] // 2
        tap_axis = Axis("frames before and after", "rows", -reach - 0.5, 1.0)
        layers.append(
            Layer(
                "kernels",
                "image",
                "kernel of each channel",
                taps,
                tap_axis,
                Axis("channel", "rows"),
                scale=diverging_scale("tap", taps),
            )
        )
        strength = np.abs(taps).mean(axis=0)
        layers.append(Layer("strength", "bars", "mean magnitude of the taps", strength, tap_axis, Axis("tap")))
    tokens = scene.tokens()
    spans = token_spans(tokens)
    span_layers = (spans,) if len(spans.values) and x is None else ()
    return ViewContent("FSMN memory", (layers[0], *span_layers, *layers[1:]), tokens, tuple(notes))


def _last_memory(scene: Scene, prefix: str, last: int) -> int:
    """Returns the last layer of a decoder that has a memory: the last ones may be feed-forward only; else `last`."""
    stages = scene.stages(f"{prefix}.*.fsmn")
    return next((layer for layer in range(last, -1, -1) if f"{prefix}.{layer}.fsmn" in stages), last)


def kernels(value: np.ndarray, output: np.ndarray) -> np.ndarray | None:
    """Returns the taps [channels, 2 * reach + 1] of the memory that turns `value` into `output`, both [rows, channels].

    Tap 0 in the middle is the frame itself, without the input that is added. The shortest reach that explains the
    output is taken; None if none does, or if there are too few rows to decide.
    """
    rows, channels = value.shape
    difference = (output.astype(np.float64) - value).T[..., None]
    size = np.linalg.norm(difference)
    for reach in range(MAX_REACH + 1):
        taps = 2 * reach + 1
        if rows < ROWS_PER_TAP * taps:
            return None
        padded = np.pad(value.astype(np.float64), ((reach, reach), (0, 0)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, taps, axis=0).transpose(1, 0, 2)
        solution = np.linalg.pinv(windows, rcond=1e-10) @ difference
        if np.linalg.norm(windows @ solution - difference) <= FIT_TOLERANCE * size:
            kernel: np.ndarray = solution[..., 0].reshape(channels, taps)
            return kernel
    return None
