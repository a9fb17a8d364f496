"""Links to finished runs of the Parity, Decode and Inject tabs reopen the stored results on a desktop and a phone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from panels.running.sessions import SessionPool
from tests.panels.conftest import Served, live_in, serve
from tests.panels.test_transcribe_page import LONG, expect
from tests.support.browser import unfold
from tests.support.decoding_files import sounds_like, write_files
from tests.support.fake_injection import WIDTH, FakeInjectRegistry
from tests.support.fake_parity import FakeParityRegistry
from tests.support.widths import no_sideways_scroll
from workbench.families.language.directory import PLACEHOLDER

DESK, PHONE = 1280, 390  # pixels of width
EARLIER_RUN = "the stored results of an earlier run"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The user's folders, which the tests of this file share, as they share the pages."""
    return tmp_path_factory.mktemp("kept")


@pytest.fixture(autouse=True)
def at_home(user_folders: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live_in(home, monkeypatch)


@pytest.fixture(scope="module")
def lab(home: Path) -> Iterator[Served]:
    """The Parity tab over models that compute a small network."""
    with pytest.MonkeyPatch.context() as patch:
        live_in(home, patch)
        yield from serve(SessionPool(FakeParityRegistry()), "parity")  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def desk(home: Path) -> Iterator[Served]:
    """The tabs Decode and Inject over fake models."""
    with pytest.MonkeyPatch.context() as patch:
        live_in(home, patch)
        yield from serve(SessionPool(FakeInjectRegistry()), "decode,inject")  # type: ignore[arg-type]


def link_of(page: Any, tab: str) -> str:
    """The address of the run that has just ended."""
    expect(page.locator(f"#{tab}-history summary")).to_have_text("Earlier runs (1)")
    link = str(page.url)
    assert re.search(rf"#{tab}\?run=[\w-]{{22}}$", link)
    return link


@pytest.mark.browser
def test_link_reopens_a_stored_parity_comparison(lab: Served, visit: Callable[[int], Any]) -> None:
    page = visit(DESK)
    page.goto(f"{lab.url}#parity")
    expect(page.locator("#parity-reference input")).not_to_have_value("")
    page.locator("#parity-samples .sample").first.click()
    expect(page.locator("#parity-recording")).to_contain_text("three_seven_one")
    page.locator("#parity-candidates textarea").fill("gguf:f32\npytorch+cmvn=off")
    page.locator("#parity-run").click()
    expect(page.locator("#parity-closer h3")).to_be_visible(timeout=LONG)
    link, stage = link_of(page, "parity"), page.locator("#parity-closer h3").inner_text()
    page.reload()
    for view in (page, visit(PHONE)):
        if view is not page:
            view.goto(link)
        expect(view.locator("#parity-earlier")).to_contain_text(EARLIER_RUN)
        expect(view.locator("#parity-result section.verdict.within")).to_have_count(1)
        expect(view.locator("#parity-result section.verdict.beyond")).to_have_count(1)
        expect(view.locator("#parity-closer h3")).to_have_text(stage)
        expect(view.locator("#parity-candidates textarea")).to_have_value("gguf:f32\npytorch+cmvn=off")
        expect(view.locator("#parity-recording")).to_contain_text("three_seven_one")
        assert no_sideways_scroll(view)


@pytest.mark.browser
def test_link_reopens_a_stored_decode_search(desk: Served, visit: Callable[[int], Any], tmp_path: Path) -> None:
    page, files = visit(DESK), write_files(tmp_path, take=sounds_like())
    page.goto(f"{desk.url}#decode")
    expect(page.locator("#decode-model input")).not_to_have_value("")
    unfold(page, "Or files of logits")
    for place, name in (("logits", "take"), ("tokens", "tokens"), ("lexicon", "lexicon")):
        page.set_input_files(f"#decode-{place} input[type=file]", str(files[name]))
        expect(page.locator(f"#decode-{place}")).to_contain_text(files[name].suffix)
    page.locator("#decode-reference textarea").fill("too late")
    page.locator("#decode-run").click()
    expect(page.locator("#decode-table .result.done")).to_have_count(3)
    link = link_of(page, "decode")
    rates = page.locator("#decode-table .result .rate").all_inner_texts()
    page.reload()
    for view in (page, visit(PHONE)):
        if view is not page:
            view.goto(link)
        expect(view.locator("#decode-earlier")).to_contain_text(EARLIER_RUN)
        expect(view.locator("#decode-table .result .rate")).to_have_text(rates)
        expect(view.locator("#decode-reference textarea")).to_have_value("too late")
        unfold(view, "Or files of logits")
        expect(view.locator("#decode-logits")).to_contain_text("take")
        assert no_sideways_scroll(view)


@pytest.mark.browser
def test_link_reopens_a_stored_inject_answer(desk: Served, visit: Callable[[int], Any], tmp_path: Path) -> None:
    page, path = visit(DESK), tmp_path / "speech.npy"
    np.save(path, np.ones((6, WIDTH), np.float32))
    page.goto(f"{desk.url}#inject")
    expect(page.locator("#inject-models input").first).to_be_visible()
    unfold(page, "Add embedding files")
    page.set_input_files("#embedding-files input[type=file]", str(path))
    expect(page.locator("#embeddings")).to_contain_text("speech.npy")
    page.locator("#inject-prompt textarea").fill(f"What is {PLACEHOLDER}")
    page.locator("#inject-run").click()
    expect(page.locator("#answers .result.done").first).to_be_visible()
    link = link_of(page, "inject")
    page.reload()
    for view in (page, visit(PHONE)):
        if view is not page:
            view.goto(link)
        expect(view.locator("#inject-earlier")).to_contain_text(EARLIER_RUN)
        expect(view.locator("#answers .result.done").first).to_contain_text("seven one three")
        expect(view.locator("#inject-prompt textarea")).to_have_value(f"What is {PLACEHOLDER}")
        expect(view.locator("#embeddings")).to_contain_text("speech.npy")
        assert no_sideways_scroll(view)
