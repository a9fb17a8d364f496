"""Shows a trace in a notebook, as HTML: its stages with shapes and values, and small pictures of some of them.

A trace may be in a file and large. Values are read up to a limit; the others are listed with their shapes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from workbench.display.html import Html, TableCell, card, facts, table
from workbench.display.pictures import picture, pictures
from workbench.display.words import clipped, number
from workbench.trace.order import kind_of

MAX_READ = 64 << 20  # bytes of all stages whose values are read
MAX_PICTURE = 16 << 20  # bytes of a stage that is drawn
MAX_PICTURES = 4
MAX_TEXT_CHARACTERS = 24  # characters of a stage that is a text
PICTURED = ("frontend.fbank", "encoder.output", "adaptor.output", "llm.norm", "logits")
"""Stages that are drawn if the trace has them, in this order."""


def trace_html(trace: Mapping[str, np.ndarray]) -> str:
    """Returns the stages of a trace as a table under some pictures."""
    meta: Mapping[str, Any] = getattr(trace, "meta", {})
    program = " on ".join(str(meta[key]) for key in ("model", "runtime") if meta.get(key))
    title = f"Trace by {program}" if program else "Trace"
    trace_facts = facts(
        f"{len(trace)} stages",
        str(meta.get("quantization") or meta.get("dtype") or ""),
        f"input {str(meta['input_digest'])[:12]}" if meta.get("input_digest") else None,
    )
    rows, figures, remaining_bytes = [], list[Html](), MAX_READ
    for stage in trace:
        array = trace[stage]
        is_read = array.nbytes <= remaining_bytes
        remaining_bytes -= array.nbytes if is_read else 0
        rows.append(
            (
                stage,
                _shape(array),
                str(array.dtype) if array.dtype.kind != "U" else "text",
                *_values(stage, array, is_read),
            )
        )
    for stage in [each for each in PICTURED if each in trace][:MAX_PICTURES]:
        figures += _pictured(stage, trace[stage])
    head = ("stage", "shape", "type", "mean", "deviation", "least", "greatest")
    return card(title, trace_facts, pictures(*figures) if figures else Html(""), table(head, rows))


def _shape(array: np.ndarray) -> str:
    return " × ".join(map(str, array.shape)) or "one value"


def _values(stage: str, array: np.ndarray, is_read: bool) -> tuple[Any, ...]:
    """Returns mean, deviation, least and greatest value; of texts and ids, their beginning in the first column."""
    if not is_read:
        return (TableCell("not read", "quiet"), "", "", "")
    kind = kind_of(stage, array)
    if kind == "text":
        return (clipped(str(array), MAX_TEXT_CHARACTERS), "", "", "")
    if array.dtype.kind not in "biuf" or not array.size:
        return ("", "", "", "")
    if array.dtype.kind != "f":
        return ("", "", number(float(array.min())), number(float(array.max())))
    finite = array[np.isfinite(array)].astype(np.float64)
    if not finite.size:
        return (TableCell("not finite", "bad"), "", "", "")
    statistics = tuple(number(float(each)) for each in (finite.mean(), finite.std(), finite.min(), finite.max()))
    return (
        statistics
        if finite.size == array.size
        else (TableCell(f"{statistics[0]}, not all finite", "bad"), *statistics[1:])
    )


def _pictured(stage: str, array: np.ndarray) -> list[Html]:
    """Returns a small picture of a stage of numbers; nothing for others, and for very large ones."""
    if array.dtype.kind != "f" or array.ndim not in (1, 2) or not array.size or array.nbytes > MAX_PICTURE:
        return []
    return [picture(_figure_function(stage, array), f"the values of {stage}", stage)]


def _figure_function(stage: str, array: np.ndarray) -> Callable[[], Any]:
    def draw() -> Any:
        from workbench.plots.filterbank import filterbank_figure
        from workbench.plots.stages import array_figure

        if stage == "frontend.fbank":
            return filterbank_figure(array, width=3.8, height=2.0)
        return array_figure(array if array.ndim == 2 else array[:, None], width=3.8, height=2.0)

    return draw
