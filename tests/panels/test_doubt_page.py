"""The doubt line under a recording outside a model's domain, and its button, in a real browser at both widths."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from panels.running.sessions import SessionPool
from tests.panels.conftest import Served, serve
from tests.panels.test_transcribe_page import add_files, expect, open_page
from tests.support.fake_panels import CARDS, FakeRegistry, FakeSession, tone
from tests.support.widths import fits_a_phone_and_a_desk
from workbench.session.values import Doubt, Event, Transcript

pytestmark = pytest.mark.tabs("transcribe")
SENTENCE = "this sounds like other speech, and the model knows English digits only"


class Doubting(FakeSession):
    """A session that doubts its transcripts."""

    def stream(self, audio: str, **options: Any) -> Iterator[Event]:
        for event in super().stream(audio, **options):
            yield replace(event, doubt=Doubt("other speech", SENTENCE)) if isinstance(event, Transcript) else event


class Narrow(FakeRegistry):
    """Two models of English digits that doubt, and one from afar that knows all speech."""

    def __init__(self) -> None:
        super().__init__()
        self.listed = tuple(
            replace(card, domain="english-digits") if card.id in self.sessions else card for card in CARDS
        )
        self.sessions = {name: Doubting(name, "pytorch", "three seven one", self.gate, {}) for name in self.sessions}


@pytest.fixture
def narrow(tabs: str | None) -> Iterator[Served]:
    """The page over that registry."""
    yield from serve(SessionPool(Narrow()), tabs)  # type: ignore[arg-type]


@pytest.mark.browser
def test_doubt_line_has_a_button_that_selects_a_broader_model(narrow: Served, page: Any, tmp_path: Path) -> None:
    open_page(page, narrow)
    add_files(page, tone(tmp_path / "speech.wav"))
    page.locator("#run").click()
    doubt = page.locator("#results .doubt")
    expect(doubt).to_have_count(1)
    expect(doubt).to_contain_text("This sounds like other speech, and these models know English digits only.")
    assert fits_a_phone_and_a_desk(page)
    doubt.get_by_role("button", name="Transcribe with Fake from afar (940 MB)").click()
    expect(page.locator("#models input:checked")).to_have_count(1)
    expect(page.locator("#results")).to_contain_text("the hub cannot be reached")  # the run has begun
