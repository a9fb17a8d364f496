"""The view of quantisation: the error of each stage for several types of weights, against float64 on PyTorch."""

from __future__ import annotations

import numpy as np

from workbench.core.errors import BadInput
from workbench.formats.quantization import TYPES
from workbench.plots.layers import Axis, Layer, Scale
from workbench.trace.order import computation_order
from workbench.visualise.drawn import Drawn
from workbench.visualise.options import ViewOptions
from workbench.visualise.scene import Scene

USUAL = ("f16", "q8_0", "q4_0")
REFERENCE = "pytorch:f64"
SMALLEST = 1e-9  # drawn for errors below it, 0 among them


def quantised(scene: Scene, options: ViewOptions) -> Drawn:
    """Returns the relative L2 error of every stage of the model in GGUF files of some types."""
    from workbench.parity_lab.run import run_parity  # most views need no parity lab

    registry, card = scene.registry, scene.card
    if registry is None:
        raise BadInput("the view quantisation opens the model in several types; expected a registry to open it with")
    types = options.types or USUAL
    wrong = [each for each in types if each not in TYPES]
    if wrong:
        raise BadInput(f"{wrong[0]!r:.40} is no type of weights; expected some of {', '.join(TYPES)}")
    candidates = [f"gguf:{each}" for each in types]
    with run_parity(
        registry,
        card.id,
        scene.source,
        REFERENCE,
        candidates,
        "*.*,logits",
        scene.options,
        exact=False,
        same_precision=False,
    ) as run:
        failed = [outcome for outcome in run.outcomes if outcome.comparison is None]
        if len(failed) == len(run.outcomes):
            raise BadInput(f"{card.id} cannot be compared in these types: {failed[0].sentence}")
        errors: dict[str, dict[str, float]] = {}
        for outcome in run.outcomes:
            for each in outcome.comparison.stages if outcome.comparison else ():
                if each.numbers is not None and each.numbers.relative_l2 is not None:
                    errors.setdefault(each.stage, {})[outcome.name.removeprefix("gguf:")] = each.numbers.relative_l2
        stages = [stage for stage in computation_order(list(run.reference.trace), recorded=True) if stage in errors]
    shown = [each for each in types if any(each in errors[stage] for stage in stages)]
    values = np.array([[errors[stage].get(each, np.nan) for stage in stages] for each in shown])
    logs = np.log10(np.maximum(values, SMALLEST))
    x = Axis("stage, in the order of the computation", "layers", ticks=tuple(stages))
    scale = Scale("log10 of relative L2", float(np.nanmin(logs, initial=0.0)), float(np.nanmax(logs, initial=-9.0)))
    table = Layer(
        "errors",
        "table",
        "relative L2 error of each stage, against float64",
        logs,
        x,
        Axis("type", "rows", ticks=tuple(shown), down=True),
        labels=tuple(f"{value:.0e}" for value in values.flat),
        scale=scale,
    )
    lines = Layer(
        "growth", "lines", "growth of the error through the model", logs, x, Axis("log10"), labels=tuple(shown)
    )
    notes = tuple(f"{outcome.name}: {outcome.sentence}" for outcome in failed)
    return Drawn("Where quantisation error enters", (lines, table), notes=notes)
