"""Tiny SpeechLM checkpoints in both forms, and copies of them to be broken."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.tiny_speechlm import TinySpeechLm, tiny_espnet_release, tiny_speechlm


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> TinySpeechLm:
    return tiny_speechlm(tmp_path_factory.mktemp("speechlm") / "it")


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> TinySpeechLm:
    return tiny_espnet_release(tmp_path_factory.mktemp("release") / "it")


@pytest.fixture
def directory(checkpoint: TinySpeechLm, tmp_path: Path) -> Path:
    """One to be broken."""
    return shutil.copytree(checkpoint.directory, tmp_path / "it")


@pytest.fixture
def release(released: TinySpeechLm, tmp_path: Path) -> Path:
    """One to be broken."""
    return shutil.copytree(released.directory, tmp_path / "it")
