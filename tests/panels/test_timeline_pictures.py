"""The timeline's pictures: what a pan moves and completes equals, in every pixel, the same view painted anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.panels.conftest import Served
from tests.panels.test_timeline import READY, TIMELINE
from tests.panels.test_transcribe_page import add_files, expect, open_page
from tests.support.widths import PHONE
from workbench.audio.read import SAMPLE_RATE, write_wav

SECONDS = 60
VIEWS = (50, 1.3, 0.15)  # seconds; in the last one single samples are drawn
PANS = (0.01, 0.37, -0.011, -0.55, 0.0006, 1.4)  # of the view

# Gives the timeline lanes with words of many lengths: some differ, some are missing, some are not sure.
LANES = """(seconds) => {
  const line = document.querySelector('.timeline').timeline;
  const lane = (key, unit) => {
    const [segments, words, missing] = [[], [], []];
    let time = 0.3;
    for (let n = 0; time < seconds - 3; n += 1) {
      const length = unit * (1 + (n * 7) % 11);
      const [differs, timed, sure] = [Number(n % 5 === 0), Number(n % 7 !== 3), n % 3 ? 0.5 : 0.95];
      words.push([time, time + 0.8 * length, `word${n * n}`, differs, timed, sure]);
      if (n % 4 === 0) segments.push([time, time + 4.2 * length, 'text']);
      if (n % 6 === 0) missing.push([time + length / 3, 'other']);
      time += length;
    }
    return {key, title: key, note: '', segments, words, missing};
  };
  line.active = 'coarse';
  line.lanes.take([lane('coarse', 0.3), lane('fine', 0.01), lane('long', 2)]);
  line.drawNames();
  line.resize();
}"""

# Pans, and after each pan compares a picture with the same view painted anew: how many pixels differ, by how much at
# most (of 255, in red, green, blue or opacity), and how many are not clear.
PAN = """async ([from, length, pans, name]) => {
  const line = document.querySelector('.timeline').timeline;
  const pane = line[name];
  const still = async () => {
    const frame = () => new Promise(requestAnimationFrame);
    await frame();
    do await frame(); while (line.tiles.waiting.size || line.tiles.fetched.size);
    await frame();
    await frame();
  };
  const pixels = () => pane.context.getImageData(0, 0, pane.canvas.width, pane.canvas.height).data;
  line.link.show(from, from + length);
  await still();
  const found = [];
  for (const share of pans) {
    line.link.pan(share * length);
    await still();
    const panned = pixels();
    pane.show(line.view, true);
    const anew = pixels();
    let [other, most, drawn] = [0, 0, 0];
    for (let place = 0; place < anew.length; place += 4) {
      const [one, two] = [panned[place + 3] / 255, anew[place + 3] / 255];
      const off = [0, 1, 2].map((colour) => Math.abs(panned[place + colour] * one - anew[place + colour] * two));
      off.push(255 * Math.abs(one - two));
      other += Number(off.some(Boolean));
      most = Math.max(most, ...off);
      drawn += Number(two > 0);
    }
    found.push([other, most, drawn]);
  }
  return found;
}"""


def recording(path: Path) -> Path:
    """A WAV file with noise that grows louder and fainter."""
    rng = np.random.default_rng(7)
    moments = np.arange(SECONDS * SAMPLE_RATE) / SAMPLE_RATE
    wave = 0.4 * rng.standard_normal(moments.size) * np.sin(2 * np.pi * 0.37 * moments) ** 4
    write_wav(path, wave.astype(np.float32))
    return path


@pytest.mark.browser
@pytest.mark.parametrize("sharp, dark", [(1, False), (1.25, True)])
def test_panned_picture_equals_the_same_view_painted_anew(
    served: Served, chromium: Any, tmp_path: Path, sharp: float, dark: bool
) -> None:
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, device_scale_factor=sharp)
    page = context.new_page()
    open_page(page, served)
    add_files(page, recording(tmp_path / "noise.wav"))
    expect(page.locator(READY)).to_be_visible()
    page.evaluate(LANES, SECONDS)
    page.evaluate("(dark) => document.body.classList.toggle('dark', dark)", dark)
    for view in VIEWS:
        sounds = page.evaluate(PAN, [SECONDS / 10, view, PANS, "sounds"])
        rows = page.evaluate(PAN, [SECONDS / 10, view, PANS, "rows"])
        if sharp == 1 and view > 1:
            assert not any(most for _, most, _ in sounds), (view, sounds)
        for other, most, drawn in sounds + rows:  # smoothed edges, which depend on where the browser begins to paint
            assert drawn > 1000 and other < 0.03 * drawn and most < 64, (view, sounds, rows)
    context.close()


# For each name of a lane: by how much its letters are too high, and how many rows are painted under it and below it.
UNDER_NAMES = """() => {
  const {names, rows} = document.querySelector('.timeline').timeline;
  const top = rows.canvas.getBoundingClientRect().top;
  const painted = (from, to) => {
    const {data} = rows.context.getImageData(0, from, rows.canvas.width, to - from);
    const width = 4 * rows.canvas.width;
    const isPainted = (row) => data.subarray(row * width, (row + 1) * width).some(Boolean);
    return Array.from({length: to - from}, (_, row) => row).filter(isPainted).length;
  };
  return [...names.children].map((name) => {
    const {top: begin, bottom: end} = name.getBoundingClientRect();
    const [from, to] = [begin - top, end - top].map(Math.round);
    return [name.scrollHeight - name.clientHeight, painted(from + 6, to), painted(to, to + 28)];
  });
}"""


@pytest.mark.browser
def test_large_text_has_room_for_the_names_of_lanes_and_tabs(served: Served, page: Any, tmp_path: Path) -> None:
    page.set_viewport_size({"width": PHONE, "height": 844})
    open_page(page, served)
    page.add_style_tag(content="html { font-size: 200% !important; }")
    add_files(page, recording(tmp_path / "noise.wav"))
    expect(page.locator(READY)).to_be_visible()
    page.evaluate(LANES, SECONDS)
    assert page.evaluate(UNDER_NAMES) == [[0, 0, 28]] * 3
    tabs = page.get_by_role("tab").all()
    assert not [tab.inner_text() for tab in tabs if tab.evaluate("each => each.scrollWidth > each.clientWidth")]


# The columns of the canvas over the stage that are not clear, in runs of [first, beyond], half way down.
RUNS = """() => {
  const {marks} = document.querySelector('.timeline').timeline;
  if (marks.canvas.hidden) return [];
  const {data} = marks.context.getImageData(0, marks.canvas.height >> 1, marks.canvas.width, 1);
  const runs = [];
  for (let x = 0; x < data.length / 4; x += 1) {
    if (!data[4 * x + 3]) continue;
    if (runs.length && runs.at(-1)[1] === x) runs.at(-1)[1] = x + 1;
    else runs.push([x, x + 1]);
  }
  return runs;
}"""


@pytest.mark.browser
def test_cursor_and_selection_stay_at_their_times_while_the_view_moves(
    served: Served, page: Any, tmp_path: Path
) -> None:
    open_page(page, served)
    add_files(page, recording(tmp_path / "noise.wav"))
    expect(page.locator(READY)).to_be_visible()
    frames = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    width = page.evaluate(f"{TIMELINE}.width")
    page.evaluate(f"{TIMELINE}.link.go(21), {TIMELINE}.link.select(24, 26)")
    for begin, shown in (
        (20, (21, 24, 26)),
        (20.5, (21, 24, 26)),
        (23, (24, 26)),
        (25, (25, 26)),
        (30, ()),
        (15, (21, 24, 25)),
    ):
        page.evaluate(f"{TIMELINE}.link.show({begin}, {begin} + 10)")
        page.evaluate(frames)
        runs = page.evaluate(RUNS)
        # A cursor has two columns, with its time between them.
        ends = [end for first, last in runs for end in ([first + 1] if last - first == 2 else [first, last])]
        expected = [width * (time - begin) / 10 for time in shown]
        assert ends == pytest.approx(expected, abs=1), begin
