"""The timeline with a recording of two hours: time to the first picture, smoothness of panning, distance of cursor and
lit word from the sound: `python -m benchmarks.timeline [--hours 2] [--width 1280]`.

It makes a recording with a beep in every second, serves the page with a model that writes a word for each beep, and
measures in headless Chromium. It measures the sound at the media element's output.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.browser import chromium_program

RATE = 8000  # Hz; keeps the file small
BEEP = 0.3  # seconds, at the start of each second

# Runs in the page. Pans for some seconds, a step in each frame, and returns the milliseconds between frames.
PAN = """async ([width, seconds]) => {
  const {link} = document.querySelector('.timeline').timeline;
  const times = [];
  link.show(100, 100 + width);
  await new Promise((go) => setTimeout(go, 1000));
  const begun = performance.now();
  await new Promise((over) => {
    const step = (now) => {
      times.push(now);
      link.pan((link.to - link.from) * 0.01);
      if (now - begun < 1000 * seconds) requestAnimationFrame(step);
      else over();
    };
    requestAnimationFrame(step);
  });
  return times.slice(1).map((time, place) => time - times[place]);
}"""

# Runs in an empty page. Moves an empty canvas for some seconds, and returns the milliseconds between frames.
EMPTY = """async (seconds) => {
  const canvas = document.createElement('canvas');
  document.body.append(canvas);
  const times = [];
  const begun = performance.now();
  await new Promise((over) => {
    const step = (now) => {
      times.push(now);
      canvas.style.transform = `translateX(${times.length % 100}px)`;
      if (now - begun < 1000 * seconds) requestAnimationFrame(step);
      else over();
    };
    requestAnimationFrame(step);
  });
  return times.slice(1).map((time, place) => time - times[place]);
}"""

# Plays some seconds and returns, for each beep that is heard, where cursor and lit word are then.
PLAY = """async (seconds) => {
  const line = document.querySelector('.timeline').timeline;
  const context = new AudioContext();
  const meter = context.createAnalyser();
  meter.fftSize = 256;
  context.createMediaElementSource(line.sound.audio).connect(meter);
  meter.connect(context.destination);
  await context.resume();
  line.link.show(60, 75);
  line.sound.seek(60.6);
  await line.sound.play();
  const wave = new Float32Array(256);
  const found = [];
  let quiet = true;
  const begun = performance.now();
  while (performance.now() - begun < 1000 * seconds) {
    await new Promise((go) => setTimeout(go, 2));
    meter.getFloatTimeDomainData(wave);
    const loud = Math.max(...wave.map(Math.abs)) > 0.1;
    if (loud && quiet) {
      const heard = performance.now();
      await new Promise(requestAnimationFrame);
      const shown = line.shownTime - (performance.now() - heard) / 1000;
      found.push([shown - Math.round(shown), line.litWords[0]]);
    }
    quiet = !loud && (quiet || Math.max(...wave.map(Math.abs)) < 0.01);
  }
  line.sound.pause();
  return found;
}"""


def recording(path: Path, seconds: int) -> Path:
    """Writes a recording with a beep in every second."""
    import numpy as np
    import soundfile

    moments = np.arange(RATE) / RATE
    second = (12000 * np.sin(2 * np.pi * 440 * moments) * (moments < BEEP)).astype(np.int16)
    minute = np.tile(second, 60)
    with soundfile.SoundFile(path, "w", RATE, 1, subtype="PCM_16") as file:
        for _ in range(seconds // 60):
            file.write(minute)
    return path


def served() -> Iterator[str]:
    """Serves the page with a model that writes a word for each second."""
    from panels.page import build_page
    from panels.running.sessions import SessionPool
    from panels.serving import launch, own_uploads, quieten
    from tests.panels.conftest import free_port
    from tests.support import fake_panels
    from workbench.session.values import Segment, Token, Transcript

    quieten()

    def stream(self: Any, audio: str, **options: Any) -> Iterator[Any]:
        count = 7200
        parts = []
        for first in range(0, count, 10):
            tokens = tuple(Token(1, f" w{n}", float(n), n + BEEP, 0.8) for n in range(first, first + 10))
            parts.append(Segment(first, first + 10.0, "".join(each.text for each in tokens).strip(), tokens))
        text = " ".join(part.text for part in parts)
        yield Transcript(self.model, self.runtime, text, None, tuple(parts), (), float(count), 0.1, 1.0)

    fake_panels.FakeSession.stream = stream  # type: ignore[method-assign]
    with own_uploads(), SessionPool(fake_panels.FakeRegistry()) as pool:  # type: ignore[arg-type]
        page = build_page(pool)
        _, url, _ = launch(page, server_name="127.0.0.1", server_port=free_port(), prevent_thread_lock=True, quiet=True)
        yield url
        page.close()


def frames(page: Any, script: str, argument: Any, runs: int) -> str:
    """Returns as text the rate of the frames that a script of the page times, and the main thread's time for one."""
    client = page.context.new_cdp_session(page)
    client.send("Performance.enable", {"timeDomain": "threadTicks"})

    def computed() -> float:
        metrics = client.send("Performance.getMetrics")["metrics"]
        seconds: float = next(each["value"] for each in metrics if each["name"] == "TaskDuration")
        return seconds

    before = computed()
    gaps = [gap for _ in range(runs) for gap in page.evaluate(script, argument)]
    cost = 1000 * (computed() - before) / len(gaps)
    client.detach()
    figures = f"median {statistics.median(gaps):.1f} ms, 95 % within {sorted(gaps)[int(0.95 * len(gaps))]:.1f} ms"
    return f"{1000 * len(gaps) / sum(gaps):.0f} frames a second ({figures}), main thread {cost:.1f} ms a frame"


def measure(hours: float, width: int, runs: int) -> None:
    """Measures and prints the figures."""
    from playwright.sync_api import sync_playwright

    folder = Path(tempfile.mkdtemp(prefix="workbench-"))
    path = recording(folder / "long.wav", round(3600 * hours))
    pages = served()
    url = next(pages)
    program = chromium_program()
    flags = ["--no-sandbox", "--disable-gpu", "--mute-audio", "--autoplay-policy=no-user-gesture-required"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=flags)
        page = browser.new_page(viewport={"width": width, "height": 844})
        page.set_default_timeout(300_000)
        page.goto(url)
        page.wait_for_selector("#models input")
        uploaded: list[float] = []
        page.on(
            "response", lambda response: uploaded.append(time.perf_counter()) if "/upload?" in response.url else None
        )
        page.set_input_files("#recordings input[type=file]", str(path))
        page.wait_for_selector(".timeline[data-ready=part], .timeline[data-ready=whole]")
        first = time.perf_counter()
        page.wait_for_selector(".timeline[data-ready=whole]")
        complete = time.perf_counter()
        print(f"{hours:g} h of WAV at {RATE} Hz, {path.stat().st_size / 1e6:.0f} MB, window {width} px")
        print(
            f"from the upload's end: first picture {first - uploaded[-1]:.2f} s, whole {complete - uploaded[-1]:.2f} s"
        )
        page.locator("#run").click()
        page.wait_for_selector("#timeline .names button >> nth=1", state="attached")
        page.wait_for_selector(".segment", state="attached")  # the editor, which keeps the page busy while it is drawn
        page.wait_for_timeout(1500)
        page.evaluate("new Promise((done) => requestIdleCallback(done))")
        page.evaluate("document.querySelector('.timeline').timeline.stage.scrollIntoView()")
        for view in (7200 * hours / 4, 600, 20, 0.5):
            print(f"panning, {view:g} s in view: {frames(page, PAN, [min(view, 3600 * hours / 2), 3], runs)}")
        empty = browser.new_page()
        print(f"an empty canvas moves in an empty page: {frames(empty, EMPTY, 3, runs)}")
        empty.close()
        page.bring_to_front()
        beeps = page.evaluate(PLAY, 8)
        offsets = [abs(each) for each, _ in beeps]
        lit = sum(bool(word) for _, word in beeps)
        print(
            f"{len(beeps)} beeps: cursor off by {1000 * statistics.median(offsets):.0f} ms "
            f"(most {1000 * max(offsets):.0f} ms)"
        )
        print(f"word lit in the frame after the beep: {lit} of {len(beeps)}")
        browser.close()
    next(pages, None)
    shutil.rmtree(folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=2)
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--runs", type=int, default=1)
    options = parser.parse_args()
    measure(options.hours, options.width, options.runs)
