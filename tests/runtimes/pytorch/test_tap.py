"""Taps pass values through a network unchanged and give copies of them to a recorder."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from workbench.runtimes.pytorch.tap import no_tap, tap_into
from workbench.trace.recorder import Recorder


def test_nothing_is_done_without_recorder() -> None:
    assert tap_into(None) is no_tap
    value = torch.ones(1)
    assert no_tap("any", value) is value


def test_recorded_stage_is_a_copy() -> None:
    recorder = Recorder(lambda stage: stage == "wanted")
    tap = tap_into(recorder)
    value = torch.ones(2, 3, requires_grad=True)
    assert tap("wanted", value) is value and tap("other", value) is value
    with torch.no_grad():
        value.zero_()
    assert list(recorder.stages) == ["wanted"]
    np.testing.assert_array_equal(recorder.stages["wanted"], np.ones(3, np.float32))  # the batch's first row


@pytest.mark.parametrize(
    ("dtype", "expected"), [(torch.bfloat16, np.float32), (torch.float16, np.float16), (torch.int64, np.int64)]
)
def test_types_are_kept_where_numpy_has_them(dtype: torch.dtype, expected: type) -> None:
    recorder = Recorder(lambda _: True)
    tap_into(recorder)("it", torch.tensor([[1, 2]]).to(dtype))
    assert recorder.stages["it"].dtype == expected and recorder.stages["it"].tolist() == [1, 2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", ["<f4", ">f4", "<f8", "<i2"])
def test_given_stage_is_passed_on_as_a_copy_in_the_dtype_of_the_network(dtype: torch.dtype, kind: str) -> None:
    given_stage = np.array([[1.5, -2.0, 3.0]]).astype(kind)
    given_stage.flags.writeable = False  # as in a memory-mapped file
    recorder = Recorder(lambda stage: stage == "kept", {"kept": given_stage, "gone on with": given_stage})
    tap, computed = tap_into(recorder), torch.zeros(1, 1, 3, dtype=dtype)
    for stage in ("kept", "gone on with"):
        output = tap(stage, computed)
        assert output.dtype == dtype and output.shape == (1, 1, 3)
        np.testing.assert_array_equal(output[0].float().numpy(), given_stage.astype(np.float32))
    assert list(recorder.stages) == ["kept"] and not recorder.stages["kept"].any()
    output.zero_()  # later operations may change the copy in place
    assert tap("other", computed) is computed and given_stage.all()
