"""The Visualise tab in a real browser, with made-up pictures: one page and one browser for all tests of the file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import panels.visualise.run as run
from panels.running.sessions import SessionPool
from panels.serving import UPLOADS
from tests.panels.conftest import Served, serve
from tests.panels.test_transcribe_page import expect, until
from tests.support.browser import PATIENCE, TRACKPAD
from tests.support.fake_panels import FakeRegistry, broken, tone
from tests.support.made_pictures import NASTY, every_kind, minute, picture_set
from tests.support.widths import no_sideways_scroll
from workbench.core.errors import BadInput

# Whether something is drawn above the pictures at a time, for each picture with a time axis.
LIT = """(time) => Object.fromEntries([...document.querySelectorAll('.looking [data-layer]')].flatMap((chart) => {
  const [above, stage] = [chart.querySelector('.plot > .above'), document.querySelector('.looking')];
  if (!above || ['near', 'lens'].includes(chart.dataset.layer)) return [];
  const density = devicePixelRatio, left = innerWidth < 760 ? 52 : 58, width = above.width / density - left - 6;
  const share = (time - stage.dataset.from) / (stage.dataset.to - stage.dataset.from);
  const place = Math.round((left + share * width) * density);
  const pixels = above.getContext('2d').getImageData(place, 5 * density, 1, 1).data;
  return [[`${chart.dataset.side}: ${chart.dataset.layer}`, pixels[3] > 0]];
}))"""


@pytest.fixture(scope="module")
def bench(uploads: Path) -> Iterator[Served]:
    """The page over fake models with made-up pictures: one for each side of a view."""

    real = run.compute

    def compute(pool: Any, scenes: Any, request: run.Request, stop: Any, tell: Any) -> run.PictureSet:
        if not isinstance(pool.registry, FakeRegistry):  # another page of the same process
            return real(pool, scenes, request, stop, tell)
        if request.view.name == "filterbank":
            if len(request.offers) > 1:
                raise BadInput("the checkpoint <b>lacks</b> its filter bank")
            return picture_set(minute())
        sides = [every_kind("pytorch"), every_kind("gguf", shift=1.0)]
        return picture_set(*sides[: len(request.offers)])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "compute", compute)
        patch.setenv(UPLOADS, str(uploads))
        patch.setenv("XDG_CACHE_HOME", f"{uploads}-kept")
        yield from serve(SessionPool(FakeRegistry()), "parity,visualise")  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def shared(chromium: Any) -> Iterator[Any]:
    """One page of the browser."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    yield page
    context.close()


@pytest.fixture
def tab(shared: Any, bench: Served, uploads: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The tab with the pictures of two sides; fails the test if a script of the page failed."""
    monkeypatch.setenv(UPLOADS, str(uploads))
    faults: list[str] = []
    shared.on("pageerror", lambda error: faults.append(str(error)))
    show(shared, bench, "a=fake/sense|pytorch&b=fake/para|pytorch&view=waveform&sample=three_seven_one.wav")
    yield shared
    assert not faults, "a script of the page failed"


def show(page: Any, bench: Served, state: str) -> None:
    page.goto("about:blank")
    page.goto(f"{bench.url}#visualise?{state}")
    expect(page.locator(".looking .taking")).to_be_visible()


def stage(page: Any, name: str) -> str:
    return str(page.locator(".looking").get_attribute(f"data-{name}"))


def cursor(page: Any) -> float:
    return float(stage(page, "cursor"))


def chart(page: Any, layer: str, side: str = "Side 0") -> Any:
    return page.locator(f'.looking [data-layer="{layer}"][data-side="{side}"]')


def drag(page: Any, layer: str, begin: float, end: float) -> None:
    """Selects a stretch, in shares of a chart's width."""
    plot = chart(page, layer).locator(".plot")
    plot.evaluate("(each) => each.scrollIntoView({block: 'center'})")
    box = plot.bounding_box()
    inner = box["width"] - 64
    places = [box["x"] + 58 + share * inner for share in (begin, end)]
    page.mouse.move(places[0], box["y"] + 20)
    page.mouse.down()
    page.mouse.move(places[1], box["y"] + 20, steps=4)
    page.mouse.up()


@pytest.mark.browser
def test_cursor_selection_tokens_and_playback_are_shared_by_all_pictures(tab: Any) -> None:
    page = tab
    # The value under the pointer is shown in this picture, in that of the other side, and in the difference.
    box = chart(page, "bands").locator(".plot").bounding_box()
    chart(page, "bands").locator(".plot").hover(position={"x": 58 + 0.5 * (box["width"] - 64), "y": 2})
    expect(chart(page, "bands").locator("output")).to_have_text("1.00 s · mel bin 39 · log energy 64")
    expect(chart(page, "bands", "Side 1").locator("output")).to_have_text("1.00 s · mel bin 39 · log energy 65")
    expect(chart(page, "bands", "Difference").locator("output")).to_have_text("1.00 s · mel bin 39 · difference 1")
    expect(chart(page, "sums").locator("output")).to_have_text("one 25, two 50")
    expect(page.locator('.looking [data-layer="sums"]')).to_have_count(3)
    expect(page.locator('.looking p[data-layer="sums"]')).to_contain_text("the same, number for number")
    lit = page.evaluate(LIT, 1.0)
    assert len(lit) > 12 and all(lit.values()), f"one cursor in all pictures: {lit}"

    # A stretch selected in one picture lights up in all of them, with its tokens; it plays once and repeatedly.
    drag(page, "sums", 0.1, 0.3)
    page.mouse.move(0, 0)
    until(page, lambda: stage(page, "stretch") != "")
    begin, end = (float(each) for each in stage(page, "stretch").split())
    assert begin == pytest.approx(0.2, abs=0.02) and end == pytest.approx(0.6, abs=0.02)
    assert all(page.evaluate(LIT, 0.4).values()) and not any(page.evaluate(LIT, 1.6).values())
    selected_tokens = page.locator('.looking .token[aria-pressed="true"]')
    expect(selected_tokens).to_have_text(["three", "three"])
    page.get_by_role("button", name="Play (space)").click()
    until(page, lambda: float(stage(page, "level")) > 0.2)
    until(page, lambda: stage(page, "playing") == "no")
    assert cursor(page) == pytest.approx(begin, abs=0.01), "back at the start of the stretch"
    page.get_by_role("button", name="Repeat the selection").click()
    page.get_by_role("slider", name="Cursor in the recording").focus()
    page.keyboard.press("Space")
    places = [cursor(page) for _ in range(6) if page.wait_for_timeout(120) is None]
    assert stage(page, "playing") == "yes" and len(set(places)) > 2
    assert all(begin - 0.01 <= place <= end + 0.01 for place in places)
    page.keyboard.press("Escape")
    until(page, lambda: stage(page, "playing") == "no" and stage(page, "stretch") == "")

    # A token: its frames in all pictures, and the sound that it attends to.
    page.locator(".looking .token").nth(1).click()
    until(page, lambda: stage(page, "stretch") == "0.750 1.000")
    assert all(page.evaluate(LIT, 0.9).values()) and not any(page.evaluate(LIT, 1.6).values())
    expect(page.locator(".looking .token").nth(1)).to_have_text(NASTY)
    assert page.locator(".looking img").count() == 0 and page.evaluate("window.stolen") is None

    # A head of the grid is enlarged on both sides; the token's row has an arrow to frame 21.
    page.get_by_role("button", name="Enlarge head 1 of Side 0").click()
    for side in ("Side 0", "Side 1"):
        larger = chart(page, "cross", side).locator(".larger canvas").first
        expect(larger).to_have_attribute("aria-label", re.compile("cross attention: head 1"))
    chart(page, "cross").locator(".larger .plot").evaluate("(each) => each.scrollIntoView({block: 'center'})")
    box = chart(page, "cross").locator(".larger .plot").bounding_box()
    page.mouse.move(box["x"] + 58 + 21.5 / 50 * (box["width"] - 64), box["y"] + box["height"] / 2)
    expect(chart(page, "cross").locator(".larger output")).to_have_text(f"0.84 s · {NASTY} · probability 0.9")

    # The keyboard.
    page.get_by_role("slider", name="Cursor in the recording").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    until(page, lambda: stage(page, "cursor") == "0.020")
    page.keyboard.press("Shift+ArrowRight")
    until(page, lambda: stage(page, "stretch") == "0.020 0.040")
    page.keyboard.press("+")
    until(page, lambda: float(stage(page, "to")) - float(stage(page, "from")) == pytest.approx(1.0))
    expect(page.get_by_role("slider", name="Cursor in the recording")).to_have_attribute(
        "aria-valuetext", re.compile(r"^0\.04 s · selected")
    )


@pytest.mark.browser
def test_pictures_are_saved_as_files_python_code_and_a_link(tab: Any, bench: Served, tmp_path: Path) -> None:
    page = tab
    begins = {"png": b"\x89PNG", "svg": b"<?xml", "npz": b"PK"}
    for kind, begin in begins.items():
        with page.expect_download() as waiting:
            page.locator(f".looking .save-{kind}").first.click()
        saved = Path(waiting.value.path())
        assert waiting.value.suggested_filename == f"waveform-fake-sense-pytorch.{kind}"
        assert saved.read_bytes().startswith(begin)
    with page.expect_download() as waiting:
        page.get_by_role("button", name="NPZ of Difference").click()
    assert waiting.value.suggested_filename == "waveform-difference-fake-sense-pytorch-fake-sense-gguf.npz"
    with np.load(waiting.value.path(), allow_pickle=False) as arrays:
        np.testing.assert_array_equal(arrays["bands"], np.ones((40, 50)))
    # A layer that is another one on the second side is named there, not above both.
    expect(chart(page, "weights", "Side 1").locator(".name")).to_have_text("Side 1: weights of gguf")
    expect(page.locator(".looking .group h4", has_text="weights of")).to_have_count(0)
    page.locator(".looking .taking summary").first.click()
    expect(page.locator(".looking .taking pre").first).to_contain_text(
        "workbench.visualise('a.wav', runtime='pytorch')"
    )

    drag(page, "bands", 0.25, 0.5)
    page.get_by_role("button", name="Enlarge head 1 of Side 0").click()
    page.get_by_role("button", name="Copy link").click()
    expect(page.locator(".looking .chart").first).to_be_visible()
    link, stretch = page.url, stage(page, "stretch")
    assert "sample=three_seven_one.wav" in link and "larger=1" in link
    page.goto("about:blank")
    page.goto(link)
    expect(page.locator(".looking .larger canvas").first).to_be_visible()
    assert stage(page, "stretch") == stretch
    expect(page.locator("#visualise-recording")).to_contain_text("three_seven_one")

    # A link also works on the open page, as Back does. The state is in the address again after another tab.
    page.goto(f"{bench.url}#visualise?a=fake/sense|pytorch&view=waveform&sample=three_seven_one.wav&at=0.5")
    expect(page.locator('.looking [data-side="Side 1"]')).to_have_count(0)
    expect(page.locator(".looking")).to_have_attribute("data-cursor", "0.500")
    page.go_back()
    expect(page.locator('.looking [data-side="Side 1"]').first).to_be_visible()
    expect(page.locator(".looking")).to_have_attribute("data-stretch", stretch)
    page.get_by_role("tab", name="Parity").click()
    page.get_by_role("tab", name="Visualise").click()
    until(page, lambda: "sample=three_seven_one.wav" in page.url)

    # A link also holds a user's own recording, and the page says so. Another tab removes the state from the address.
    page.locator("#visualise-recording button[aria-label='Clear']").click()
    page.set_input_files("#visualise-recording input[type=file]", str(broken(tmp_path / "text.wav")))
    expect(page.locator("#visualise-credit .fault")).to_contain_text("text.wav is not a sound file")
    page.locator("#visualise-recording button[aria-label='Clear']").click()
    expect(page.locator("#visualise-credit")).to_be_hidden()
    page.set_input_files("#visualise-recording input[type=file]", str(tone(tmp_path / "mine.wav")))
    expect(page.locator("#visualise-recording")).to_contain_text("mine")
    page.locator("#visualise-run").click()
    expect(page.locator("#visualise-status")).to_contain_text("Done")
    until(page, lambda: "sample=" not in page.url)
    page.get_by_role("button", name="Copy link").click()
    expect(page.locator("#visualise-stage .notice")).to_contain_text("Everybody with the link can hear your recording")
    page.reload()
    expect(page.locator("#visualise-recording")).to_contain_text("mine")
    expect(page.locator("#visualise-status")).to_contain_text("Done")
    expect(page.locator(".looking .chart").first).to_be_visible()
    page.get_by_role("tab", name="Parity").click()
    assert "#visualise" not in page.url

    # A view that cannot be drawn shows an error; the earlier pictures stay.
    page.get_by_role("tab", name="Visualise").click()
    page.locator('#visualise-views [data-view="filterbank"]').click()
    expect(page.locator(".toast-body").first).to_contain_text("the checkpoint <b>lacks</b> its filter bank")
    expect(page.locator(".looking .chart").first).to_be_visible()


@pytest.mark.browser
def test_late_picture_failure_does_not_replace_newer_pictures(tab: Any) -> None:
    page = tab
    routes: list[Any] = []
    page.locator(".looking .chart").first.evaluate("(each) => each.classList.add('before')")
    page.route("**/visualise/picture/*", lambda route: routes.append(route))
    for count in (1, 2):
        page.locator("#visualise-run").click()
        until(page, lambda count=count: len(routes) == count)  # type: ignore[misc]
    with page.expect_response("**/visualise/picture/*"):
        routes[0].fulfill(status=400, json={"error": "these pictures are gone"})
    page.get_by_role("slider", name="Cursor in the recording").focus()
    routes[1].continue_()
    expect(page.locator(".looking .chart.before")).to_have_count(0)
    expect(page.get_by_role("slider", name="Cursor in the recording")).to_be_focused()
    expect(page.locator("#visualise-stage .notice")).to_have_text("")
    page.unroute("**/visualise/picture/*")


@pytest.mark.browser
def test_visualise_tab_is_usable_on_a_phone(tab: Any, bench: Served) -> None:
    page = tab
    page.set_viewport_size({"width": 390, "height": 844})
    try:
        expect(page.get_by_role("tab", name="Visualise")).to_be_visible()
        page.locator(".looking .token").nth(2).click()
        until(page, lambda: stage(page, "stretch") == "1.250 1.750")
        page.get_by_role("button", name="Enlarge head 0 of Side 1").click()
        expect(chart(page, "cross").locator(".larger canvas").first).to_be_visible()
        assert all(page.evaluate(LIT, 1.5).values())
        assert no_sideways_scroll(page)
        small = page.evaluate("""() => [...document.querySelectorAll('.looking button')].filter((each) =>
          each.checkVisibility() && each.getBoundingClientRect().height < 39).map((each) => each.textContent)""")
        assert not small, "too small for fingers"
        expect(page.get_by_label("Strength of faint values")).to_be_visible()
        check_trackpad(page)
        check_fingers(page)
        check_reload(page)
    finally:
        page.set_viewport_size({"width": 1280, "height": 900})


@pytest.mark.browser
def test_text_in_charts_is_as_large_as_the_reader_sets_it(tab: Any) -> None:
    page = tab
    lane = page.locator(".looking .lane canvas").first
    time_axis = page.locator(".looking .strip canvas").first
    usual = [each.bounding_box()["height"] for each in (lane, time_axis)]
    page.add_style_tag(content="html { font-size: 200%; }")
    until(page, lambda: lane.bounding_box()["height"] == pytest.approx(2 * usual[0], abs=1))
    assert time_axis.bounding_box()["height"] == pytest.approx(usual[1] + 18, abs=1), "the times, not the waveform"
    assert no_sideways_scroll(page)


def check_reload(page: Any) -> None:
    """The state of the view survives a reload."""
    drag(page, "bands", 0.25, 0.5)
    until(page, lambda: stage(page, "stretch") != "")
    page.get_by_role("button", name="Copy link").click()
    stretch = stage(page, "stretch")
    page.reload()
    expect(page.locator("#visualise-status")).to_contain_text("Done")
    expect(page.locator(".looking .chart").first).to_be_visible()
    assert stage(page, "stretch") == stretch
    assert no_sideways_scroll(page)


def check_trackpad(page: Any) -> None:
    """Two fingers zoom around their middle, where the browser is Safari."""
    plot = page.locator(".looking .strip .plot")
    plot.press("0")
    until(page, lambda: stage(page, "from") == "0.000")
    whole = float(stage(page, "to"))
    assert plot.evaluate(TRACKPAD) == [True] * 3, "the page zoomed"
    until(page, lambda: abs(float(stage(page, "to")) - float(stage(page, "from")) - whole / 1.5) < 0.01)
    plot.press("0")
    until(page, lambda: stage(page, "from") == "0.000")


def check_fingers(page: Any) -> None:
    """Two fingers zoom, with the moments between them in place; then one selects."""
    fingers = page.context.new_cdp_session(page)
    fingers.send("Emulation.setTouchEmulationEnabled", {"enabled": True})
    plot = page.locator(".looking .strip .plot")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()

    def touch(kind: str, *places: float) -> None:
        points = [{"x": place, "y": box["y"] + 20, "id": number} for number, place in enumerate(places)]
        fingers.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    try:
        middle = box["x"] + box["width"] / 2
        touch("touchStart", middle - 20, middle + 20)
        for far in (30, 45, 60):
            touch("touchMove", middle - far, middle + far)
        touch("touchEnd")
        until(page, lambda: float(stage(page, "to")) - float(stage(page, "from")) < 0.7)
        assert float(stage(page, "from")) > 0 and stage(page, "stretch") == ""
        touch("touchStart", middle - 20)
        for far in (10, 40):
            touch("touchMove", middle + far)
        touch("touchEnd")
        until(page, lambda: stage(page, "stretch") != "")
    finally:
        fingers.send("Emulation.setTouchEmulationEnabled", {"enabled": False})
        fingers.detach()
