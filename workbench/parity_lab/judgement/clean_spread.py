"""Computes the *clean spread* of a precision: the reference's own model in this precision, with its sums reordered.

For bfloat16 and float16, the whole model computes in that type with every step rounded. For weights of a GGUF file, the
model on PyTorch takes the weights of that very file, dequantised, rounds the inputs of its linear layers as ggml does,
and is measured from float64 with the same weights. Each precision costs one load and a few passes, and for a GGUF file
one more load and pass in float64. `workbench.compare.noise.spread` judges by the results. This file knows no runtimes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from workbench.compare.noise.spread import ORDERS, Clean
from workbench.compare.precision import AUTO, HALVES, Precision, precision_of
from workbench.core.errors import BadInput
from workbench.core.sides import GGUF_SUFFIX, Side
from workbench.formats.gguf_types import BY_NAME
from workbench.parity_lab.found import result_or_reason
from workbench.parity_lab.models import file_side, float64_side, kind_side
from workbench.parity_lab.outcome import Computed
from workbench.trace.mapping import StageMapping
from workbench.trace.read import read_trace
from workbench.trace.trace import Trace

FLOAT32 = ("float32", "f32")


@dataclass(frozen=True)
class CleanRun:
    """The clean computations of one precision."""

    precision: str
    computed: tuple[Computed, ...]
    exact: Computed | None = None  # float64 with the weights of the file; None where they are the checkpoint's
    file: Path | None = None

    def clean(self, exact: Trace) -> Clean:
        """Returns the traces to judge by; `exact` is float64 with the checkpoint's own weights."""
        traces = [each.trace for each in self.computed]
        if self.exact is None or self.file is None:
            return Clean(traces, exact, self.precision)
        return Clean(traces, self.exact.trace, f"the weights of {self.file.name}", same_weights=True)


CleanOrReason = tuple[CleanRun | None, str]
"""Clean computations, or why there are none; both are empty if none are needed."""


def check_precision(name: str) -> str:
    """Returns the precision that a user names; raises `BadInput`, which lists the known precisions, for any other."""
    lower_name = name.lower()
    precisions = {
        AUTO: AUTO,
        "f32": "float32",
        "float32": "float32",
        "bf16": HALVES[0],
        "f16": HALVES[1],
        "half": HALVES[1],
    }
    precisions |= {each: each for each in HALVES}
    if lower_name in precisions:
        return precisions[lower_name]
    if lower_name.endswith(GGUF_SUFFIX):
        if not Path(name).is_file():
            raise BadInput(f"there is no file {name}; expected a GGUF file, or a type such as q8_0")
        return name
    if lower_name.upper() in BY_NAME and BY_NAME[lower_name.upper()].block > 1:
        return lower_name
    advice = "; for other types of 8 bits, q8_0 without the same precision" if lower_name.startswith("int8") else ""
    raise BadInput(
        f"precision is {name!r:.80}; expected auto, float32, bfloat16, float16, a type of GGUF files such as q8_0, or "
        f"a GGUF file{advice}"
    )


def named_precision(trace: Trace, precision: str) -> tuple[Trace, str]:
    """Returns the trace of another program with its precision in `meta`, and a sentence that says which it is and why.

    Args:
        precision: from `check_precision`.

    The sentence is empty if the trace itself names its precision, or if its values may be float32.
    """
    if precision == AUTO:
        detected = precision_of(trace)
        if not detected.is_half or trace.meta.get("dtype"):
            return trace, ""
        name, reason = detected.name, detected.reason
    else:
        name, reason = precision, "as asked"
    if name in (*FLOAT32, *HALVES):
        meta = {key: value for key, value in trace.meta.items() if key != "quantization"} | {"dtype": name}
    elif name.lower().endswith(GGUF_SUFFIX):
        meta = {**trace.meta, "weights": name}
    else:
        meta = {**trace.meta, "quantization": name}
    trace.meta = meta
    sentence = (
        ""
        if name in FLOAT32
        else f"judged as {Path(name).name if name.lower().endswith(GGUF_SUFFIX) else name}: {reason}"
    )
    return trace, sentence


class CleanRuns:
    """Computes the clean spread of each precision once.

    Args:
        compute: traces a side into a file.
        several: traces a side several times, each time into a file.
        reference: the side whose model is computed.
        file_of: returns the GGUF file of the model in a type.
        precision: returns the precision of a trace (`workbench.compare.precision.precision_of`).
        in_float32: whether float32 has clean computations too.
    """

    def __init__(
        self,
        compute: Callable[..., Computed],
        several: Callable[..., list[Computed]],
        reference: Side,
        file_of: Callable[[str], Path],
        precision: Callable[[Trace], Precision] = precision_of,
        in_float32: bool = False,
    ):
        self._precision, self._in_float32 = precision, in_float32
        self._compute, self._several, self._reference = compute, several, reference
        self._file_of = file_of
        self._runs: dict[tuple[str, str], CleanOrReason] = {}

    @property
    def end_to_end(self) -> list[CleanRun]:
        """The runs that were made for whole traces."""
        return [run for (_, tag), (run, _) in self._runs.items() if run and not tag]

    def of(
        self, candidate: Trace, tag: str = "", stages: Sequence[str] = (), given: Path | None = None
    ) -> CleanOrReason:
        """Returns the clean computations for a candidate.

        Args:
            tag: separates runs of other stages or with other substituted stages; empty for the usual ones.
            stages, given: as in `Tracer.compute`.
        """
        precision = str(candidate.meta.get("weights") or self._precision(candidate).name)
        if precision in FLOAT32 and not self._in_float32:
            return None, ""
        precision = FLOAT32[0] if precision in FLOAT32 else precision
        key = precision, tag
        if key not in self._runs:
            self._runs[key] = result_or_reason(partial(self._compute_clean, precision, tag, stages, given))
        return self._runs[key]

    def _compute_clean(self, precision: str, tag: str, stages: Sequence[str], given: Path | None) -> CleanRun:
        name = f"clean-{Path(precision).stem}{'-' if tag else ''}{tag}"
        is_float_type = precision in (*HALVES, FLOAT32[0])
        file = (
            None if is_float_type else Path(precision) if precision.endswith(GGUF_SUFFIX) else self._file_of(precision)
        )
        side = kind_side(self._reference, precision) if file is None else file_side(self._reference, file)
        exact = None
        if file is not None:
            exact = self._compute(float64_side(self._reference, file), f"{name}-float64", stages, given)
        return CleanRun(precision, tuple(self._several(side, name, ORDERS, stages, given)), exact, file)


def precisions_of(candidates: Iterable[Side], mapping: StageMapping | None, precision: str) -> set[str]:
    """Returns the precisions of candidates that need clean computations, if their sides name them; for progress."""
    precisions = {_precision(side, mapping, precision) for side in candidates if needs_clean(side)}
    return {each for each in precisions if each is not None and each not in FLOAT32}


def needs_clean(side: Side) -> bool:
    """Returns whether a candidate needs a clean spread.

    A candidate on PyTorch with the same options is itself (almost) one of the clean computations.
    """
    return side.runtime != "pytorch" or bool(side.options)


def _precision(side: Side, mapping: StageMapping | None, precision: str) -> str | None:
    if side.file is not None:
        return str(side.file)
    if side.path is None:
        quantization, dtype = side.settings.get("quantization"), side.settings.get("dtype")
        return str(quantization or dtype or FLOAT32[0]) if (quantization or dtype) != AUTO else None
    if precision != AUTO:
        return precision
    try:
        return precision_of(read_trace(side.path, mapping)).name
    except BadInput:
        return None  # the comparison reports it


def gguf_file_of(registry: Any, model: str | Path, on_progress: Any = None) -> Callable[[str], Path]:
    """Returns a function from a type to the GGUF file of a model; it makes the file if needed."""

    def file_of(quantization: str) -> Path:
        from workbench.registry.resolve import resolve

        card = registry.card(model)
        if card.kind == "gguf":
            raise BadInput(
                f"{card.id} is a GGUF file, and PyTorch opens checkpoints; expected a checkpoint's directory"
            )
        return resolve(card, "gguf", {"quantization": quantization}, on_progress=on_progress).checkpoint

    return partial(file_of)
