"""The timeline: its server routes, and in a real browser its pictures, sound, lanes and corrected times."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile
from starlette.applications import Starlette

from panels.running.choices import ModelOnRuntime
from panels.transcribe.job import Row, RunState
from panels.transcribe.lanes import lanes_of
from panels.widgets import timeline as timeline_module
from panels.widgets.timeline import Timelines, timeline_value
from panels.widgets.timeline_routes import timeline_routes
from tests.panels.conftest import Served
from tests.panels.test_transcribe_page import add_files, expect, open_page
from tests.support import coroutines
from tests.support.browser import TRACKPAD
from tests.support.fake_panels import broken, tone
from tests.support.widths import no_sideways_scroll
from workbench.core.errors import BadInput
from workbench.session.values import Segment, Token, Transcript

READY = ".timeline[data-ready=whole]"
TIMELINE = "document.querySelector('.timeline').timeline"


def get_all(timelines: Timelines, *requests: tuple[str, dict[str, str]]) -> list[httpx.Response]:
    """Returns the responses to the requests of one page."""

    async def get() -> list[httpx.Response]:
        transport = httpx.ASGITransport(Starlette(routes=timeline_routes(timelines)))
        async with httpx.AsyncClient(transport=transport, base_url="http://page") as client:
            return [await client.get(path, headers=headers) for path, headers in requests]

    responses: list[httpx.Response] = coroutines.finished(get())
    return responses


def test_range_requests_return_the_matching_bytes_of_the_sound(tmp_path: Path) -> None:
    path = tone(tmp_path / "a b.wav")
    timelines = Timelines()
    address = f"/timeline/{timelines.key(str(path))}"
    ranges = ["bytes=0-", "bytes=0-9", "bytes=43-44", "bytes=1001-5000", "bytes=-7", "bytes=63000-99999999"]
    full, *parts, beyond, stretch, empty, unknown = get_all(
        timelines,
        (f"{address}/sound.wav", {}),
        *((f"{address}/sound.wav", {"range": each}) for each in ranges),
        (f"{address}/sound.wav", {"range": "bytes=99999999-"}),
        (f"{address}/sound.wav?save=1&from=0.25&to=0.75", {}),
        (f"{address}/sound.wav?from=5&to=6", {}),
        ("/timeline/nobodys/sound.wav", {}),
    )
    assert full.status_code == 200 and full.headers["accept-ranges"] == "bytes"
    (tmp_path / "heard.wav").write_bytes(full.content)
    samples, rate = soundfile.read(tmp_path / "heard.wav", dtype="int16")
    expected, _ = soundfile.read(path, dtype="int16")
    assert rate == 16000 and np.array_equal(samples, expected)
    for part in parts:
        first, last, length = map(int, re.findall(r"\d+", part.headers["content-range"]))
        assert part.status_code == 206 and length == len(full.content)
        assert part.content == full.content[first : last + 1] and len(part.content) == last + 1 - first
    assert beyond.status_code == 416
    assert "a%20b-0.25-0.75.wav" in stretch.headers["content-disposition"]
    assert stretch.content[44:] == expected[4000:12000].tobytes()
    assert empty.status_code == 400 and "no sound lies from 5 s" in empty.json()["error"]
    assert unknown.status_code == 400 and "not on the server any more" in unknown.json()["error"]
    timelines.close()


def test_tiles_are_cacheable_once_the_recording_is_read(tmp_path: Path) -> None:
    timelines = Timelines()
    address = f"/timeline/{timelines.key(str(tone(tmp_path / 'a.wav')))}"
    timelines.of(address.rpartition("/")[2]).found()
    for _ in range(400):
        (about,) = get_all(timelines, (f"{address}/about", {}))
        if about.json()["finished"]:
            break
        time.sleep(0.01)
    assert about.json()["seconds"] == 2.0 and about.json()["rate"] == 16000 and about.json()["share"] == 1
    peaks, mels, samples, fine_peaks, invalid, many = get_all(
        timelines,
        (f"{address}/peaks/0/0", {}),
        (f"{address}/mels/3/0", {}),
        (f"{address}/samples/100/50", {}),
        (f"{address}/peaks/-3/1", {}),
        (f"{address}/peaks/-9/0", {}),
        (f"{address}/samples/0/999999999", {}),
    )
    assert len(peaks.content) == 200 * 2 * 2 and "max-age" in peaks.headers["cache-control"]
    assert len(mels.content) == 25 * 80 and len(samples.content) == 100 and len(fine_peaks.content) == (1600 - 1024) * 4
    assert invalid.status_code == many.status_code == 400
    timelines.close()


def test_oldest_recordings_are_closed_beyond_the_limit_and_broken_files_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline_module, "MAX_OPEN", 2)
    monkeypatch.setattr(timeline_module, "MAX_KEYS", 4)
    timelines = Timelines()
    keys = [timelines.key(str(tone(tmp_path / f"{name}.wav", 0.1))) for name in "abc"]
    first, *_ = recordings = [timelines.of(key) for key in keys]
    for recording in recordings:
        recording.ready.wait(30)
    assert first.stop.is_set() and not recordings[1].stop.is_set()
    assert timelines.of(keys[0]) is not first, "opened again"
    with pytest.raises(BadInput, match=r"text\.wav is not a sound file"):
        timelines.of(timelines.key(str(broken(tmp_path / "text.wav")))).found()
    timelines.key("one more")
    with pytest.raises(BadInput, match="not on the server any more"):
        timelines.of(keys[1])
    assert timelines.key("one more") == timelines.key("one more")
    value = timeline_value(timelines, ["/x/a.wav", "/y/a.wav"], {"/x/b.wav": []}, "0:m")
    assert [track["name"] for track in value["tracks"]] == ["a.wav", "a.wav (2)", "b.wav"] and value["active"] == "0:m"
    timelines.close()


def test_lanes_have_timed_words_and_marks_where_models_disagree() -> None:
    def row(model: str, words: tuple[str, ...], timed: bool, status: Any = "done") -> Row:
        tokens = tuple(Token(n, f" {word}", 0.5 * n, 0.5 * n + 0.25, 0.5) for n, word in enumerate(words))
        part = Segment(0.0, 2.0, " ".join(words), tokens if timed else ())
        transcript = Transcript(model, "pytorch", part.text, None, (part,), (), 2.0, 0.0, 0.1)
        return Row(
            f"0:{model}", "a.wav", "/x/a.wav", ModelOnRuntime(model, "pytorch"), model, None, status, None, transcript
        )

    rows = (row("a", ("three", "eleven"), True), row("b", ("three", "seven"), False), row("c", ("x",), True, "stopped"))
    lanes = lanes_of(RunState(rows))["/x/a.wav"]
    assert [each["key"] for each in lanes] == ["0:a", "0:b", "0:c"]
    assert lanes[0]["words"] == [[0.0, 0.25, "three", 0, 1, 0.5], [0.5, 0.75, "eleven", 1, 1, 0.5]]
    assert [each[3:] for each in lanes[1]["words"]] == [[0, 0, None], [1, 0, None]]
    assert lanes[2]["note"] == "stopped" and not lanes[2]["words"][0][3], "a stopped row has no marks of disagreement"


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 390])
def test_recording_is_drawn_played_transcribed_and_corrected_on_the_timeline(
    served: Served, page: Any, tmp_path: Path, width: int
) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    open_page(page, served)
    add_files(page, tone(tmp_path / "first.wav"))
    expect(page.locator(READY)).to_be_visible()  # before anything is transcribed
    beside = page.locator("[data-timeline] .timeline")
    expect(beside).to_have_count(int(width == 390))
    picture = page.evaluate(f"{TIMELINE}.soundBox.toDataURL().length")
    assert picture > 2000, "something was drawn"
    page.get_by_role("button", name="Play", exact=True).click()
    page.wait_for_function(f"{TIMELINE}.link.cursor > 0.2")  # it plays
    page.get_by_role("button", name="Pause").click()
    page.wait_for_function(f"!{TIMELINE}.link.playing")

    stage = page.get_by_role("slider", name="Position in first.wav")
    stage.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    expect(stage).to_have_attribute("aria-valuenow", "1.00")
    page.keyboard.press("Shift+ArrowLeft")
    expect(stage).to_have_attribute("aria-valuenow", "0.90")
    for _ in range(12):
        page.keyboard.press("+")
    page.wait_for_function(f"Math.abs({TIMELINE}.link.to - {TIMELINE}.link.from - 0.01) < 1e-6")  # down to 10 ms
    page.keyboard.press("0")
    assert stage.evaluate(TRACKPAD) == [True] * 3, "the page zoomed"
    page.wait_for_function(f"Math.abs({TIMELINE}.link.to - {TIMELINE}.link.from - 2 / 1.5) < 1e-6")
    page.keyboard.press("0")
    page.keyboard.press("i")
    page.keyboard.press("End")
    page.keyboard.press("o")
    assert page.evaluate(f"[{TIMELINE}.link.stretch, {TIMELINE}.link.loop]") == [[0.9, 2], True]
    assert "from=0.9000&to=2.0000" in (page.get_by_text("Save selection").get_attribute("href") or "")
    page.keyboard.press("Escape")
    page.emulate_media(media="print")
    pictures = page.locator(".timeline canvas")
    pictures.evaluate_all("(all) => all.forEach((each) => { each.style.width = '3000px'; })")
    width = page.evaluate(f"{TIMELINE}.stage.clientWidth")
    widest = max(pictures.evaluate_all("(all) => all.map((each) => each.clientWidth)"))
    assert widest <= width + 2, "paper would cut off the pictures"  # the map has a border
    page.emulate_media(media="screen")
    page.evaluate(f"{TIMELINE}.resize()")

    page.locator("#run").click()
    expect(page.locator(".segment")).to_have_count(3)
    expect(page.locator("#timeline .names button")).to_have_count(2)
    assert no_sideways_scroll(page)
    page.evaluate(f"{TIMELINE}.link.show(0, 2)")
    page.evaluate(f"{TIMELINE}.stage.scrollIntoView({{block: 'center'}})")
    page.wait_for_timeout(700)  # the page scrolls to the results by itself
    box = page.locator(".timeline .lanes").bounding_box()
    border, row = box["x"] + box["width"] * 0.25, box["y"] + 36
    page.mouse.move(border, row)
    page.mouse.down()
    page.mouse.move(border + box["width"] * 0.05, row, steps=4)
    page.mouse.up()
    fields = [page.get_by_label("End of segment 1"), page.get_by_label("Start of segment 2")]
    corrected = [float(field.input_value()) for field in fields]
    assert sorted(round(value, 1) for value in corrected) in ([0.5, 0.6],), corrected
    page.get_by_label("Start of segment 3").fill("1.25")
    page.wait_for_function(f"{TIMELINE}.lanes.list[0].segments[2][0] === 1.25")  # the lane follows the editor
    with page.expect_download() as waiting:
        page.locator("#export-csv").click()
    saved = Path(waiting.value.path()).read_text(encoding="utf-8-sig")
    assert "1.250" in saved and f"{max(corrected):.3f}" in saved, saved

    page.get_by_role("button", name="Play segment 2").click()
    page.wait_for_function(f"{TIMELINE}.link.cursor > 0.65")
    page.wait_for_function(f"!{TIMELINE}.link.playing")  # at its end
    assert abs(page.evaluate(f"{TIMELINE}.link.cursor") - 1.0) < 0.05


def test_timeline_of_a_file_without_sound_returns_a_one_line_error_with_status_200(tmp_path: Path) -> None:
    notes = tmp_path / "notes.wav"
    notes.write_text("no sound")
    timelines = Timelines()
    key = timelines.key(str(notes))
    assert timelines.of(key).ready.wait(20.0)
    (about,) = get_all(timelines, (f"/timeline/{key}/about", {}))
    assert about.status_code == 200 and "notes.wav" in about.json()["error"]
    assert str(tmp_path) not in about.json()["error"]
    timelines.close()
