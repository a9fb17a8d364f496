"""Cards and fake models of the tests of the registry."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.processes import FAKE_CHILD
from tests.support.tiny_checkpoints import claiming_checkpoints
from tests.support.user_cards import AddCard, card_writer
from workbench.isolation import serial


@pytest.fixture
def add_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AddCard:
    """Adds a card to the user's own file."""
    file = tmp_path / "models.toml"
    monkeypatch.setenv("WORKBENCH_MODELS", str(file))
    return card_writer(file)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions of `tests.support.fake_worker`, which start in a moment."""
    monkeypatch.setattr(serial, "CHILD", FAKE_CHILD)


@pytest.fixture
def models(fake: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Models that claim 1 GB of weights each; their processes are fakes, and loading the last never ends."""
    return claiming_checkpoints(tmp_path, monkeypatch)
