"""A registry of sessions that are fake, for the tests of parity runs."""

from __future__ import annotations

import pytest

from tests.support.fake_lab import FakeRegistry


@pytest.fixture
def fakes() -> FakeRegistry:
    return FakeRegistry()
