"""The Transcribe tab in a real browser, and the endpoints for scripts."""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from panels.transcribe.events import Actions
from panels.widgets.samples import read_samples
from tests.panels.conftest import Served
from tests.support.browser import PATIENCE, unfold
from tests.support.fake_panels import broken, tone
from tests.support.widths import no_sideways_scroll, no_sideways_scroll_by_day_and_night
from workbench.text.exports import FORMATS

pytestmark = pytest.mark.tabs("transcribe,models")

LONG = 180_000  # milliseconds; a first run loads its models


@pytest.fixture
def page_closed(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """An event that is set once the server notices a closed page; request it before the fixture `served`."""
    closed, leave = threading.Event(), Actions.leave

    @functools.wraps(leave)
    def leave_and_set(self: Actions, request: Any) -> None:
        leave(self, request)
        closed.set()

    monkeypatch.setattr(Actions, "leave", leave_and_set)
    return closed


def expect(locator: Any) -> Any:
    from playwright.sync_api import expect as expect_

    return expect_(locator)


def open_page(page: Any, served: Served) -> None:
    page.goto(served.url)
    expect(page.locator("#models input").first).to_be_visible()


def add_files(page: Any, *paths: Path) -> None:
    page.set_input_files("#recordings input[type=file]", [str(path) for path in paths])
    for path in paths:
        expect(page.locator("#recordings")).to_contain_text(path.stem)


def until(page: Any, reached: Callable[[], bool]) -> None:
    """Waits for a condition on the server, which it checks twenty times a second while the browser runs."""
    for _ in range(PATIENCE // 50):
        if reached():
            return
        page.wait_for_timeout(50)
    raise AssertionError("the condition never became true")


@pytest.mark.browser
@pytest.mark.slow
def test_sample_is_transcribed_by_all_demo_models(demos: Served, page: Any) -> None:
    open_page(page, demos)
    expect(page.locator("#models input:checked")).to_have_count(4)
    page.locator("button.sample").first.click()
    expect(page.locator("#recordings")).to_contain_text("three_seven_one")
    expect(page.locator("#reference textarea")).to_have_value("three seven one")
    page.locator("#run").click()
    expect(page.locator(".result.done")).to_have_count(4, timeout=LONG)
    texts = [row.locator(".heard").inner_text() for row in page.locator(".result.done").all()]
    assert all(re.search(r"three|seven|one", text) for text in texts), texts
    assert all("WER" in row.inner_text() for row in page.locator(".result.done").all())
    expect(page.locator("#timeline .names button")).to_have_count(4)
    expect(page.locator("#run")).to_be_visible()


@pytest.mark.browser
def test_result_rows_show_differences_and_export_edited_segments(served: Served, page: Any) -> None:
    open_page(page, served)
    page.locator("button.sample").first.click()
    expect(page.locator("#recordings")).to_contain_text("three_seven_one")
    page.locator("#run").click()
    expect(page.locator(".result.done")).to_have_count(2)
    first = page.locator(".result.done").first
    expect(first.locator(".rate")).to_have_text("WER 33.3 %")
    expect(first.locator(".wrong small")).to_contain_text("seven")
    expect(first.locator(".chips")).to_contain_text("neutral")

    expect(page.locator(".segment")).to_have_count(3)
    words = page.get_by_label("Text of segment 2")
    expect(words).to_have_value("eleven")
    words.fill("seven, <b>corrected</b>")
    with page.expect_download() as waiting:
        page.locator("#export-srt").click()
    saved = waiting.value
    assert saved.suggested_filename == "three_seven_one.fake-sense.srt"
    text = Path(saved.path()).read_text(encoding="utf-8")
    assert "seven, <b>corrected</b>" in text and "00:00:00,500 --> 00:00:01,000" in text

    # Edits stay when another row is opened, and can be reverted.
    page.locator(".result.done").nth(1).get_by_role("button", name="Segments and export").click()
    expect(words).to_have_value("seven")
    first.get_by_role("button", name="Segments and export").click()
    expect(words).to_have_value("seven, <b>corrected</b>")
    page.locator("#revert").click()
    expect(words).to_have_value("eleven")


@pytest.mark.browser
def test_invalid_segment_time_is_reported_at_its_cell_and_text_still_exports(served: Served, page: Any) -> None:
    open_page(page, served)
    page.locator("button.sample").first.click()
    expect(page.locator("#recordings")).to_contain_text("three_seven_one")
    page.locator("#run").click()
    notes, start = page.locator(".wrong-time"), page.get_by_label("Start of segment 2")
    expect(notes).to_have_text(["", "", ""])
    for content, begin in [
        ("soon", 'The start is "soon"; expected seconds such as 1.25, or a time such as 0:01.25'),
        ("", "The start is empty; expected seconds"),
        ("-1", 'The start is "-1"; expected'),
        ("2", "The end is before the start"),
        ("0:00,7", ""),
        ("1e3", 'The start is "1e3"; expected'),
    ]:
        start.fill(content)
        expect(notes.nth(1)).to_have_text(re.compile(f"^{re.escape(begin)}.*" if begin else "^$"))
        expect(notes.nth(0)).to_have_text("")
    expect(start).to_have_attribute("aria-invalid", "true")
    expect(start).to_have_accessible_description(re.compile("expected seconds such as 1.25"))
    for form in FORMATS:
        if FORMATS[form].timed:
            page.locator(f"#export-{form}").click()
            expect(page.locator(".toast-body").last).to_contain_text("the start of row 2 is '1e3'")
            page.locator(".toast-close").last.click()
            expect(page.locator(".toast-body")).to_have_count(0)
    with page.expect_download() as waiting:
        page.locator("#export-txt").click()
    assert Path(waiting.value.path()).read_text(encoding="utf-8") == "three eleven one\n"


@pytest.mark.browser
def test_cancel_stops_the_run_and_keeps_finished_transcripts(served: Served, page: Any, tmp_path: Path) -> None:
    hanging = served.registry.sessions["fake/para"]
    hanging.gate = threading.Event()
    open_page(page, served)
    add_files(page, tone(tmp_path / "a.wav"))
    page.locator("#reference textarea").fill("three seven one")
    page.locator("#run").click()
    expect(page.locator(".result.done")).to_have_count(1)
    expect(page.locator("#status")).to_contain_text("Fake Paraformer")
    page.locator("#cancel").click()
    expect(page.locator("#run")).to_be_visible()
    expect(page.locator(".result.stopped")).to_have_count(1)
    expect(page.locator(".result.done")).to_have_count(1)
    expect(page.locator("#status")).to_contain_text("Stopped: 1 of 2 transcripts")
    expect(page.locator("#reference textarea")).to_have_value("three seven one")
    hanging.gate.set()
    assert hanging.abandoned.wait(60)
    page.locator("#run").click()  # and again, now to the end
    expect(page.locator(".result.done")).to_have_count(2)


@pytest.mark.browser
def test_a_closed_page_stops_its_run(page_closed: threading.Event, served: Served, page: Any, tmp_path: Path) -> None:
    hanging = served.registry.sessions["fake/sense"]
    hanging.gate = threading.Event()
    open_page(page, served)
    add_files(page, tone(tmp_path / "a.wav"))
    page.locator("#run").click()
    expect(page.locator("#status")).to_contain_text("transcribing")
    page.goto("about:blank")
    assert page_closed.wait(60)
    hanging.gate.set()
    assert hanging.abandoned.wait(60)
    assert not served.registry.sessions["fake/para"].calls, "the next model started although no visitor was left"


@pytest.mark.browser
def test_bad_file_shows_its_error_and_the_other_files_are_transcribed(
    served: Served, page: Any, tmp_path: Path
) -> None:
    open_page(page, served)
    add_files(page, broken(tmp_path / "text.wav"), tone(tmp_path / "good.wav"))
    line = page.locator(".timeline")
    line.get_by_label("Recording on the timeline").select_option("text.wav")
    expect(line.locator(".said.fault")).to_contain_text("text.wav is not a sound file")
    expect(line.get_by_role("button", name="Play", exact=True)).to_be_hidden()
    line.get_by_label("Recording on the timeline").select_option("good.wav")
    expect(line.get_by_role("button", name="Play", exact=True)).to_be_visible()
    expect(line.locator(".fault")).to_have_count(0)
    page.locator("#run").click()
    expect(page.locator(".result.done")).to_have_count(2)
    failed = page.locator(".result.failed")
    expect(failed).to_have_count(2)
    expect(failed.first).to_contain_text("text.wav is not a sound file")
    expect(page.locator("#status")).to_contain_text("2 of 4 transcripts")
    expect(page.locator("#recordings")).to_contain_text("text")


@pytest.mark.browser
def test_invalid_input_shows_an_error_message_and_keeps_the_fields(served: Served, page: Any, tmp_path: Path) -> None:
    open_page(page, served)
    page.locator("#reference textarea").fill("one\ntwo")
    page.locator("#run").click()
    expect(page.locator(".toast-body").last).to_contain_text("there is no recording")
    add_files(page, tone(tmp_path / "a.wav"), tone(tmp_path / "b.wav"), tone(tmp_path / "c.wav"))
    page.locator("#run").click()
    expect(page.locator(".toast-body").last).to_contain_text("3 recordings and 2 lines of reference text")
    expect(page.locator("#reference textarea")).to_have_value("one\ntwo")
    expect(page.locator("#recordings tbody tr")).to_have_count(3)
    expect(page.locator("#run")).to_be_visible()


@pytest.mark.browser
def test_the_microphone_adds_a_recording(served: Served, page: Any) -> None:
    open_page(page, served)
    page.get_by_text("Record with the microphone").click()
    microphone = page.locator("#microphone")
    microphone.get_by_role("button", name="Record").click()
    expect(microphone).to_contain_text("0:01")
    microphone.get_by_role("button", name="Stop").first.click()
    expect(page.locator("#recordings")).to_contain_text("audio")
    page.locator("#run").click()
    expect(page.locator(".result.done")).to_have_count(2)


@pytest.mark.browser
def test_two_users_do_not_disturb_each_other(served: Served, page: Any, chromium: Any, tmp_path: Path) -> None:
    hanging = served.registry.sessions["fake/para"]
    hanging.gate = threading.Event()
    open_page(page, served)
    add_files(page, tone(tmp_path / "mine.wav"))
    page.locator("#run").click()
    expect(page.locator(".result.done")).to_have_count(1)
    expect(page.locator(".result.running")).to_have_count(1)

    with chromium.new_context() as context:
        other_page = context.new_page()
        open_page(other_page, served)
        add_files(other_page, tone(tmp_path / "yours.wav", 1.0))
        other_page.get_by_label("Fake Paraformer · PyTorch").uncheck()
        other_page.locator("#run").click()
        expect(other_page.locator(".result.done")).to_have_count(1)
        expect(other_page.locator("#results")).to_contain_text("yours.wav")
        assert "mine" not in other_page.locator("#results").inner_text()
        expect(other_page.locator("#closer")).to_contain_text("yours.wav")
    expect(page.locator("#cancel")).to_be_visible()
    hanging.gate.set()
    expect(page.locator(".result.done")).to_have_count(2)
    assert "yours" not in page.locator("#results").inner_text()


@pytest.mark.browser
def test_reference_of_a_sample_is_removed_when_another_file_is_chosen(
    served: Served, page: Any, tmp_path: Path
) -> None:
    open_page(page, served)
    page.get_by_role("button", name="All of them").click()
    expect(page.locator("#reference textarea")).to_have_value(re.compile("three seven one\n.*", re.DOTALL))
    expect(page.locator("#recordings tbody tr")).to_have_count(len(read_samples()))
    page.locator("button.sample").first.click()
    expect(page.locator("#reference textarea")).to_have_value("three seven one")
    expect(page.locator("#credit")).to_contain_text("CC BY-SA 4.0")
    page.set_input_files("#recordings input[type=file]", str(tone(tmp_path / "own.wav")))
    expect(page.locator("#reference textarea")).to_have_value("")
    expect(page.locator("#credit")).to_be_hidden()


@pytest.mark.browser
def test_the_text_can_be_copied(served: Served, page: Any, tmp_path: Path) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    open_page(page, served)
    add_files(page, tone(tmp_path / "a.wav"))
    page.locator("#run").click()
    expect(page.locator(".result.done")).to_have_count(2)
    page.get_by_role("button", name="Copy text").first.click()
    expect(page.locator(".result.done").first).to_contain_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "three eleven one"


@pytest.mark.browser
def test_options_follow_the_chosen_models(served: Served, page: Any, tmp_path: Path) -> None:
    open_page(page, served)
    unfold(page, "Options of the models")
    expect(page.locator("#option-language")).to_be_visible()
    page.locator("#option-itn input").check()
    page.get_by_label("Fake SenseVoice · PyTorch").uncheck()
    expect(page.locator("#option-language")).to_be_hidden()
    add_files(page, tone(tmp_path / "a.wav"))
    page.locator("#run").click()
    expect(page.locator(".result.done")).to_have_count(1)
    (options,) = served.registry.sessions["fake/para"].calls
    assert "itn" not in options and options["max_segment_seconds"] == 30.0
    assert options["end_silence_ms"] is None, "an untouched input means the default"


@pytest.mark.browser
def test_page_has_no_horizontal_scroll_on_a_phone(served: Served, page: Any, tmp_path: Path) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    open_page(page, served)
    assert no_sideways_scroll(page)
    long_name = tone(tmp_path / f"{'a_very_long_name_without_any_space' * 4}.wav")
    add_files(page, long_name)
    page.locator("#reference textarea").fill("unbreakable" * 20)
    unfold(page, "Options of the models")
    page.locator("#run").click()
    expect(page.locator(".segment")).to_have_count(3)
    assert no_sideways_scroll_by_day_and_night(page)
    page.get_by_role("tab", name="Models").click()
    expect(page.locator("#cards table")).to_be_visible()
    assert no_sideways_scroll_by_day_and_night(page)


@pytest.mark.browser
def test_models_tab_lists_and_unloads_models(served: Served, page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    owner_calls: list[str] = []
    served.pool.session("fake/sense", "pytorch")
    open_page(page, served)
    page.get_by_role("tab", name="Models").click()
    expect(page.locator("#cards")).to_contain_text("Fake Paraformer has no vllm network; use pytorch")
    expect(page.locator("#residents")).to_contain_text("67 MB")
    page.locator("#residents button").click()
    expect(page.locator("#residents")).to_contain_text("No model is loaded")
    assert served.registry.unloaded == ["fake/sense"]
    page.locator("#idle-minutes input").fill("3")
    monkeypatch.setattr(served.pool.guard, "owners", owner_calls.append)
    page.locator("#idle-minutes input").press("Enter")
    page.keyboard.press("Tab")
    until(page, lambda: served.pool.idle_minutes == 3)
    page.get_by_role("tab", name="Transcribe").click()
    page.get_by_role("tab", name="Models").click()
    expect(page.locator("#idle-minutes input")).to_have_value("3")
    assert len(owner_calls) == 1, "Enter and Tab set it once"
