"""The stream of a page's events, in a browser: it goes on if the server ends it while an event is at work."""

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
READ = """async (presses) => {
  for (let press = 0; press < presses; press++) await (await fetch('/queue/join', {method: 'POST'})).json();
  return (await fetch('/queue/data?session_hash=x')).text();
}"""


def completed(event: str) -> dict[str, Any]:
    return {"msg": "process_completed", "event_id": event, "output": {"data": ["€ \n\n"]}, "success": True}


def stream(*messages: dict[str, Any]) -> str:
    return "".join(f"data: {json.dumps(each, ensure_ascii=False, separators=(',', ':'))}\n\n" for each in messages)


@pytest.mark.parametrize(
    "events, answers, received",
    [
        ("a", [[completed("a"), END]], [completed("a"), END]),
        ("ab", [[completed("a"), END], [completed("b"), END]], [completed("a"), completed("b"), END]),
        ("ab", [[completed("a"), END], [FORGOTTEN]], [completed("a"), END]),
        ("a", [[FORGOTTEN]], [FORGOTTEN]),
    ],
    ids=["one event", "press at the end", "forgotten event", "unknown session"],
)
def test_stream_goes_on_while_an_event_is_at_work(
    visit: Callable[[int], Any], events: str, answers: list[list[dict[str, Any]]], received: list[dict[str, Any]]
) -> None:
    page = visit(390)
    joined, ended = iter(events), iter(answers)
    page.route(SITE, lambda route: route.fulfill(body="<p></p>", content_type="text/html"))
    page.route("**/queue/join", lambda route: route.fulfill(json={"event_id": next(joined)}))
    page.route("**/queue/data*", lambda route: route.fulfill(body=stream(*next(ended))))
    page.goto(SITE)
    page.add_script_tag(content=(assets() / "event_stream.js").read_text(encoding="utf-8"))
    assert page.evaluate(READ, len(events)) == stream(*received)
    assert next(ended, None) is None
