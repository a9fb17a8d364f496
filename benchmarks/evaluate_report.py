"""The report of `workbench evaluate` on 100,000 recordings, in a browser: `python -m benchmarks.evaluate_report`.

The results are synthetic: English words, and four models with random errors. It measures the time to write the report,
its size, the time until the table can be used and until the texts of all rows are read, the longest sort over all
columns, a search, and frames while scrolling. It needs Debian's chromium.
"""

from __future__ import annotations

import argparse
import random
import re
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.browser import chromium_program
from workbench.evaluation.report import Columns, page
from workbench.evaluation.report.columns import columns_of
from workbench.evaluation.rows import Result, Utterance, scores_of
from workbench.text.rates import score

ROOT = Path(__file__).resolve().parents[1]
MODELS = ("demo/a|pytorch", "demo/a|gguf|f32", "demo/a|gguf|q8_0", "demo/a|gguf|q4_0")
POOL = 3000  # different texts; scoring more would take longer than the measurement
SCROLL = """async () => {
  const grid = document.querySelector('.grid');
  const times = [];
  for (let step = 0; step < 60; step += 1) {
    const begun = performance.now();
    grid.scrollTop = (grid.scrollHeight * step) / 60;
    await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame);
    times.push(performance.now() - begun);
  }
  return Math.max(...times);
}"""


def random_columns(count: int, seed: int = 24) -> Columns:
    """Returns results of four models over so many recordings."""
    source = random.Random(seed)
    words = sorted(set(re.findall(r"[a-z]{2,}", (ROOT / "README.md").read_text(encoding="utf-8").lower())))
    pool: list[tuple[str, list[tuple[str, dict[str, Any]]]]] = []
    for _ in range(POOL):
        text = " ".join(source.choices(words, k=source.randint(3, 20)))
        hypotheses = []
        for place in range(len(MODELS)):
            changed = [source.choice(words) if source.random() < 0.02 * (place + 1) else each for each in text.split()]
            written = " ".join(changed).capitalize() + "."
            hypotheses.append((written, scores_of(score(text, written))))
        pool.append((text, hypotheses))
    chosen = [source.randrange(POOL) for _ in range(count)]
    corpus = [
        Utterance(
            f"corpus-{number:06d}",
            f"audio/{number // 1000:03d}/{number:06d}.wav",
            pool[place][0],
            duration=round(source.uniform(1, 20), 2),
            speaker=f"speaker {source.randrange(500):03d}",
            noise=source.choice(("clean", "20 dB", "10 dB", "0 dB")),
            language="en",
        )
        for number, place in enumerate(chosen)
    ]
    results = {
        model: [
            Result(
                each.id,
                model,
                pool[place][1][number][0],
                audio_seconds=each.duration or 0.0,
                scores=pool[place][1][number][1],
                measured={"compute_seconds": source.uniform(0.01, 0.5), "cpu_seconds": 0.3, "memory_bytes": 400 << 20},
            )
            for each, place in zip(corpus, chosen)
        ]
        for number, model in enumerate(MODELS)
    }
    return columns_of(corpus, results, "basic", "1")


def noise(utterance: Utterance) -> tuple[np.ndarray, int]:
    """Returns eight seconds of noise, which no format makes small."""
    return np.random.default_rng(0).uniform(-0.3, 0.3, 8 * 16000), 16000


def main() -> None:
    """Prints the figures."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--keep", help="write the report here")
    options = parser.parse_args()
    columns = random_columns(options.rows)
    started = time.monotonic()
    text = page(columns, noise)
    print(f"written in {time.monotonic() - started:.1f} s")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(options.keep or Path(folder) / "report.html").absolute()
        path.write_text(text, encoding="utf-8")
        print(f"{path.stat().st_size / 1e6:.1f} MB")
        browser = playwright.chromium.launch(executable_path=chromium_program(), args=["--no-sandbox"])
        times_by_mark: dict[str, list[tuple[float, float]]] = {
            "ready": [],
            "whole": [],
        }  # (seconds on the clock, processor seconds of the page's thread)
        for _ in range(3):
            tab = browser.new_page(viewport={"width": 1280, "height": 900})
            thread = tab.context.new_cdp_session(tab)
            thread.send("Performance.enable", {"timeDomain": "threadTicks"})
            tab.goto(path.as_uri())
            for mark, times in times_by_mark.items():
                tab.wait_for_selector(f"html[data-{mark}]", timeout=60_000)
                spent = {each["name"]: each["value"] for each in thread.send("Performance.getMetrics")["metrics"]}
                clock = float(tab.evaluate(f"document.documentElement.dataset.{mark}")) / 1000
                times.append((clock, spent["TaskDuration"]))
            if len(times_by_mark["whole"]) < 3:
                tab.close()
        for mark, event in (("ready", "the table can be used"), ("whole", "the texts of all rows are read")):
            clock, busy = (", ".join(f"{each:.2f}" for each in sorted(values)) for values in zip(*times_by_mark[mark]))
            print(f"{event} after {clock} s; the page's own thread computed {busy} s of these")
        grid = tab.locator(".grid")
        sorts = {}
        for number in range(tab.locator(".grid .top button").count()):
            button = tab.locator(".grid .top button").nth(number)
            name = button.inner_text()
            for direction in (1, 2):
                button.click()
                sorts[f"{name} {direction}"] = float(grid.get_attribute("data-sorted") or "nan")
        slowest = max(sorts, key=lambda each: sorts[each])
        print(f"sorted in {min(sorts.values()):.0f} to {sorts[slowest]:.0f} ms; slowest: {slowest}")
        started = time.monotonic()
        tab.locator(".tools input[type=search]").fill("model speech")
        tab.locator(".count", has_text=" of 100,000" if options.rows == 100_000 else " of ").wait_for(timeout=60_000)
        print(f"searched in {time.monotonic() - started:.2f} s, with a pause of 0.12 s after the last letter")
        print(f"slowest of 60 jumps while scrolling: {tab.evaluate(SCROLL):.0f} ms for two frames")
        browser.close()


if __name__ == "__main__":
    main()
