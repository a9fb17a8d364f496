"""Sessions that several commands of one test file share, as loading a model takes longer than most commands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from workbench.cli import commands
from workbench.registry.handle import OpenSession
from workbench.registry.registry import Registry


class LastingRegistry(Registry):
    """A registry whose sessions stay loaded when a command has closed it."""

    def __init__(self) -> None:
        super().__init__()
        self._held: list[OpenSession] = []

    def open(self, *model: Any, **settings: Any) -> OpenSession:
        opened = super().open(*model, **settings)
        self._held.append(super().open(*model, **settings))
        return opened

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
