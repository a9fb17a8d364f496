"""The HTML report in a real browser: mouse and keyboard use at two widths, and no execution of injected markup."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.evaluation.test_report import hostile
from tests.support.browser import PATIENCE
from tests.support.made_evaluation import made_columns, tone
from tests.support.widths import no_sideways_scroll
from workbench.evaluation.report import packed as packing
from workbench.evaluation.report.columns import Columns
from workbench.evaluation.report.page import page as report_page

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
def shown(columns: Columns, chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The report, which the tests share; it fails them if it asks for anything or a script of it fails."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "BLOCK", 256)  # so that most texts are read behind the table
        path.write_text(report_page(columns, tone), encoding="utf-8")
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.on(
        "request",
        lambda asked: faults.append(asked.url) if not asked.url.startswith(("file:", "data:", "blob:")) else None,
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


def test_report_table_can_be_sorted_filtered_searched_and_saved(shown: Any, columns: Columns) -> None:
    worst = sorted((-1 if rate != rate else rate for rate in columns.rates()[:, 0]), reverse=True)
    expect(shown.locator(".count")).to_contain_text("600 recordings · WER: pytorch")
    assert shown.locator(".grid .rows .line").count() < 40
    head(shown, "pytorch").click()
    assert cells(shown, 2)[:8] == [f"{100 * rate:.1f} %" for rate in worst[:8]]
    head(shown, "pytorch").click()
    assert cells(shown, 2)[0] == "0.0 %"
    head(shown, "Reference").click()
    texts = sorted(each.text for each in columns.utterances)
    number = shown.locator(".grid .top .cell").count() - 1
    assert cells(shown, number)[:10] == texts[:10]
    head(shown, "Reference").click()
    assert cells(shown, number)[:10] == texts[::-1][:10]
    head(shown, "Reference").click()  # back to the corpus's order
    assert cells(shown, 0)[0] == "take-000000"

    shown.locator("select[name=noise]").select_option(label="0 dB")
    shown.locator("select[name=show]").select_option(label="failed")
    failed = [row for row, each in enumerate(columns.utterances) if each.noise == "0 dB" and row % 100 == 99]
    expect(shown.locator(".count")).to_contain_text(f"{len(failed)} of 600 recordings" if failed else "0 of 600")
    shown.locator("select[name=noise]").select_option(label="any")
    shown.locator("select[name=show]").select_option(label="all recordings")
    shown.locator("input[type=search]").fill("take-0004 six")
    wanted = [each for each in columns.utterances if "take-0004" in each.id and "six" in each.text]
    heard = [
        each
        for row, each in enumerate(columns.utterances)
        if "take-0004" in each.id and any("six" in (columns.texts[m][row] or "").lower() for m in columns.models)
    ]
    found = {each.id for each in [*wanted, *heard]}
    expect(shown.locator(".count")).to_contain_text(f"{len(found)} of 600 recordings")
    with shown.expect_download() as waiting:
        shown.get_by_role("button", name="Save CSV").click()
    rows = list(csv.DictReader(Path(waiting.value.path()).read_text(encoding="utf-8").splitlines()))
    assert {each["id"] for each in rows} == found and len(rows) == 3 * len(found)
    with shown.expect_download() as waiting:
        shown.get_by_role("button", name="Save JSON").click()
    assert {each["id"] for each in json.loads(Path(waiting.value.path()).read_text(encoding="utf-8"))} == found
    shown.locator("input[type=search]").fill("")  # the table follows a moment later, and starts at its first row
    expect(shown.locator(".count")).not_to_contain_text("of 600")


def test_keyboard_navigation_opens_row_details(shown: Any, columns: Columns) -> None:
    grid = shown.locator(".grid")
    grid.focus()
    shown.keyboard.press("End")
    expect(shown.locator(".grid .line.cursor .cell").first).to_have_text("take-000599")
    shown.keyboard.press("Home")
    shown.keyboard.press("ArrowDown")
    shown.keyboard.press("Enter")
    expect(shown.locator("#row h3")).to_contain_text("take-000001")
    expect(shown.locator("#row")).to_contain_text(columns.texts[columns.models[0]][1] or "")
    for row in range(2, 6):  # what is marked adds up to the counts
        shown.get_by_role("button", name="Next").click()
        expect(shown.locator("#row h3")).to_contain_text(f"take-{row:06d}")
        marked = shown.locator("#row dd:not(.raw)").nth(1)
        counted = [marked.locator(kind).count() for kind in (".wrong", "del", "ins")]
        assert sum(counted) == columns.errors()[row, 0]
    shown.keyboard.press("Escape")
    expect(grid).to_be_focused()


def test_report_fits_a_phone_and_switches_to_dark_colours(shown: Any) -> None:
    shown.set_viewport_size({"width": 360, "height": 844})
    assert no_sideways_scroll(shown)
    assert shown.evaluate(BEYOND) == []
    light = shown.evaluate("getComputedStyle(document.body).backgroundColor")
    shown.get_by_role("button", name="Light or dark").click()
    assert shown.evaluate("getComputedStyle(document.body).backgroundColor") != light
    shown.set_viewport_size({"width": 1280, "height": 900})


def test_injected_markup_is_shown_as_text(chromium: Any, tmp_path: Path) -> None:
    path = tmp_path / "hostile.html"
    path.write_text(report_page(hostile(), tone), encoding="utf-8")
    page = chromium.new_page()
    said: list[str] = []
    page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready]")
    page.locator(".grid .rows .line").first.click()
    expect(page.locator("#row h3")).to_contain_text("<img src=x")
    assert page.locator("img").count() == 0 and said == []
    assert page.locator(".grid").bounding_box()["height"] < 200  # as high as its few rows
    page.close()
