"""The stacks of layers of a model, by the names that users write. Names of stages; no arrays."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.core.errors import BadInput
from workbench.core.phrases import counted, numbers_below
from workbench.trace.order import layer_counts
from workbench.visualise.scene import Scene

PREFIXES = {
    "encoder": "encoder.layers",
    "tower": "tower.layers",
    "decoder": "decoder.layers",
    "llm": "llm.layers",
}
LAYERS = tuple(f"{prefix}.*" for prefix in PREFIXES.values())
HEARING: Sequence[str] = ("encoder", "tower", "llm", "decoder")
"""The order in which a model's main stack is searched: stacks that take audio come first."""
WRITING: Sequence[str] = ("decoder", "llm", "encoder")
"""The search order for the stack whose last layer leads to the logits."""


def stack_of(scene: Scene, requested: str, order: Sequence[str] = HEARING) -> tuple[str, int]:
    """Returns the stages' prefix of a stack, such as `encoder.layers`, and how many layers it has.

    Args:
        requested: a name in `PREFIXES`, or auto for the first of `order` that the model has.

    Raises `BadInput` for a stack that the model does not have, and for a decoder that had no token to compute.
    """
    if requested == "decoder" or (requested == "auto" and order[0] == "decoder"):
        scene.check_written()
    counts = layer_counts(scene.stages(*LAYERS))
    names = [name for name in order if counts.get(PREFIXES[name])]
    if requested == "auto" and names:
        return PREFIXES[names[0]], counts[PREFIXES[names[0]]]
    if requested in names:
        return PREFIXES[requested], counts[PREFIXES[requested]]
    session = scene.session
    if not names:
        raise BadInput(f"{session.model} on {session.runtime} shows no layers for this view")
    raise BadInput(f"{session.model} has no stack of layers {requested!r} for this view; expected {', '.join(names)}")


def layer_of(scene: Scene, layer: int | None, prefix: str, count: int) -> int:
    """Returns the layer that was asked for, by default the last; raises `BadInput` if there is no such layer."""
    if layer is not None and layer >= count:
        raise BadInput(
            f"{scene.session.model} has {counted(count, 'layer')} in {prefix.partition('.')[0]}, but layer {layer} is "
            f"requested; expected {numbers_below(count)}"
        )
    return count - 1 if layer is None else layer
