"""The table of quantisation types against the gguf package, and the choice of type for each tensor."""

from __future__ import annotations

import gguf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.core.errors import BadInput
from workbench.formats.quantization import (
    BLOCKS,
    FUNASR_TYPES,
    TYPES,
    Kind,
    check_type,
    padded,
    possible_types,
    resolve_quantization,
    stored_bytes,
    stored_type,
)


def test_block_sizes_equal_those_of_the_gguf_package() -> None:
    assert {name: gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name.upper()]] for name in TYPES} == BLOCKS
    assert set(FUNASR_TYPES) < set(TYPES)


@given(st.sampled_from(TYPES), st.integers(1, 50), st.integers(1, 300))
def test_stored_size_is_a_whole_number_of_blocks(name: str, rows: int, columns: int) -> None:
    stored = stored_type(Kind.MATRIX, (rows, columns), name)
    values, size = BLOCKS[stored]
    assert stored == (name if columns % BLOCKS[name][0] == 0 else "f16")
    assert stored_bytes((rows, columns), stored) == rows * (columns // values) * size
    assert 0 <= padded(rows) - rows < 32 and padded(rows) % 32 == 0


@pytest.mark.parametrize("name", TYPES)
def test_small_or_sensitive_tensors_stay_float32(name: str) -> None:
    assert stored_type(Kind.EXACT, (64, 64), name) == "f32"
    assert stored_type(Kind.MATRIX, (64,), name) == "f32"
    assert stored_type(Kind.MATRIX, (64, 64, 3), name) == "f32"
    assert stored_type(Kind.TABLE, (64, 64), name) == ("q8_0" if name[:2] in ("q4", "q5") else name)
    assert stored_type(Kind.TABLE, (64, 33), name) == (name if name in ("f32", "f16", "bf16") else "f16")


def test_possible_types_are_the_type_itself_and_those_of_exceptions() -> None:
    assert possible_types("f32") == {"f32"}
    assert possible_types("bf16") == {"bf16", "f32"}
    assert possible_types("q8_0") == {"q8_0", "f16", "f32"}
    assert possible_types("q4_1") == {"q4_1", "q8_0", "f16", "f32"}


def test_auto_quantisation_is_f32_below_4_gb_and_f16_above() -> None:
    small, large = {"f32": 3_999_999_999, "f16": 2_000_000_000}, {"f32": 4_000_000_000, "f16": 2_000_000_000}
    assert resolve_quantization("auto", small) == "f32"
    assert resolve_quantization("auto", large) == "f16"
    assert resolve_quantization("auto", {"f32": 5 * 10**9}) == "f32"  # the type has no other bits
    assert resolve_quantization("f16", small) == "f16"
    with pytest.raises(BadInput, match=r"q4_0.*expected one of auto, f32, f16"):
        resolve_quantization("q4_0", small)


def test_other_types_are_refused() -> None:
    assert check_type("q8_0") == "q8_0"
    for name in ("Q8_0", "q4_k", "", "int4"):
        with pytest.raises(BadInput, match="expected one of f32, f16, bf16, q8_0"):
            check_type(name)
