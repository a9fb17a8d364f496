"""The page on paper: the results of the open tab, without buttons and inputs, in the colours of the day."""

from __future__ import annotations

from typing import Any

import pytest

from tests.panels.conftest import Served
from tests.panels.test_transcribe_page import expect, open_page

pytestmark = [pytest.mark.browser, pytest.mark.tabs("transcribe,chat,models")]

# What one presses or fills in, and what stands beside results on the screen.
ACTIONS = """() => [...document.querySelectorAll('button, select, input[type=file], summary, footer, .inputs')]
  .filter((each) => each.checkVisibility() && !each.matches('.names button'))
  .map((each) => `${each.tagName} ${each.className} ${each.textContent.trim().slice(0, 30)}`)"""
COLOURS = """() => [document.querySelector('.result .heard'), document.querySelector('.result h4')]
  .map((each) => getComputedStyle(each)).map((style) => [style.color, style.backgroundColor])
  .concat([getComputedStyle(document.body).backgroundColor])"""
WIDTHS = "[...document.querySelectorAll('.timeline canvas')].map((each) => each.width)"


def printed(page: Any) -> list[str]:
    """Returns the actions that would be on paper."""
    page.emulate_media(media="print")
    found: list[str] = page.evaluate(ACTIONS)
    return found


def test_results_are_printed_alone_and_in_the_same_colours_by_night(served: Served, page: Any) -> None:
    colours = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme, media="screen")
        open_page(page, served)
        page.locator("button.sample").first.click()
        expect(page.locator("#recordings")).to_contain_text("three_seven_one")
        page.locator("#run").click()
        page.locator(".result.done").nth(1).get_by_role("button", name="Segments and export").click()
        expect(page.locator(".timeline[data-ready=whole]:visible")).to_be_visible()
        expect(page.locator(".segment")).to_have_count(3)
        assert printed(page) == []
        results = page.locator("#results").bounding_box()
        assert results["x"] == 0 and results["width"] == page.evaluate("document.documentElement.clientWidth")
        assert page.locator(".segment textarea").first.bounding_box()["width"] > 200
        colours.append(page.evaluate(COLOURS))
    assert colours[0] == colours[1] and colours[0][-1] == "rgb(255, 255, 255)"
    for tab in ("Chat", "Models"):
        page.emulate_media(media="screen")
        page.get_by_role("tab", name=tab).click()
        expect(page.locator("#chat-text, #engine-log, .cards").locator("visible=true").first).to_be_visible()
        assert printed(page) == [], tab


def test_paper_has_the_timeline_as_the_screen_has_it(served: Served, page: Any) -> None:
    open_page(page, served)
    page.locator("button.sample").first.click()
    expect(page.locator(".timeline[data-ready=whole]:visible")).to_be_visible()
    before = page.evaluate(WIDTHS)
    page.evaluate(f"() => {{ addEventListener('afterprint', () => {{ window.onPaper = {WIDTHS}; }}); }}")
    page.pdf(format="A5")
    page.wait_for_function("window.onPaper")
    assert page.evaluate("window.onPaper") == before and max(before) > 300, "drawn while it is printed, it is empty"
