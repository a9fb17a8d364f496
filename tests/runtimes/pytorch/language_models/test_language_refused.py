"""Language model directories that are refused, with the tensor or the file that is at fault."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.runtimes.pytorch.language_models.test_language import open_model
from tests.support.tiny_language import tiny_language
from workbench.core.errors import BadInput


def test_unknown_dtype_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"^dtype is 'int8'; expected one of float32, bfloat16, float16, float64$"):
        open_model(tiny_language(tmp_path / "it"), "int8")


def change_tensors(directory: Path, **changes: torch.Tensor | None) -> None:
    file = directory / "model.safetensors"
    tensors = {**load_file(file), **{name.replace("__", "."): value for name, value in changes.items()}}
    save_file({name: value for name, value in tensors.items() if value is not None}, file, metadata={"format": "pt"})


def test_missing_tensor_is_refused_by_name(tmp_path: Path) -> None:
    directory = tiny_language(tmp_path / "it")
    change_tensors(directory, model__layers__1__mlp__up_proj__weight=None, model__norm__weight=None)
    with pytest.raises(
        BadInput, match=r"^it lacks language tensor model\.layers\.1\.mlp\.up_proj\.weight \(and 1 more"
    ):
        open_model(directory)


def test_extra_tensor_is_refused_by_name(tmp_path: Path) -> None:
    directory = tiny_language(tmp_path / "it")
    change_tensors(directory, model__vision__weight=torch.zeros(3))
    with pytest.raises(
        BadInput, match=r"^it has language tensor model\.vision\.weight, which its network does not have"
    ):
        open_model(directory)


def test_misshapen_tensor_is_refused_by_name(tmp_path: Path) -> None:
    directory = tiny_language(tmp_path / "it")
    change_tensors(directory, model__norm__weight=torch.zeros(31))
    with pytest.raises(
        BadInput, match=r"^it: tensor model\.norm\.weight has shape \(31,\); it/config\.json calls for \(32,\)"
    ):
        open_model(directory)


@pytest.mark.parametrize("size", [0, 7, 1000, -1])
def test_truncated_weights_raise_one_line_error(tmp_path: Path, size: int) -> None:
    directory = tiny_language(tmp_path / "it")
    file = directory / "model.safetensors"
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(BadInput, match=r"^the language model in it cannot be loaded: .") as caught:
        open_model(directory)
    assert "\n" not in str(caught.value)


def test_directory_without_weights_is_refused(tmp_path: Path) -> None:
    directory = tiny_language(tmp_path / "it")
    (directory / "model.safetensors").unlink()
    with pytest.raises(BadInput, match=r"cannot be loaded: .*no file named model\.safetensors"):
        open_model(directory)
