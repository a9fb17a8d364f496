"""The precision of a trace, from its metadata or from its values."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.networks import computed
from workbench.compare.precision import half_precision_of_values, precision_of
from workbench.trace.trace import Trace

DRAW = np.random.default_rng(0)
VALUES = DRAW.standard_normal((30, 40)).astype(np.float32)


def rounded_values(kind: str, values: np.ndarray = VALUES) -> np.ndarray:
    """Values of a type, stored as float32."""
    if kind == "float16":
        return values.astype(np.float16).astype(np.float32)
    if kind == "bfloat16":
        return (values.view(np.uint32) & 0xFFFF0000).view(np.float32)
    return values


def dump(kind: str, **others: np.ndarray) -> Trace:
    layers = {f"encoder.layers.{n}": rounded_values(kind, VALUES + n) for n in range(3)}
    return Trace({"frontend.fbank": VALUES, **layers, "logits": VALUES, **others}, {})


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_half_precision_is_detected_from_values(kind: str) -> None:
    """The front end and the logits may still be float32."""
    precision = precision_of(dump(kind))
    assert (
        precision.name == kind and precision.is_half and precision.reason == f"every value is a number that {kind} has"
    )


def test_single_value_outside_the_type_prevents_half_precision_detection() -> None:
    trace = dump("bfloat16", **{"encoder.layers.2": np.nextafter(rounded_values("bfloat16"), np.float32(9))})
    assert half_precision_of_values(trace) is None and precision_of(trace).name == "float32"


def test_few_values_zeros_and_integers_give_no_precision() -> None:
    for array in (rounded_values("bfloat16")[:2, :3], np.zeros((99, 99), np.float32), np.ones((40, 40), np.int64)):
        assert half_precision_of_values(Trace({"encoder.layers.0": array}, {})) is None


@pytest.mark.parametrize(
    ("meta", "name"),
    [
        ({"dtype": "torch.bfloat16"}, "bfloat16"),
        ({"dtype": "float32"}, "float32"),
        ({"quantization": "q4_0", "dtype": "float32"}, "q4_0"),
        ({"runtime": "gguf", "dtype": "float16"}, "f16"),
        ({"runtime": "gguf", "dtype": "q8_0"}, "q8_0"),
    ],
)
def test_precision_in_metadata_takes_precedence_over_values(meta: dict[str, str], name: str) -> None:
    assert precision_of(Trace({"encoder.layers.0": rounded_values("float16")}, meta)).name == name


def test_float32_values_are_never_detected_as_half_precision() -> None:
    for seed in range(20):
        assert half_precision_of_values(computed("float32", seed)) is None
