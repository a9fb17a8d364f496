"""Checks that the traces that tell noise from bugs fit together: their precision, input and way of computation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.compare.inputs import computed_from, side_of_inputs
from workbench.compare.presets import half_precision_of
from workbench.core.errors import BadInput
from workbench.trace.trace import Trace


def check_exact(reference: Mapping[str, Any], exact: Mapping[str, Any]) -> None:
    """Raises `BadInput` if a trace's metadata do not fit float64, or name another input than the reference's."""
    dtype = exact.get("dtype")
    if isinstance(dtype, str) and dtype.lower().removeprefix("torch.") not in ("float64", "f64", "fp64", "double"):
        raise BadInput(
            f"the trace that tells noise from bugs states the dtype {dtype!r:.40}; expected one computed in float64"
        )
    digests = reference.get("input_digest"), exact.get("input_digest")
    if None not in digests and digests[0] != digests[1]:
        raise BadInput("the float64 trace and the reference have different inputs; expected the same input")


def check_alone(reference: Trace, candidate: Trace, exact: Trace) -> bool:
    """Returns whether each stage is judged alone.

    Raises `BadInput` if the float64 trace was not computed in the same way as the trace that it judges.
    """
    input_side = side_of_inputs(reference, candidate)
    if input_side == "candidate" and computed_from(exact, candidate):
        return True
    judged_name = "reference" if input_side == "candidate" else "candidate"
    if bool(input_side) != bool(exact.meta.get("isolated")) or input_side == "candidate":
        isolated, end_to_end = (judged_name, "float64 trace") if input_side else ("float64 trace", judged_name)
        raise BadInput(
            f"the {isolated} was computed from substituted stages and the {end_to_end} end to end, or from other "
            "stages; expected the same for both (workbench trace --dtype float64, with the same --given, or without)"
        )
    return bool(input_side)


def check_peer(peer: Trace, candidate: Trace, exact: Trace) -> None:
    """Raises `BadInput` unless both have the same half precision, the same input and the same way of computation."""
    precision_names = [half_precision_of(trace.meta) for trace in (peer, candidate)]
    if precision_names[0] is None or precision_names[0] != precision_names[1]:
        precisions = [
            f"{trace.meta.get('quantization') or trace.meta.get('dtype')!s:.40}" for trace in (peer, candidate)
        ]
        raise BadInput(
            f"the trace in the same precision has {precisions[0]} and the candidate {precisions[1]}; expected both in "
            "bfloat16, or both in float16"
        )
    digests = peer.meta.get("input_digest"), exact.meta.get("input_digest")
    if None not in digests and digests[0] != digests[1]:
        raise BadInput(
            "the trace in the same precision and the float64 trace have different inputs; expected the same input"
        )
    if bool(peer.meta.get("isolated")) != bool(exact.meta.get("isolated")):
        raise BadInput(
            "the trace in the same precision and the float64 trace were computed differently: one from substituted "
            "stages, one end to end; expected the same for both"
        )
