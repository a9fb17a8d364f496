"""The height of the Models tab on a phone, with all models of the workbench listed and four in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from panels.running.sessions import SessionPool
from tests.panels.conftest import DEMOS, Served, serve
from tests.panels.test_transcribe_page import expect
from tests.support.fake_panels import FakeRegistry
from tests.support.widths import no_sideways_scroll
from workbench.registry.catalogue import read_catalogue
from workbench.registry.registry import Residency

HEIGHT, SCREENS = 844, 3


class Loaded(FakeRegistry):
    """The cards that are shipped, and four demo models in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.listed = read_catalogue().cards

    def residents(self) -> list[Residency]:
        return [Residency(name, "pytorch", 283 << 20, False, 30.0, load_seconds=7.5) for name in DEMOS[:4]]


@pytest.fixture
def full(tabs: str | None) -> Iterator[Served]:
    """The page over that registry."""
    yield from serve(SessionPool(Loaded()), tabs)  # type: ignore[arg-type]


@pytest.mark.browser
@pytest.mark.tabs("transcribe,models")
def test_models_tab_takes_at_most_three_screens_on_a_phone(full: Served, page: Any, record_property: Any) -> None:
    page.set_viewport_size({"width": 390, "height": HEIGHT})
    page.goto(full.url)
    page.get_by_role("tab", name="Models").click()
    expect(page.locator("#residents tbody tr")).to_have_count(4)
    expect(page.locator("#cards tbody tr")).to_have_count(len(full.registry.listed))
    height = page.evaluate("document.documentElement.scrollHeight")
    record_property("pixels", height)
    assert height <= SCREENS * HEIGHT
    assert no_sideways_scroll(page)
