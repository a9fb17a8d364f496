"""safetensors files are written in chunks of rows and read back with the safetensors library."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="needs PyTorch")

from safetensors import safe_open  # noqa: E402
from safetensors.torch import load  # noqa: E402

from workbench.conversion.vllm_checkpoint import tensors  # noqa: E402
from workbench.conversion.vllm_checkpoint.tensors import SAFETENSORS_NAMES, stored_tensor, write_safetensors  # noqa: E402
from workbench.core.errors import BadInput  # noqa: E402

WEIGHTS = sorted((dtype for dtype in SAFETENSORS_NAMES if dtype.is_floating_point), key=str)
SHAPES = st.lists(st.lists(st.integers(1, 7), min_size=1, max_size=3), max_size=4)


@settings(deadline=None, max_examples=50)
@given(shapes=SHAPES, dtypes=st.data(), chunk=st.integers(1, 20))
def test_written_tensors_are_read_back_unchanged(
    shapes: list[list[int]], dtypes: st.DataObject, chunk: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    draw = torch.Generator().manual_seed(1)
    values = {}
    for number, shape in enumerate(shapes):
        dtype = dtypes.draw(st.sampled_from(WEIGHTS))
        values[f"tensor {number} ä"] = torch.randn(shape, generator=draw).to(dtype).transpose(0, -1)
    progress = []
    path = tmp_path_factory.getbasetemp() / "it.safetensors"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensors, "CHUNK_VALUES", chunk)
        planned = [stored_tensor(name, value) for name, value in values.items()]
        write_safetensors(planned, path, "the test", lambda tensor, count: progress.append((tensor.name, count)))
    read = load(path.read_bytes())
    assert sorted(read) == sorted(values)
    assert all(read[name].dtype == value.dtype and torch.equal(read[name], value) for name, value in values.items())
    assert sum(count for _, count in progress) == sum(value.nbytes for value in values.values())
    assert all(tensor.nbytes == values[tensor.name].nbytes for tensor in planned)
    with safe_open(path, "pt") as file:
        assert file.metadata() == {"format": "pt"}


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_values_that_are_not_finite_are_refused(value: float, tmp_path: Path) -> None:
    bad = torch.ones(30, 2)
    bad[29, 1] = value
    with pytest.raises(BadInput, match=r"it/model\.pt: tensor bad holds values that are not finite"):
        write_safetensors([stored_tensor("bad", bad)], tmp_path / "it", "it/model.pt", lambda *_: None)


def test_the_counter_of_a_batch_norm_is_written(tmp_path: Path) -> None:
    name, count = "norm.num_batches_tracked", torch.tensor(7)
    write_safetensors([stored_tensor(name, count)], tmp_path / "it", "it", lambda *_: None)
    read = load((tmp_path / "it").read_bytes())[name]
    assert read.dtype == torch.int64 and read.shape == () and read.item() == 7


def test_integer_tensors_are_refused() -> None:
    with pytest.raises(BadInput, match=r"it/model\.pt: tensor count holds torch\.int64; expected one of float32"):
        stored_tensor("count", torch.ones(3, dtype=torch.int64), where="it/model.pt")
