"""Non-finite values are found in every tensor type: in floats, and in the scales of quantised blocks."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFWriter

from tests.support.gguf_parts import write
from workbench.core.errors import BadInput
from workbench.formats.gguf_file import read_gguf
from workbench.formats.gguf_types import BY_NAME, dequantised
from workbench.formats.gguf_values import _SCALES, all_finite

ONE, INFINITE, NO_NUMBER = (np.array(value, "<f2").tobytes() for value in (1.0, -np.inf, np.nan))


@pytest.mark.parametrize("kind", _SCALES)
@pytest.mark.parametrize("scale", [INFINITE, NO_NUMBER])
def test_block_scale_positions_match_the_gguf_package(kind: str, scale: bytes) -> None:
    size = BY_NAME[kind].block_bytes
    stored = np.full((3, size), 0x11, np.uint8)
    assert all_finite(stored.reshape(-1), kind, size) and np.isfinite(dequantised(stored, kind, "it")).all()
    for at in _SCALES[kind]:
        stored[1, at : at + 2] = np.frombuffer(scale, np.uint8)
        assert not all_finite(stored.reshape(-1), kind, size)
        assert np.isfinite(dequantised(stored, kind, "it")).all(axis=1).tolist() == [True, False, True]
        stored[1, at : at + 2] = np.frombuffer(ONE, np.uint8)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0"])
def test_non_finite_tensor_raises_an_error_with_the_tensor_name(tmp_path: Path, kind: str, value: float) -> None:
    values = np.full((4, 64), -3e4, np.float32)

    def fill(writer: GGUFWriter) -> None:
        writer.add_tensor("sound", np.full(300_000, -3e38, np.float32))
        number = GGMLQuantizationType[kind]
        with np.errstate(all="ignore"):
            writer.add_tensor("it", gguf.quants.quantize(values, number), raw_dtype=number)

    read_gguf(write(tmp_path / "sound.gguf", fill)).check_finite()
    values[2, 40] = value
    file = read_gguf(write(tmp_path / "it.gguf", fill))
    with pytest.raises(BadInput, match=r"^tensor it in it\.gguf holds values that are not finite \(NaN or infinity\)$"):
        file.check_finite()
