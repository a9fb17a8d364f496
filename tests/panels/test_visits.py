"""Tab addresses, stored runs and their links, link previews, key presses and accessibility of the page."""

from __future__ import annotations

import csv
import errno
import io
import os
import re
import time
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradio as gr
import pytest
from hypothesis import given
from hypothesis import strategies as st

from panels.running.choices import ModelOnRuntime
from panels.running.kept_views import KeptViews
from panels.running.run_store import RunStore
from panels.running.sent_results import SentResults
from panels.running.sessions import SessionPool
from panels.sharing import PICTURE_SIZE, with_tags
from panels.transcribe import keeping
from panels.transcribe.job import Row, RunState
from panels.transcribe.keeping import RunInputs
from panels.transcribe.many import disagreement
from tests.panels.conftest import Served, live_in, serve
from tests.panels.test_transcribe_page import expect, open_page
from tests.support.fake_panels import FakeRegistry, tone
from tests.support.widths import fits_a_phone_and_a_desk
from workbench.core.errors import BadInput, NoRoom
from workbench.session.values import Segment, SpokenHypothesis, Token, Transcript
from workbench.text.exports import FORMATS
from workbench.text.rates import score

WIDTHS = pytest.mark.parametrize("width", [1280, 390])


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The user's folders, which the tests of this file share, as they share the page."""
    return tmp_path_factory.mktemp("visits")


@pytest.fixture(scope="module")
def bench(home: Path) -> Iterator[Served]:
    """The page over fake models."""
    with pytest.MonkeyPatch.context() as patch:
        live_in(home, patch)
        yield from serve(SessionPool(FakeRegistry()), "transcribe,parity,decode")  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def at_home(user_folders: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live_in(home, monkeypatch)


def tab_of(page: Any) -> Any:
    return page.locator("#tabs button[data-tab-id][aria-selected=true]")


@pytest.mark.browser
@WIDTHS
def test_url_follows_the_selected_tab_and_the_back_button(
    bench: Served, visit: Callable[[int], Any], width: int
) -> None:
    page = visit(width)
    page.goto(f"{bench.url}#parity")
    expect(tab_of(page)).to_have_text("Parity")
    expect(page.locator("#parity-run")).to_be_visible()
    page.get_by_role("tab", name="Decode").click()
    assert page.url.endswith("/#decode") and page.title() == "Decode · Speech Workbench"
    page.get_by_role("tab", name="Decode").click()  # a click on the selected tab adds no step
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


def test_link_preview_tags_contain_title_description_and_picture(bench: Served) -> None:
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
    with Image.open(io.BytesIO(picture)) as image:
        assert image.size == PICTURE_SIZE
    assert b"<svg" in urllib.request.urlopen(f"{bench.url}favicon.ico").read()


def test_link_preview_tags_are_escaped() -> None:
    html = with_tags(b'<head>\n<meta\n property="og:title" content="x" />\n</head>', 'A "<b>" title', "http://a/b")
    assert html.count(b"og:title") == 1 and b"A &#34;&lt;b&gt;&#34; title" in html and b"http://a/b/link.png" in html


def transcribe(page: Any) -> None:
    page.locator("button.sample").first.click()
    expect(page.locator("#recordings")).to_contain_text("three_seven_one")
    page.locator("#run").click()
    expect(page.locator(".result.done")).to_have_count(2)
    expect(page.locator("#history summary")).to_be_visible()


@pytest.mark.browser
def test_stored_run_is_shown_after_reload_back_and_in_another_browser(
    bench: Served, visit: Callable[[int], Any]
) -> None:
    page = visit(1280)
    open_page(page, bench)
    page.locator("#models input").nth(1).uncheck()
    page.locator("#models input").nth(1).check()
    transcribe(page)
    link = page.url
    assert re.search(r"#transcribe\?run=[\w-]{22}$", link)
    page.reload()
    expect(page.locator(".result.done")).to_have_count(2)
    expect(page.locator(".result .rate").first).to_have_text("WER 33.3 %")
    expect(page.locator("#recordings")).to_contain_text("three_seven_one")
    expect(page.locator("#reference textarea")).to_have_value("three seven one")
    expect(page.locator(".segment")).to_have_count(3)

    # A second run; Back leads to the first, and both are in the list.
    page.locator("#run").click()
    page.wait_for_function("before => location.href !== before", arg=link)
    expect(page.locator("#history summary")).to_have_text("Earlier runs (2)")
    page.go_back()
    expect(page.locator("#history a[aria-current]")).to_have_attribute("href", link[link.index("#") :])
    page.locator("#history summary").click()
    page.locator("#history").get_by_role("button", name="Take").first.click()
    expect(page.locator("#history summary")).to_have_text("Earlier runs (1)")

    # After a refused run the status says that the table shows an earlier run.
    page.locator("#models input").nth(0).uncheck()
    page.locator("#models input").nth(1).uncheck()
    page.locator("#run").click()
    expect(page.locator("#status")).to_contain_text("of an earlier run")

    phone = visit(390)  # another visitor opens the link on a phone
    phone.goto(link)
    expect(phone.locator(".result.done")).to_have_count(2)
    expect(phone.locator("#history summary")).to_be_in_viewport()  # the results are below the inputs
    phone.goto(f"{bench.url}#transcribe?run={'x' * 22}")
    expect(phone.locator(".toast-body")).to_contain_text("not kept any more; runs stay for 7 days")
    phone.wait_for_function("location.hash === '#transcribe'")


@pytest.mark.browser
def test_leaving_the_page_during_a_run_asks_for_confirmation(bench: Served, visit: Callable[[int], Any]) -> None:
    page = visit(1280)
    open_page(page, bench)
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.type), dialog.accept()))
    transcribe(page)
    page.reload()  # nothing runs
    expect(page.locator(".result.done")).to_have_count(2)
    assert not dialogs
    bench.registry.gate.clear()
    try:
        page.locator("#run").click()
        expect(page.locator("#cancel")).to_be_visible()
        page.reload()
        assert dialogs == ["beforeunload"]
    finally:
        bench.registry.gate.set()


def test_stored_runs_are_deleted_by_age_and_quota(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs", hours=1, nbytes=4000)
    sound = tmp_path / "one.wav"
    sound.write_bytes(bytes(900))
    keys = [store.keep({"number": number}, {"one.wav": sound}) for number in range(4)]
    assert len(set(keys)) == 4 and all(len(key) == 22 for key in keys)
    for age, key in enumerate(reversed(keys)):
        moment = time.time() - 60 * age
        os.utime(tmp_path / "runs" / key / "run.json", (moment, moment))
    second_store = RunStore(tmp_path / "runs", hours=1, nbytes=4000)  # another server
    assert (
        second_store.read(keys[3])[0] == {"number": 3}
        and (second_store.read(keys[3])[1] / "one.wav").stat().st_size == 900
    )
    second_store.keep({"number": 4}, {"one.wav": sound})
    with pytest.raises(BadInput, match="not kept any more"):
        second_store.read(keys[0])  # the oldest made room
    assert second_store.read(keys[1])
    expired = time.time() - 3601
    os.utime(tmp_path / "runs" / keys[1] / "run.json", (expired, expired))
    for key in (keys[1], "../runs", "x" * 22, ""):
        with pytest.raises(BadInput, match="not kept any more"):
            second_store.read(key)
    sound.write_bytes(bytes(1001))  # more than a quarter of the quota
    assert not (second_store.read(second_store.keep({}, {"one.wav": sound}))[1] / "one.wav").exists()


def test_stored_runs_are_removed_after_their_time(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs", hours=1)
    store.remove_expired()  # before any run was stored
    keys = [store.keep({}) for _ in range(2)]
    expired = time.time() - 3601
    os.utime(tmp_path / "runs" / keys[0] / "run.json", (expired, expired))
    store.remove_expired()
    assert [each.name for each in store.folder.iterdir()] == keys[1:]


def test_newest_run_stays_after_the_clock_was_set_back(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs", nbytes=4000)
    sound = tmp_path / "one.wav"
    sound.write_bytes(bytes(900))
    for number in range(4):
        tomorrow = time.time() + 86400 + number
        os.utime(tmp_path / "runs" / store.keep({}, {"one.wav": sound}) / "run.json", (tomorrow, tomorrow))
    key = store.keep({"number": 4}, {"one.wav": sound})
    store.keep({}, {"one.wav": sound})
    assert store.read(key)[0] == {"number": 4}


def test_run_that_finds_no_room_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: Path, target: Path) -> None:
        target.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    store, sound = RunStore(tmp_path / "runs"), tone(tmp_path / "a.wav")
    monkeypatch.setattr("shutil.copyfile", full)
    with pytest.raises(NoRoom, match=r"could not store this run for a link \(No space left on device\)"):
        store.keep({}, {"a.wav": sound})
    assert not list(store.folder.iterdir())
    assert store.read(store.keep({"a": 1}))[0] == {"a": 1}


def test_stored_run_reads_back_equal(tmp_path: Path, at_home: None) -> None:
    path = tmp_path / "talk.wav"
    tone(path, 1.0)
    tokens = (Token(3, "a", 0.1, 0.25), Token(4, "b"))
    transcript = Transcript(
        "demo/x", "pytorch", "a b", "en", (Segment(0.0, 1.0, "a b", tokens, {"event": "BGM"}),), (3, 4), 1.0, 0.2, 0.1,
        1 << 20, {"emotion": "HAPPY"}, ("a note",), "q8_0", (SpokenHypothesis("a b", tokens, None, -1.0, -0.5, -0.5),),
    )  # fmt: skip
    cell = ModelOnRuntime("demo/x", "gguf", "q8_0")
    rows = (
        Row(f"0:{cell.value}", "talk.wav", str(path), cell, "X", "a c", "done", None, transcript, score("a c", "a b")),
        Row("0:y|pytorch", "talk.wav", str(path), ModelOnRuntime("y", "pytorch"), "Y", "a c", "failed", error="why"),
    )  # fmt: skip
    store = RunStore(tmp_path / "runs")
    inputs = RunInputs((cell.value,), "a c", "basic", (True, "auto", 3, None))
    stored = keeping.find(store, keeping.keep(store, RunState(rows, True, False, 1.5), inputs))
    assert stored.inputs == inputs and stored.state.seconds == 1.5
    (recording,) = stored.recordings
    assert Path(recording).read_bytes() == path.read_bytes()
    assert stored.state.rows == tuple(replace(row, path=recording) for row in rows)


def test_stored_view_is_restored_with_its_files(tmp_path: Path, at_home: None, monkeypatch: pytest.MonkeyPatch) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(gr, "Warning", warnings.append)
    first_file, second_file = tmp_path / "one.npy", tmp_path / "two.npy"
    first_file.write_bytes(b"1")
    second_file.write_bytes(b"2")
    result = gr.HTML()
    results = SentResults().of([result])
    results.add(result, "<b>shown</b>")
    views = KeptViews(RunStore(tmp_path / "runs"), results, "parity", 4, 1, files=(0, 1))
    values = (str(first_file), [str(first_file), str(second_file)], "text", {"of": "a state"})
    key = views.keep("a title", values, ["<b>shown</b>"])["run"]["key"]
    history, path, paths, text, state, html, note = views.restore(SimpleNamespace(_data={"run": key}))  # type: ignore[arg-type]
    assert history["run"]["title"] == "a title" and text == "text" and html == "<b>shown</b>" and "earlier run" in note
    assert Path(path).read_bytes() == b"1" and [Path(each).read_bytes() for each in paths] == [b"1", b"2"]
    assert state == gr.skip(), "only plain values are stored"
    forged = views.keep("a title", values, ["<b>forged</b>"])["run"]["key"]
    assert views.restore(SimpleNamespace(_data={"run": forged}))[-2] == "", "this server has not sent it"  # type: ignore[arg-type]
    other_views = KeptViews(views.store, results, "inject", 4, 1)
    assert other_views.restore(SimpleNamespace(_data={"run": key}))[0]["gone"] == key  # type: ignore[arg-type]
    assert len(warnings) == 1 and "another tab" in warnings[0]


@pytest.mark.browser
def test_many_recordings_are_sorted_searched_opened_and_exported(bench: Served, visit: Callable[[int], Any]) -> None:
    page = visit(1280)
    open_page(page, bench)
    expect(page.locator(".many-tools")).to_be_hidden()
    page.locator("button.sample.all").click()
    expect(page.locator("#recordings")).to_contain_text("three_seven_one")
    page.locator("#run").click()
    lines = page.locator(".overview > tbody:not([hidden])")
    expect(page.locator(".many-tools .count")).to_have_text(re.compile(r"^\d+ recordings$"))
    expect(page.locator("#history summary")).to_be_visible()  # the run is over
    page.get_by_role("button", name="Length").click()
    lengths = [float(line.get_attribute("data-length")) for line in lines.all()]
    assert lengths == sorted(lengths, reverse=True) and len(lengths) > 3
    page.get_by_role("button", name="Error rate").click()
    rates = [float(line.get_attribute("data-rate")) for line in lines.all()]
    assert rates == sorted(rates, reverse=True)
    page.get_by_label("Search in recordings").fill("three_seven")
    expect(lines).to_have_count(1)
    page.locator(".overview > tbody:not([hidden]) .opener").click()
    expect(page.locator(".overview .result:visible")).to_have_count(2)
    expect(lines.locator(":scope > tr:first-child > td").nth(2)).to_have_text(
        "33.3 %"
    )  # "eleven" instead of "seven": one word of three
    assert fits_a_phone_and_a_desk(page)
    page.set_viewport_size({"width": 390, "height": 844})
    cut_headings = (
        "heads => heads.filter((each) => each.scrollWidth > each.clientWidth).map((each) => each.textContent)"
    )
    assert page.locator("#results thead th").evaluate_all(cut_headings) == [], "a heading runs into the next one"
    expect(page.locator(".overview .result:visible")).to_have_count(2)
    page.locator(".overview > tbody:not([hidden]) .opener").click()
    expect(page.locator(".overview .result:visible")).to_have_count(0)
    page.set_viewport_size({"width": 1280, "height": 844})
    with page.expect_download() as waiting:
        page.locator("[data-save=zip]").click()
    with zipfile.ZipFile(waiting.value.path()) as archive:
        names = archive.namelist()
        assert len(names) == len(set(names)) == 2 * len(lengths) * len(FORMATS)
        assert archive.read("fake-sense-pytorch/three_seven_one.txt") == b"three eleven one\n"
    with page.expect_download() as waiting:
        page.locator("[data-save=csv]").click()
    with Path(waiting.value.path()).open(newline="", encoding="utf-8-sig") as file:
        files = {name for row in csv.reader(file) for name in row}
    assert "three_seven_one.wav" in files


@given(st.lists(st.text("ab ", max_size=6), max_size=4))
def test_disagreement_is_zero_for_equal_texts_and_symmetric(texts: list[str]) -> None:
    share = disagreement(texts)
    assert (share is None) == (len(texts) < 2)
    assert share == disagreement(texts[::-1]) or share == pytest.approx(disagreement(texts[::-1]))
    assert disagreement([*texts[:1], *texts[:1]]) in (None, 0.0)
    assert disagreement(["a b", "c d"]) == 1.0


@pytest.mark.browser
@WIDTHS
def test_tabs_have_no_serious_axe_accessibility_violations(
    bench: Served, visit: Callable[[int], Any], width: int
) -> None:
    axe = pytest.importorskip("axe_playwright_python.base", reason="needs axe-playwright-python")
    page = visit(width)
    open_page(page, bench)
    page.evaluate(axe.AXE_SCRIPT)
    violations = {}
    for tab in page.locator("#tabs button[data-tab-id]").all():
        tab.click()
        findings = page.evaluate(
            "axe.run(document, {resultTypes: ['violations'], runOnly: ['wcag2a', 'wcag2aa']})"
            ".then((all) => all.violations.filter((each) => ['serious', 'critical'].includes(each.impact))"
            ".map((each) => [each.id, ...each.nodes.map((node) => node.target.join(' '))]))"
        )
        if findings:
            violations[tab.inner_text()] = findings
    assert not violations
