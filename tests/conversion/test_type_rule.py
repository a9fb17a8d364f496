"""The rule of types of FunASR's export scripts."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.conversion.funasr_layout import type_rule
from workbench.conversion.plan import PlannedTensor, array_rows
from workbench.formats.quantization import Kind


def tensor(name: str, shape: tuple[int, ...]) -> PlannedTensor:
    return PlannedTensor(name, shape, Kind.MATRIX, array_rows(np.zeros(shape, np.float32)))


@pytest.mark.parametrize(
    "name, shape, f16, q8_0",
    [
        ("encoder.linear.weight", (4, 64), "f16", "q8_0"),
        ("encoder.linear.weight", (64, 40), "f16", "f32"),  # no whole blocks of 32 in a row
        ("encoder.linear.bias", (64,), "f32", "f32"),
        ("encoder.after_norm.weight", (4, 64), "f32", "f32"),
        ("encoder.fsmn_block.weight", (4, 64), "f32", "f32"),
        ("embed.weight", (4, 64), "f32", "q8_0"),
        ("output.weight", (4, 64), "f16", "f32"),
    ],
)
def test_each_type_rule_keeps_its_own_tensors_exact(name: str, shape: tuple[int, ...], f16: str, q8_0: str) -> None:
    rule = type_rule(exact_f16=("embed",), exact_q8_0=("output",))
    assert (rule(tensor(name, shape), "f16"), rule(tensor(name, shape), "q8_0")) == (f16, q8_0)
