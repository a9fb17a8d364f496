"""Button presses before the server has answered an event that they depend on, in a real browser."""

from __future__ import annotations

import functools
import inspect
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from panels.page import build_page
from panels.running.sessions import SessionPool
from panels.transcribe.events import Actions
from tests.panels.conftest import Served
from tests.panels.test_transcribe_page import expect, open_page
from tests.support.browser import PATIENCE
from workbench.core.errors import BadInput


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """The gate for the answers of `slow`, which opens at the latest when the test ends."""
    gate = threading.Event()
    yield gate
    gate.set()


def slow(patch: pytest.MonkeyPatch, gate: threading.Event, actions: type, name: str) -> threading.Event:
    """Makes the event handler of that name wait for the gate; call it before the page starts.

    Returns an event that is set once the handler waits.
    """
    answer, waits = getattr(actions, name), threading.Event()

    @functools.wraps(answer)
    def wait_and_answer(*args: Any, **kwargs: Any) -> Any:
        waits.set()
        assert gate.wait(PATIENCE / 1000)
        return answer(*args, **kwargs)

    patch.setattr(actions, name, wait_and_answer)
    return waits


@pytest.fixture
def slow_samples(monkeypatch: pytest.MonkeyPatch, gate: threading.Event) -> threading.Event:
    return slow(monkeypatch, gate, Actions, "pick_sample")


@pytest.fixture
def slow_models(monkeypatch: pytest.MonkeyPatch, gate: threading.Event) -> None:
    slow(monkeypatch, gate, Actions, "refresh")


@pytest.fixture
def slow_rows(monkeypatch: pytest.MonkeyPatch, gate: threading.Event) -> None:
    slow(monkeypatch, gate, Actions, "look")


@pytest.fixture
def failing_samples(monkeypatch: pytest.MonkeyPatch, gate: threading.Event) -> None:
    """A clicked sample fails once the gate opens."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        gate.wait(PATIENCE / 1000)
        raise BadInput("there is no such sample")

    monkeypatch.setattr(Actions, "pick_sample", refuse)


@pytest.mark.browser
@pytest.mark.tabs("transcribe")
def test_run_starts_after_the_pending_sample_and_models_arrive(
    slow_samples: threading.Event, slow_models: None, gate: threading.Event, served: Served, page: Any
) -> None:
    page.goto(served.url)
    page.locator("button.sample").first.click()
    page.locator("#run").click()
    expect(page.locator("#run")).to_have_attribute("aria-busy", "true")
    gate.set()
    expect(page.locator(".result.done")).to_have_count(2)
    expect(page.locator("#run")).not_to_have_attribute("aria-busy", re.compile(""))
    expect(page.locator(".toast-body")).to_have_count(0)


@pytest.mark.browser
@pytest.mark.tabs("transcribe")
def test_last_of_two_clicked_samples_is_used(
    slow_samples: threading.Event, gate: threading.Event, served: Served, page: Any
) -> None:
    open_page(page, served)
    first, second = page.locator("button.sample").all()[:2]
    first.click()
    assert slow_samples.wait(PATIENCE / 1000)  # on a busy machine, requests of the same moment may swap
    second.click()
    gate.set()
    text = second.locator("span").inner_text()
    expect(page.locator("#reference textarea")).to_have_value(text)
    expect(page.locator("#recordings")).to_contain_text(text.replace(" ", "_"))


@pytest.mark.browser
@pytest.mark.tabs("transcribe")
def test_waiting_run_continues_when_the_pending_sample_fails(
    failing_samples: None, gate: threading.Event, served: Served, page: Any
) -> None:
    open_page(page, served)
    page.locator("button.sample").first.click()
    page.locator("#run").click()
    expect(page.locator("#run")).to_have_attribute("aria-busy", "true")
    gate.set()
    expect(page.locator(".toast-body").filter(has_text="there is no recording")).to_be_visible()


@pytest.mark.browser
@pytest.mark.tabs("transcribe")
def test_last_of_two_clicked_rows_is_opened(slow_rows: None, gate: threading.Event, served: Served, page: Any) -> None:
    open_page(page, served)
    page.locator("button.sample").first.click()
    page.locator("#run").click()
    rows = page.locator(".result.done")
    expect(rows).to_have_count(2)
    expect(page.locator("#closer h3")).to_be_visible()
    for index in (0, 1):
        rows.nth(index).get_by_text("Segments").click()
    gate.set()
    expect(page.locator("#closer h3")).to_contain_text(rows.nth(1).locator("h4").inner_text().split()[0])


def test_events_with_data_do_not_use_trigger_mode_always_last(pool: SessionPool) -> None:
    """For the trigger mode "always_last", Gradio would repeat the first press."""
    page = build_page(pool)
    with_data = [each for each in page.fns.values() if each.fn and "EventData" in str(inspect.signature(each.fn))]
    assert len(with_data) > 10
    assert not [each.name for each in with_data if each.trigger_mode == "always_last"]


def test_run_button_of_every_tab_with_samples_waits_for_the_sample(pool: SessionPool) -> None:
    """The browser's part is the same in all tabs."""
    scripts = [str(each.js) for each in build_page(pool).fns.values() if each.name == "pick_sample"]
    for tab in ("run", "parity-run", "decode-run", "visualise-run"):
        assert any("workbenchPresses.ask" in script and f'"{tab}"' in script for script in scripts), tab


@pytest.mark.browser
@pytest.mark.tabs("chat")
def test_chat_is_drawn_after_the_model_list_arrives(served: Served, page: Any) -> None:
    routes, answered = list[Any](), threading.Event()
    page.route("**/chat/offer", lambda route: route.continue_() if answered.is_set() else routes.append(route))
    with page.expect_request("**/chat/offer"):
        page.goto(served.url)
    expect(page.locator(".chat .loading")).to_have_text("Opening the chat")
    expect(page.locator(".composer")).to_have_count(0)
    answered.set()
    for each in routes:
        each.continue_()
    expect(page.locator(".chat[data-ready] .composer")).to_be_visible()
