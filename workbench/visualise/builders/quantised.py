"""The view of quantisation: the error of each stage for several types of weights, against float64 on PyTorch."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from workbench.compare.measures import measure
from workbench.core.errors import BadInput, Cancelled, Unavailable, WorkbenchError
from workbench.core.visitors import in_current_context, told
from workbench.formats.quantization import TYPES
from workbench.formats.weight_files import file_bytes
from workbench.plots.layers import Axis, Layer, Scale
from workbench.registry.registry import Registry
from workbench.registry.sources import local_checkpoint
from workbench.system.processors import available_processors, default_threads
from workbench.system.tempdirs import make_tempdir
from workbench.trace.order import PROMPT_PASS, computation_order, kind_of
from workbench.trace.trace import Trace
from workbench.visualise.options import ViewOptions
from workbench.visualise.scene import Scene
from workbench.visualise.view_content import ViewContent

DEFAULT_TYPES = ("f16", "q8_0", "q4_0")
STAGES = ",".join(PROMPT_PASS)
OUTSIDE_STAGES = "*.*,logits"  # of a family of another package, which may have names of its own
MIN_ERROR = 1e-9  # drawn for errors below it, 0 among them


def quantised(scene: Scene, options: ViewOptions) -> ViewContent:
    """Returns the relative L2 error of every stage of the model in GGUF files of some types."""
    registry, card = scene.registry, scene.card
    if registry is None:
        raise BadInput("the view quantisation opens the model in several types; expected a registry to open it with")
    types = options.types or DEFAULT_TYPES
    unknown_types = [each for each in types if each not in TYPES]
    if unknown_types:
        raise BadInput(f"{unknown_types[0]!r:.40} is not a type of weights; expected some of {', '.join(TYPES)}")
    errors: dict[str, dict[str, float]] = {}  # of each stage, by type
    errors_by_type: dict[str, str] = {}
    folder = make_tempdir()
    try:
        trace_of = _tracer(scene, registry, types, folder)
        reference = trace_of(None)
        for each in types:
            try:
                stage_errors = _errors(reference, trace_of(each))
            except Cancelled:
                raise
            except WorkbenchError as error:
                errors_by_type[each] = told(error)
                continue
            (folder / f"{each}.safetensors").unlink()
            for stage, error_of_stage in stage_errors.items():
                errors.setdefault(stage, {})[each] = error_of_stage
        stages = [stage for stage in computation_order(list(reference), recorded=True) if stage in errors]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if len(errors_by_type) == len(types):
        raise BadInput(f"{card.id} cannot be compared in these types: {errors_by_type[types[0]]}")
    compared_types = [each for each in types if any(each in errors[stage] for stage in stages)]
    values = np.array([[errors[stage].get(each, np.nan) for stage in stages] for each in compared_types])
    logs = np.log10(np.maximum(values, MIN_ERROR))
    x = Axis("stage, in the order of the computation", "layers", ticks=tuple(stages))
    scale = Scale("log10", float(np.nanmin(logs, initial=0.0)), float(np.nanmax(logs, initial=-9.0)))
    table = Layer(
        "errors",
        "table",
        "log10 of the relative L2 error of each stage, against float64",
        logs,
        x,
        Axis("type", "rows", ticks=tuple(compared_types), down=True),
        labels=tuple(f"{value:.1f}" for value in logs.flat),
        scale=scale,
    )
    lines = Layer(
        "growth",
        "lines",
        "growth of the error through the model",
        logs,
        x,
        Axis("log10 error"),
        labels=tuple(compared_types),
    )
    notes = tuple(f"{each}: {reason}" for each, reason in errors_by_type.items())
    return ViewContent("Where quantisation error enters", (lines, table), notes=notes)


def _tracer(scene: Scene, registry: Registry, types: Sequence[str], folder: Path) -> Callable[[str | None], Trace]:
    """Returns a function from a type of weights to its trace; None stands for the reference in float64.

    A session of a small model has one thread. So all traces of a small model are computed here, two at a time. For
    other models, the returned function computes them.
    """
    stages = OUTSIDE_STAGES if scene.family.package else STAGES

    def trace(kind: str | None) -> Trace:
        settings: dict[str, Any] = {"dtype": "float64"} if kind is None else {"quantization": kind}
        with registry.open(scene.card.id, runtime="pytorch" if kind is None else "gguf", **settings) as session:
            path = folder / f"{kind or 'reference'}.safetensors"
            return session.trace(scene.source, stages, out=path, **scene.options)

    done: dict[str | None, Future[Trace]] = {}
    if _has_sessions_of_one_thread(scene) and available_processors() > 1:
        with ThreadPoolExecutor(2, thread_name_prefix="types") as pool:
            done = {kind: pool.submit(in_current_context(trace), kind) for kind in (None, *types)}

    def trace_of(kind: str | None) -> Trace:
        if kind in done:
            with contextlib.suppress(Unavailable):  # such as no room for two models at a time
                return done[kind].result()
        return trace(kind)

    return trace_of


def _has_sessions_of_one_thread(scene: Scene) -> bool:
    checkpoint = local_checkpoint(scene.card)
    return checkpoint is not None and default_threads(file_bytes(checkpoint)) == 1


def _errors(reference: Trace, trace: Trace) -> dict[str, float]:
    """Returns the relative L2 error of each stage of numbers that both traces have in the same shape."""
    errors = {}
    for stage in reference:
        if stage in trace:
            reference_values, values = np.asarray(reference[stage]), np.asarray(trace[stage])
            if reference_values.shape == values.shape and kind_of(stage, reference_values) in ("numbers", "logits"):
                errors[stage] = measure(reference_values, values).relative_l2
    return errors
