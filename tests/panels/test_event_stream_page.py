"""The stream of a page's events, in a browser: the page sees one stream, however often the server ends it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from workbench.registry.sources import assets

pytestmark = pytest.mark.browser

SITE = "http://page.test/"
END = {"msg": "close_stream", "event_id": None}
FORGOTTEN = {"msg": "unexpected_error", "event_id": None, "message": "", "session_not_found": True}
BEGIN = """async (stream) => {
  window[stream] = '';
  const reader = (await fetch('/queue/data?session_hash=x')).body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const {done, value} = await reader.read();
    if (done) { window[stream] += '(end)'; return; }
    window[stream] += value;
  }
}"""
PRESS = "async () => (await fetch('/queue/join', {method: 'POST'})).json()"


def completed(event: str) -> dict[str, Any]:
    return {"msg": "process_completed", "event_id": event, "output": {"data": ["€ \n\n"]}, "success": True}


def stream(*messages: dict[str, Any]) -> str:
    return "".join(f"data: {json.dumps(each, ensure_ascii=False, separators=(',', ':'))}\n\n" for each in messages)


class Queue:
    """A queue whose server sends these messages, one list for each time that the page asks for its stream."""

    def __init__(self, page: Any, events: str, answers: list[list[dict[str, Any]]]):
        self.page, joined, self.answers = page, iter(events), iter(answers)
        page.route(SITE, lambda route: route.fulfill(body="<p></p>", content_type="text/html"))
        page.route("**/queue/join", lambda route: route.fulfill(json={"event_id": next(joined)}))
        page.route("**/queue/data*", lambda route: route.fulfill(body=stream(*next(self.answers))))
        page.goto(SITE)
        page.add_script_tag(content=(assets() / "event_stream.js").read_text(encoding="utf-8"))

    def begin(self, name: str = "first") -> None:
        """Asks for the stream, and reads it from then on."""
        self.page.evaluate(f"(name) => {{ ({BEGIN})(name); }}", name)

    def press(self) -> None:
        self.page.evaluate(PRESS)

    def expect(self, *messages: dict[str, Any], name: str = "first", end: str = "") -> None:
        """Waits until the page has read these messages, and fails if it reads others."""
        text = stream(*messages) + end
        self.page.wait_for_function("([name, length]) => window[name].length >= length", arg=[name, len(text)])
        assert self.page.evaluate("(name) => window[name]", name) == text


@pytest.mark.parametrize(
    "events, answers, received, end",
    [
        ("a", [[completed("a"), END]], [completed("a")], ""),
        ("ab", [[completed("a"), END], [completed("b"), END]], [completed("a"), completed("b")], ""),
        ("ab", [[completed("a"), END], [FORGOTTEN]], [completed("a"), END], "(end)"),
        ("a", [[FORGOTTEN]], [FORGOTTEN], "(end)"),
    ],
    ids=["one event", "press before the end", "forgotten event", "unknown session"],
)
def test_stream_goes_on_while_an_event_is_at_work(
    visit: Callable[[int], Any],
    events: str,
    answers: list[list[dict[str, Any]]],
    received: list[dict[str, Any]],
    end: str,
) -> None:
    queue = Queue(visit(390), events, answers)
    for _ in events:
        queue.press()
    queue.begin()
    queue.expect(*received, end=end)
    assert next(queue.answers, None) is None


def test_stream_goes_on_with_the_press_after_its_end(visit: Callable[[int], Any]) -> None:
    queue = Queue(visit(390), "abc", [[completed("a"), END], [completed("b"), END], [completed("c"), END]])
    queue.press()
    queue.begin()
    queue.expect(completed("a"))
    queue.press()
    queue.expect(completed("a"), completed("b"))
    queue.press()
    queue.expect(completed("a"), completed("b"), completed("c"))


def test_result_before_the_answer_to_its_press_is_not_waited_for(visit: Callable[[int], Any]) -> None:
    queue = Queue(visit(390), "abc", [[completed("a"), completed("b"), END], [completed("c"), END]])
    queue.press()
    queue.begin()
    queue.expect(completed("a"), completed("b"))
    queue.press()
    assert queue.page.evaluate("async () => { await new Promise(setTimeout); return window.first; }")
    queue.press()
    queue.expect(completed("a"), completed("b"), completed("c"))
    assert next(queue.answers, None) is None


def test_new_stream_ends_the_one_that_waits(visit: Callable[[int], Any]) -> None:
    queue = Queue(visit(390), "ab", [[completed("a"), END], [completed("b"), END]])
    queue.press()
    queue.begin()
    queue.expect(completed("a"))
    queue.begin("second")
    queue.expect(completed("a"), end="(end)")
    queue.press()
    queue.expect(completed("b"), name="second")
    assert next(queue.answers, None) is None
