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
    ("dtype", "kept"), [(torch.bfloat16, np.float32), (torch.float16, np.float16), (torch.int64, np.int64)]
)
def test_types_are_kept_where_numpy_has_them(dtype: torch.dtype, kept: type) -> None:
    recorder = Recorder(lambda _: True)
    tap_into(recorder)("it", torch.tensor([[1, 2]]).to(dtype))
    assert recorder.stages["it"].dtype == kept and recorder.stages["it"].tolist() == [1, 2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", ["<f4", ">f4", "<f8", "<i2"])
def test_given_stage_is_passed_on_as_a_copy_in_the_dtype_of_the_network(dtype: torch.dtype, kind: str) -> None:
    given = np.array([[1.5, -2.0, 3.0]]).astype(kind)
    given.flags.writeable = False  # as of a file that is mapped
    recorder = Recorder(lambda stage: stage == "kept", {"kept": given, "gone on with": given})
    tap, own = tap_into(recorder), torch.zeros(1, 1, 3, dtype=dtype)
    for stage in ("kept", "gone on with"):
        found = tap(stage, own)
        assert found.dtype == dtype and found.shape == (1, 1, 3)
        np.testing.assert_array_equal(found[0].float().numpy(), given.astype(np.float32))
    assert list(recorder.stages) == ["kept"] and not recorder.stages["kept"].any()
    found.zero_()  # whoever goes on may change it
    assert tap("other", own) is own and given.all()
