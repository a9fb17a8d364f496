"""Placeholders instead of weight files, such as Git LFS pointers, are reported by every weight reader."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.support.tiny_language import tiny_language
from workbench.core.errors import BadInput
from workbench.families.language.directory import read_language_config
from workbench.formats.gguf_file import read_gguf
from workbench.formats.weight_files import check_downloaded
from workbench.registry.catalogue import Catalogue, find_card
from workbench.runtimes.pytorch.checkpoints.fireredasr_package import read_package
from workbench.runtimes.pytorch.checkpoints.weights import read_safetensors, read_state_dict
from workbench.runtimes.pytorch.language_models.language import open_language

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22e\nsize 936291369\n"
PAGE = b"\n<!DOCTYPE html>\n<html><head><title>Sign in</title></head></html>\n"


def card_of(path: Path) -> object:
    return find_card(path, Catalogue(()))


@pytest.mark.parametrize("read", [read_state_dict, read_safetensors, read_package, read_gguf, card_of])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (POINTER, "is a Git LFS pointer, not the weights; run git lfs pull in its repository"),
        (PAGE, "is an HTML page, not the weights; download the file itself"),
    ],
)
def test_weight_file_placeholder_raises_an_error_with_its_kind(
    read: Callable[[Path], object], content: bytes, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(content)
    with pytest.raises(BadInput) as caught:
        read(path)
    assert str(caught.value).endswith(f"model.pt {message}")


def test_language_model_with_a_git_lfs_pointer_raises_an_error(tmp_path: Path) -> None:
    directory = tiny_language(tmp_path / "it")
    (directory / "model.safetensors").write_bytes(POINTER)
    with pytest.raises(
        BadInput, match=r"^it/model\.safetensors is a Git LFS pointer, not the weights; run git lfs pull"
    ):
        open_language(read_language_config(directory), torch.device("cpu"))


def test_other_weight_files_pass_the_placeholder_check(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"GG")
    for name in ("short", "absent", "a\0name"):
        check_downloaded(tmp_path / name, name)
