"""An open page whose connection to the server breaks off, or whose files the server no longer has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from panels.serving import UPLOADS
from tests.panels.conftest import Served
from tests.panels.test_transcribe_page import add_files, expect, open_page
from tests.support.fake_panels import tone

pytestmark = [pytest.mark.browser, pytest.mark.tabs("transcribe")]


def test_page_asks_before_it_loads_again_after_a_lost_connection(served: Served, visit: Callable[[int], Any]) -> None:
    page = visit(390)
    open_page(page, served)
    page.locator("button.sample").first.click()
    expect(page.locator("#recordings")).to_contain_text("three_seven_one")
    page.locator("#reference textarea").fill("my own words")
    page.context.set_offline(True)
    page.locator("#run").click()
    notice = page.get_by_role("alert").filter(has_text="server")
    expect(notice).to_contain_text("is lost")
    page.context.set_offline(False)
    expect(notice).to_contain_text("answers again")
    expect(page.locator(".toast-close")).to_have_count(0)
    expect(page.locator("#reference textarea")).to_have_value("my own words")
    page.get_by_role("button", name="Load the page again").click()
    expect(page.locator("#reference textarea")).to_have_value("")
    expect(notice).to_have_count(0)


def test_run_with_a_file_from_before_a_restart_says_so(
    served: Served, visit: Callable[[int], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = visit(1280)
    open_page(page, served)
    add_files(page, tone(tmp_path / "mine.wav"))
    monkeypatch.setenv(UPLOADS, str(tmp_path / "uploads after a restart"))
    page.locator("#run").click()
    expect(page.locator(".toast-body")).to_contain_text("the server no longer has a file that is chosen here")
