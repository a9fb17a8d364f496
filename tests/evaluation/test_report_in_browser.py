"""The HTML report in a real browser: mouse and keyboard use at two widths, and no execution of injected markup."""

from __future__ import annotations

import codecs
import csv
import json
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.evaluation.test_report import hostile, of_texts
from tests.support.browser import PATIENCE
from tests.support.made_evaluation import made_columns, tone
from tests.support.widths import no_sideways_scroll
from workbench.evaluation.report import packed as packing
from workbench.evaluation.report.columns import Columns
from workbench.evaluation.report.page import page as report_page
from workbench.evaluation.store import Manifest, Run

pytestmark = pytest.mark.browser


# Labels of fields that are wider than their place.
BEYOND = """() => [...document.querySelectorAll('.tools label')].filter((label) => {
  const end = label.getBoundingClientRect().right + 1;
  return [...label.children].some((each) => each.getBoundingClientRect().right > end);
}).map((each) => each.textContent)"""


def expect(locator: Any) -> Any:
    from playwright.sync_api import expect as expect_

    return expect_(locator)


@pytest.fixture(scope="module")
def columns() -> Columns:
    return made_columns(600, title="Digits")


@pytest.fixture(scope="module")
def report(columns: Columns, chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The report, which the tests share; it fails them if it requests a file or a script of it fails."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "BLOCK", 256)  # so that the page reads most texts after it draws the table
        path.write_text(report_page(columns, tone), encoding="utf-8")
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.on(
        "request",
        lambda request: faults.append(request.url) if not request.url.startswith(("file:", "data:", "blob:")) else None,
    )
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready]")
    assert page.locator(".grid .rows .line .cell").first.inner_text() == "take-000000"
    yield page
    context.close()
    assert faults == []


def cells(page: Any, column: int) -> list[str]:
    return [line.locator(".cell").nth(column).inner_text() for line in page.locator(".grid .rows .line").all()]


def head(page: Any, name: str) -> Any:
    return page.locator(".grid .top button", has_text=name).first


def test_report_table_can_be_sorted_filtered_searched_and_saved(report: Any, columns: Columns) -> None:
    sorted_rates = sorted((-1 if rate != rate else rate for rate in columns.rates()[:, 0]), reverse=True)
    expect(report.locator(".count")).to_contain_text("600 recordings · WER: pytorch")
    assert report.locator(".grid .rows .line").count() < 40
    head(report, "pytorch").click()
    assert cells(report, 2)[:8] == [f"{100 * rate:.1f} %" for rate in sorted_rates[:8]]
    head(report, "pytorch").click()
    assert cells(report, 2)[0] == "0.0 %"
    head(report, "Reference").click()
    texts = sorted(each.text for each in columns.utterances)
    number = report.locator(".grid .top .cell").count() - 1
    assert cells(report, number)[:10] == texts[:10]
    head(report, "Reference").click()
    assert cells(report, number)[:10] == texts[::-1][:10]
    head(report, "Reference").click()  # back to the corpus's order
    assert cells(report, 0)[0] == "take-000000"

    report.locator("select[name=noise]").select_option(label="0 dB")
    report.locator("select[name=show]").select_option(label="failed")
    failed = [row for row, each in enumerate(columns.utterances) if each.noise == "0 dB" and row % 100 == 99]
    expect(report.locator(".count")).to_contain_text(f"{len(failed)} of 600 recordings" if failed else "0 of 600")
    report.locator("select[name=noise]").select_option(label="any")
    report.locator("select[name=show]").select_option(label="all recordings")
    report.locator("input[type=search]").fill("take-0004 six")
    by_reference = [each for each in columns.utterances if "take-0004" in each.id and "six" in each.text]
    by_transcript = [
        each
        for row, each in enumerate(columns.utterances)
        if "take-0004" in each.id and any("six" in (columns.texts[m][row] or "").lower() for m in columns.models)
    ]
    ids = {each.id for each in [*by_reference, *by_transcript]}
    expect(report.locator(".count")).to_contain_text(f"{len(ids)} of 600 recordings")
    with report.expect_download() as waiting:
        report.get_by_role("button", name="Save CSV").click()
    content = Path(waiting.value.path()).read_bytes()
    assert content.startswith(codecs.BOM_UTF8)
    rows = list(csv.DictReader(content.decode("utf-8-sig").splitlines()))
    assert {each["id"] for each in rows} == ids and len(rows) == 3 * len(ids)
    with report.expect_download() as waiting:
        report.get_by_role("button", name="Save JSON").click()
    assert {each["id"] for each in json.loads(Path(waiting.value.path()).read_text(encoding="utf-8"))} == ids
    report.locator("input[type=search]").fill("")  # the table follows a moment later, and starts at its first row
    expect(report.locator(".count")).not_to_contain_text("of 600")


def test_keyboard_navigation_opens_row_details(report: Any, columns: Columns) -> None:
    grid = report.locator(".grid")
    grid.focus()
    report.keyboard.press("End")
    expect(report.locator(".grid .line.cursor .cell").first).to_have_text("take-000599")
    report.keyboard.press("Home")
    report.keyboard.press("ArrowDown")
    report.keyboard.press("Enter")
    expect(report.locator("#row h3")).to_contain_text("take-000001")
    expect(report.locator("#row")).to_contain_text(columns.texts[columns.models[0]][1] or "")
    for row in range(2, 6):  # what is marked adds up to the counts
        report.get_by_role("button", name="Next").click()
        expect(report.locator("#row h3")).to_contain_text(f"take-{row:06d}")
        marked = report.locator("#row dd:not(.raw)").nth(1)
        counts = [marked.locator(kind).count() for kind in (".wrong", "del", "ins")]
        assert sum(counts) == columns.errors()[row, 0]
    report.keyboard.press("Escape")
    expect(grid).to_be_focused()


def test_report_fits_a_phone_and_switches_to_dark_colours(report: Any) -> None:
    report.set_viewport_size({"width": 360, "height": 844})
    assert no_sideways_scroll(report)
    assert report.evaluate(BEYOND) == []
    light = report.evaluate("getComputedStyle(document.body).backgroundColor")
    report.get_by_role("button", name="Light or dark").click()
    assert report.evaluate("getComputedStyle(document.body).backgroundColor") != light
    report.set_viewport_size({"width": 1280, "height": 900})


def test_long_speaker_names_leave_room_for_the_rates(chromium: Any, tmp_path: Path) -> None:
    columns = made_columns(60)
    speakers = [f"{place % 5}{'0123456789abcdef' * 8}" for place in range(60)]
    columns = replace(columns, utterances=[replace(e, speaker=s) for e, s in zip(columns.utterances, speakers)])
    (tmp_path / "long.html").write_text(report_page(columns, tone), encoding="utf-8")
    page = chromium.new_page(viewport={"width": 1280, "height": 900})
    page.goto((tmp_path / "long.html").as_uri())
    page.wait_for_selector("html[data-ready]")
    table = page.locator("#parts .tables > div", has_text="Speaker").locator(".scroll")
    first_rate = table.locator("tbody tr").first.locator("td").nth(1).bounding_box()
    assert first_rate["x"] + first_rate["width"] <= table.bounding_box()["x"] + table.bounding_box()["width"]
    assert page.locator(".tools select[name=speaker]").bounding_box()["width"] < 400
    assert page.locator("#parts .named").last.get_attribute("title") == sorted(speakers)[-1]
    page.close()


def test_command_of_a_recording_runs_in_any_folder(chromium: Any, tmp_path: Path) -> None:
    manifest = Manifest("/data/it's/list.csv", "/data/it's", "csv", "0", 5, 0)
    run = Run(manifest, {"name": "basic", "version": "2"}, (), {})
    columns = made_columns(5, models=("demo/a|gguf|q8_0",), run=run)
    audio = ("wavs/a.wav", "/b.wav", "c.zip/c.wav", "s3://bucket/d.wav", "e.wav")
    utterances = [replace(each, audio=name) for each, name in zip(columns.utterances, audio, strict=True)]
    utterances[4] = replace(utterances[4], offset=1.5)  # the command reads whole files only
    path = tmp_path / "report.html"
    path.write_text(report_page(replace(columns, utterances=utterances), tone), encoding="utf-8")
    page = chromium.new_page()
    page.goto(path.as_uri())
    commands = []
    for place in range(5):
        page.locator(".grid .rows .line").nth(place).click()
        expect(page.locator("#row h3")).to_contain_text(utterances[place].id)
        commands += [each.get_attribute("title") for each in page.locator("#row .doors button").all()]
    assert [shlex.split(each)[2] for each in commands] == ["/data/it's/wavs/a.wav", "/b.wav"]
    assert shlex.split(commands[0])[3:] == ["--model", "demo/a", "--runtime", "gguf", "--quantization", "q8_0"]
    page.close()


def test_words_of_a_script_from_right_to_left_stand_in_their_order(chromium: Any, tmp_path: Path) -> None:
    path = tmp_path / "arabic.html"
    path.write_text(
        report_page(of_texts([("ذهب الولد إلى المدرسة", "الولد الى المدرسة كبيرة")]), tone), encoding="utf-8"
    )
    page = chromium.new_page()
    page.goto(path.as_uri())
    page.locator(".grid .rows .line").first.click()
    for place in ("#worst", "#row"):
        pieces = [page.locator(f"{place} dd {kind}").first.bounding_box() for kind in ("del", ".wrong", "ins")]
        assert [each["x"] for each in pieces] == sorted((each["x"] for each in pieces), reverse=True)
    page.close()


def test_injected_markup_is_shown_as_text(chromium: Any, tmp_path: Path) -> None:
    path = tmp_path / "hostile.html"
    path.write_text(report_page(hostile(), tone), encoding="utf-8")
    page = chromium.new_page()
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready]")
    page.locator(".grid .rows .line").first.click()
    expect(page.locator("#row h3")).to_contain_text("<img src=x")
    assert page.locator("img").count() == 0 and dialogs == []
    assert page.locator(".grid").bounding_box()["height"] < 200  # as high as its few rows
    page.close()
