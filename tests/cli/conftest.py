"""Models, recordings and sessions that commands share, as loading a model takes longer than most commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import FAKE_CHILD
from tests.support.tiny_checkpoints import noise, tiny_paraformer, tiny_sensevoice
from tests.support.tiny_language import tiny_language
from workbench.audio.read import write_wav
from workbench.cli import commands, transcribe
from workbench.isolation import serial
from workbench.registry.handle import OpenSession
from workbench.registry.registry import Registry


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three models and two recordings."""
    folder = tmp_path_factory.mktemp("cli")
    tiny_language(folder / "qwen3", seed=3)
    tiny_sensevoice(folder / "sensevoice")
    tiny_paraformer(folder / "paraformer")
    write_wav(folder / "long.wav", noise(6.0)[0])
    write_wav(folder / "short.wav", noise(1.0)[0])
    (folder / "bad.wav").write_text("this is no sound\n" * 20)
    return folder


@pytest.fixture
def in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions of `tests.support.fake_worker`, which act as the recording's name says; no such file exists."""
    monkeypatch.setattr(serial, "CHILD", FAKE_CHILD)
    monkeypatch.setattr(transcribe, "check_sound", lambda path: None)


class LastingRegistry(Registry):
    """A registry whose sessions stay loaded when a command has closed it."""

    def __init__(self) -> None:
        super().__init__()
        self._open_sessions: list[OpenSession] = []

    def open(self, *model: Any, **settings: Any) -> OpenSession:
        session = super().open(*model, **settings)
        self._open_sessions.append(super().open(*model, **settings))
        return session

    def close(self) -> None:
        """Does nothing: `end` closes it."""

    def end(self) -> None:
        super().close()


@pytest.fixture(scope="module")
def _lasting() -> Iterator[LastingRegistry]:
    registry = LastingRegistry()
    yield registry
    registry.end()


@pytest.fixture
def lasting_sessions(_lasting: LastingRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands in this process use one registry, which keeps the models of earlier commands loaded."""
    monkeypatch.setattr(commands, "Registry", lambda: _lasting)
