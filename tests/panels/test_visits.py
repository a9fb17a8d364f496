"""What a visitor of the page keeps: tabs have addresses, a link shows what it leads to, a key begins the main job."""

from __future__ import annotations

import io
import re
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from panels.running.sessions import SessionPool
from panels.sharing import PICTURE_SIZE, with_tags
from tests.panels.conftest import Served, serve
from tests.panels.test_transcribe_page import expect, open_page
from tests.support.browser import PATIENCE
from tests.support.fake_panels import FakeRegistry

WIDTHS = pytest.mark.parametrize("width", [1280, 390])


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The user's folders, which the tests of this file share, as they share the page."""
    return tmp_path_factory.mktemp("visits")


@pytest.fixture(scope="module")
def bench(home: Path) -> Iterator[Served]:
    """The page over fake models."""
    with pytest.MonkeyPatch.context() as patch:
        _live_in(home, patch)
        yield from serve(SessionPool(FakeRegistry()))  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def at_home(user_folders: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _live_in(home, monkeypatch)


def _live_in(home: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    patch.setenv("GRADIO_TEMP_DIR", str(home / "uploads"))


@pytest.fixture
def visit(chromium: Any) -> Iterator[Callable[[int], Any]]:
    """Opens a browser's page of a width; each is a visitor of its own, without anything kept."""
    contexts, faults = [], list[str]()

    def enter(width: int) -> Any:
        contexts.append(chromium.new_context(viewport={"width": width, "height": 844}, accept_downloads=True))
        contexts[-1].set_default_timeout(PATIENCE)
        page = contexts[-1].new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        return page

    yield enter
    for each in contexts:
        each.close()
    assert not faults, "a script of the page failed"


def tab_of(page: Any) -> Any:
    return page.locator("#tabs button[data-tab-id][aria-selected=true]")


@pytest.mark.browser
@WIDTHS
def test_the_address_follows_the_tab_and_back_returns(bench: Served, visit: Callable[[int], Any], width: int) -> None:
    page = visit(width)
    page.goto(f"{bench.url}#parity")
    expect(tab_of(page)).to_have_text("Parity")
    expect(page.locator("#parity-run")).to_be_visible()
    page.get_by_role("tab", name="Decode").click()
    assert page.url.endswith("/#decode") and page.title() == "Decode · Speech Workbench"
    page.get_by_role("tab", name="Decode").click()  # the same again is no step
    page.go_back()
    expect(tab_of(page)).to_have_text("Parity")
    assert page.url.endswith("/#parity")
    page.go_forward()
    expect(page.locator("#decode-run")).to_be_visible()
    page.evaluate("location.hash = '#nonsense'")  # leads to the first tab
    expect(tab_of(page)).to_have_text("Transcribe")


@pytest.mark.browser
def test_ctrl_and_enter_press_the_main_button(bench: Served, visit: Callable[[int], Any]) -> None:
    page = visit(1280)
    open_page(page, bench)
    page.locator("button.sample").first.click()
    expect(page.locator("#recordings")).to_contain_text("three_seven_one")
    page.locator("#reference textarea").press("Control+Enter")
    expect(page.locator(".result.done")).to_have_count(2)
    expect(page.locator("#reference textarea")).to_have_value("three seven one")


def test_a_link_shows_title_sentence_and_picture(bench: Served) -> None:
    from PIL import Image

    request = urllib.request.Request(
        bench.url, headers={"X-Forwarded-Host": "speech.example.org", "X-Forwarded-Proto": "https"}
    )
    html = urllib.request.urlopen(request).read().decode()
    tags = dict(re.findall(r'<meta (?:property|name)="([a-z:_]+)" content="([^"]*)">', html))
    assert tags["og:title"] == tags["twitter:title"] == "Speech Workbench"
    assert tags["og:url"] == "https://speech.example.org/"
    assert tags["og:image"] == tags["twitter:image"] == "https://speech.example.org/link.png"
    assert len(tags["og:description"]) > 40 and "gradio" not in "".join(tags.values()).lower()
    picture = urllib.request.urlopen(f"{bench.url}link.png").read()
    with Image.open(io.BytesIO(picture)) as shown:
        assert shown.size == PICTURE_SIZE
    assert b"<svg" in urllib.request.urlopen(f"{bench.url}favicon.ico").read()


def test_tags_hold_text_only() -> None:
    html = with_tags(b'<head>\n<meta\n property="og:title" content="x" />\n</head>', 'A "<b>" title', "http://a/b")
    assert html.count(b"og:title") == 1 and b"A &#34;&lt;b&gt;&#34; title" in html and b"http://a/b/link.png" in html
