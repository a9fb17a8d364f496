"""The view of quantisation: the error of each stage for several types of weights, against float64 on PyTorch."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
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
from workbench.registry.weights import make_gguf_files
from workbench.session.values import RECORDING
from workbench.system.processors import available_processors, default_threads
from workbench.system.tempdirs import make_tempdir
from workbench.text.prompts import messages_of
from workbench.trace.order import PROMPT_PASS, computation_order, kind_of
from workbench.trace.trace import Trace
from workbench.visualise.options import ViewOptions
from workbench.visualise.scene import Scene
from workbench.visualise.view_content import ViewContent

DEFAULT_TYPES = ("f16", "q8_0", "q4_0")
STAGES = ",".join(PROMPT_PASS)
OUTSIDE_STAGES = "*.*,logits"  # of a family of another package, which may have names of its own
LONGEST_SECONDS = 20.0  # of a recording; the errors over 40 s are within 3 % of these in the median
SIDE_BY_SIDE = 3  # models at a time: two at work, and one that waits for its file or its process
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
    source = _source_of(scene)
    folder = make_tempdir()
    try:
        with _tracer(scene, source, registry, types, folder) as trace_of:
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
    notes = [f"{each}: {reason}" for each, reason in errors_by_type.items()]
    if source is not scene.source:
        notes.append(f"The errors are those of the first {LONGEST_SECONDS:g} s of the recording.")
    return ViewContent("Where quantisation error enters", (lines, table), notes=tuple(notes))


@contextlib.contextmanager
def _tracer(
    scene: Scene, source: Any, registry: Registry, types: Sequence[str], folder: Path
) -> Iterator[Callable[[str | None], Trace]]:
    """Yields a function from a type of weights to the trace of `source`; None stands for the reference in float64.

    A session of a small model has one thread. So the traces of a small model are computed side by side, while the
    caller uses those that are finished. For other models, the function computes them.
    """
    stages = OUTSIDE_STAGES if scene.family.package else STAGES

    def trace(kind: str | None) -> Trace:
        settings: dict[str, Any] = {"dtype": "float64"} if kind is None else {"quantization": kind}
        with registry.open(scene.card.id, runtime="pytorch" if kind is None else "gguf", **settings) as session:
            path = folder / f"{kind or 'reference'}.safetensors"
            return session.trace(source, stages, out=path, **scene.options)

    if not (_has_sessions_of_one_thread(scene) and available_processors() > 1):
        yield trace
        return

    def trace_of_file(kind: str) -> Trace:
        with contextlib.suppress(WorkbenchError):  # the types that have no file say so when they are opened
            files.result()
        return trace(kind)

    with ThreadPoolExecutor(SIDE_BY_SIDE, thread_name_prefix="types") as pool:
        reference = pool.submit(in_current_context(trace), None)
        files = pool.submit(in_current_context(make_gguf_files), scene.card, types)
        traces: dict[str | None, Future[Trace]] = {None: reference}
        traces |= {kind: pool.submit(in_current_context(trace_of_file), kind) for kind in types}

        def finished_trace(kind: str | None) -> Trace:
            try:
                return traces[kind].result()
            except Unavailable:  # such as no room for two models at a time
                wait(traces.values())
                return trace(kind)

        try:
            yield finished_trace
        finally:
            pool.shutdown(cancel_futures=True)


def _source_of(scene: Scene) -> Any:
    """Returns what the models compute: the scene's source, or the first seconds of a longer recording.

    Messages are taken as they are.
    """
    is_recording = scene.family.input == RECORDING or messages_of(scene.source) is not scene.source
    recording = scene.recording if is_recording else None
    if recording is None or recording.seconds <= LONGEST_SECONDS:
        return scene.source
    return recording.samples[: round(LONGEST_SECONDS * recording.sample_rate)], recording.sample_rate


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
