"""The session and the fakes of the tests of isolated sessions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.processes import FakeMaker, fakes
from tests.support.tiny_checkpoints import noise, tiny_sensevoice
from workbench.core.settings import SessionSpec
from workbench.isolation.loader import open_here
from workbench.isolation.serial import ProcessSession
from workbench.session.values import Transcript


@pytest.fixture(scope="package")
def spec(tmp_path_factory: pytest.TempPathFactory) -> SessionSpec:
    return SessionSpec("tiny", "sensevoice", "pytorch", tiny_sensevoice(tmp_path_factory.mktemp("tiny")))


@pytest.fixture(scope="package")
def session(spec: SessionSpec) -> Iterator[ProcessSession]:
    """One real model; a test that kills its process leaves it to be started again."""
    with ProcessSession(spec) as session:
        yield session


@pytest.fixture(scope="package")
def expected(spec: SessionSpec) -> Transcript:
    return open_here(spec).transcribe(noise(2.0))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMaker]:
    yield from fakes(monkeypatch)
