"""The waiting message of visitors behind the runs of others, in a real browser at both widths."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from panels.running.sessions import SessionPool
from tests.panels.conftest import Served, serve
from tests.panels.test_transcribe_page import add_files, expect, open_page
from tests.support.fake_panels import FakeRegistry, FakeSession, tone
from tests.support.widths import no_sideways_scroll
from workbench.serving.admission.guard import Guard
from workbench.session.values import Event

pytestmark = pytest.mark.tabs("transcribe")


class InLine(FakeSession):
    """A session that takes one call at a time, as sessions in their own processes do."""

    guard: Guard

    def stream(self, audio: str, **options: Any) -> Iterator[Event]:
        with self.guard.turn(self.model):
            yield from super().stream(audio, **options)


@pytest.fixture
def line(tabs: str | None) -> Iterator[Served]:
    """The page over such sessions."""
    registry, guard = FakeRegistry(), Guard()
    registry.sessions = {name: InLine(name, "pytorch", "three", registry.gate, {}) for name in registry.sessions}
    for session in registry.sessions.values():
        session.guard = guard  # type: ignore[attr-defined]
    yield from serve(SessionPool(registry, guard=guard), tabs)  # type: ignore[arg-type]


@pytest.mark.browser
def test_waiting_visitors_see_their_queue_position_and_waiting_time(
    line: Served, page: Any, chromium: Any, tmp_path: Path
) -> None:
    sound = tone(tmp_path / "a.wav")
    line.registry.gate.clear()
    with ExitStack() as ends:
        ends.callback(line.registry.gate.set)
        pages = [page]
        for width in (1280, 390):
            context = chromium.new_context(viewport={"width": width, "height": 844})
            ends.callback(context.close)
            pages.append(context.new_page())
        for place, visitor_page in enumerate(pages):
            open_page(visitor_page, line)
            add_files(visitor_page, sound)
            visitor_page.locator("#models input").nth(1).uncheck()
            visitor_page.locator("#run").click()
            result = visitor_page.locator("#results .result.running")
            if place:
                expect(result).to_contain_text(
                    re.compile(rf"waiting for another visitor's run \(position {place}, about \d+ s\)")
                )
                assert no_sideways_scroll(visitor_page)
            else:
                expect(result).to_be_visible()
        line.registry.gate.set()
        for visitor_page in pages:
            expect(visitor_page.locator(".result.done")).to_have_count(1)
