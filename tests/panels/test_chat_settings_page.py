"""The settings of the Chat tab: what a visitor sets, and what the models get of it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.panels import test_chat_page as chat_page
from tests.panels.conftest import Served
from tests.panels.test_transcribe_page import expect

chat, usual, visit = chat_page.chat, chat_page.usual, chat_page.visit

# Hides or shows the tab, and returns when the browser has told the page.
SHOW = """async (display) => {
  document.querySelector('.chat').style.display = display;
  for (let frame = 0; frame < 2; frame++) await new Promise(requestAnimationFrame);
}"""


class HeldOffer:
    """The list of models that the page asks for when its tab is shown again; it arrives when the test says so."""

    def __init__(self, page: Any, changes: bool):
        self._changes, self._routes = changes, list[Any]()
        page.route("**/chat/offer", lambda route: self._routes.append(route))  # playwright takes no built-in method

    def arrive(self) -> None:
        assert self._routes
        for route in self._routes:
            answer = route.fetch()
            text = answer.text().replace("Fake SpeechLM", "Renamed SpeechLM") if self._changes else answer.text()
            route.fulfill(response=answer, body=text)


@pytest.mark.browser
@pytest.mark.parametrize("changes", [False, True])
def test_models_that_arrive_while_a_visitor_types_leave_the_focus(visit: Any, chat: Served, changes: bool) -> None:
    visitor = visit()
    page = visitor.page
    page.evaluate(SHOW, "none")
    offer = HeldOffer(page, changes)
    with page.expect_request("**/chat/offer"):
        page.evaluate(SHOW, "")
    option = page.locator("#chat-option-max_audio_rows")
    option.fill("130")
    page.keyboard.press("ArrowLeft")
    with page.expect_response("**/chat/offer"):
        offer.arrive()
    if changes:
        expect(page.locator(".chat-model")).to_have_text("Renamed SpeechLM")
    page.keyboard.press("Backspace")
    expect(option).to_have_value("10")
    visitor.say("one")
    expect(page.locator(".chat .answer .glance")).to_have_count(1)
    visitor.wait()
    assert chat.registry.speaker.calls[-1][1]["max_audio_rows"] == 10


@pytest.mark.browser
def test_infinite_option_is_refused_and_not_ignored(visit: Any) -> None:
    visitor = visit()
    visitor.set("cfg", "1e999")
    visitor.say("one")
    expect(visitor.page.locator(".chat .answer .fault")).to_contain_text("option cfg of fake/speech is inf; expected")


def test_the_runtimes_of_a_model_answer_side_by_side(visit: Any, chat: Served) -> None:
    visitor = visit()
    page = visitor.page
    visitor.set("max_audio_rows", "10")
    page.get_by_role("button", name="Compare the runtimes").click()
    visitor.say("all of you")
    visitor.wait()
    titles = page.locator(".chat .answer h4").all_text_contents()
    assert len(titles) == len(set(titles)) == 2 and "vLLM" in titles[1], titles
    for glance in page.locator(".chat .answer .glance").all_text_contents():
        assert re.search(r"first sound .*rows/s · 412 MB of memory", glance), glance
    assert [options.get("max_audio_rows") for _, options in chat.registry.speaker.calls[-2:]] == [10, 10]
