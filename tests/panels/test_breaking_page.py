"""The card "Break it yourself" of the Parity tab in a browser: a planted fault is named, a hidden one is guessed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from panels.parity import breaking
from tests.panels.conftest import Served
from tests.panels.test_parity_page import open_tab
from tests.panels.test_transcribe_page import LONG, expect
from tests.support.browser import unfold
from tests.support.widths import no_sideways_scroll
from workbench.parity_lab.breaking import find_fault

pytestmark = [pytest.mark.tabs("parity"), pytest.mark.browser, pytest.mark.slow]
WIDTHS = {"desktop": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 844}}


@pytest.fixture
def card(request: pytest.FixtureRequest, demos: Served, page: Any) -> Iterator[Any]:
    """The page with the card open."""
    page.set_viewport_size(WIDTHS[request.param])
    open_tab(page, demos)
    unfold(page, "Break it yourself")
    expect(page.locator("#parity-plant")).to_be_visible()
    yield page
    page.set_viewport_size(WIDTHS["desktop"])


def choose(page: Any, name: str, value: str) -> None:
    """Picks a value of a dropdown."""
    field = page.locator(f"#{name} input")
    field.click()
    page.get_by_role("option", name=value, exact=True).click()
    expect(field).to_have_value(value)


@pytest.mark.parametrize("card", ["phone"], indirect=True)
def test_planted_fault_is_reported_with_its_stage_and_scrolled_into_view(card: Any) -> None:
    card.get_by_label("Layer 2 skipped").check()
    card.locator("#parity-plant").click()
    verdict = card.locator("#parity-results section.verdict.beyond")
    expect(verdict).to_contain_text("llm.layers.2", timeout=2 * LONG)
    expect(card.locator("#parity-results")).to_be_in_viewport()
    expect(card.locator("#parity-closer h3")).to_contain_text("llm.layers.2")
    expect(card.locator("#parity-closer img").first).to_be_visible()
    assert no_sideways_scroll(card)


@pytest.mark.parametrize("card", ["desktop"], indirect=True)
def test_guess_of_a_hidden_fault_is_scored(card: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breaking.random, "choice", lambda _: find_fault("cmvn"))
    answer, reveal = card.locator("#parity-answer"), card.locator("#parity-reveal")
    reveal.click()
    expect(card.locator(".toast-body").last).to_contain_text("nothing is hidden; press Hide a change first")

    card.locator("#parity-hide").click()
    expect(answer).to_contain_text("Which stage is the first wrong one, if there is one?", timeout=2 * LONG)
    results = card.locator("#parity-results")
    expect(results).to_contain_text("hidden change")
    expect(results.locator("section.verdict")).to_have_count(0)
    expect(results).not_to_contain_text("CMVN")
    reveal.click()
    expect(card.locator(".toast-body").last).to_contain_text("choose the first wrong stage")

    choose(card, "parity-guess", "frontend.features")
    choose(card, "parity-kind", "RoPE base")
    reveal.click()
    expect(answer).to_contain_text("The first wrong stage is frontend.features: right")
    expect(answer).to_contain_text("What was changed: not what you chose")
    expect(answer).to_contain_text("1 of 2 points")
    expect(results.locator("section.verdict.beyond")).to_contain_text("frontend.features")
    assert no_sideways_scroll(card)
