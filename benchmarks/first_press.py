"""A visitor's waiting time from the first press of Transcribe on a fresh page to the first transcript, and to all.

    python -m benchmarks.first_press [--runs 3] [--look 0]

Each run starts the page in a separate process, as `workbench app` does, opens it in Chromium, clicks a sample, waits
for `--look` seconds, and presses Transcribe with the page's default choice, the four demo models. The times count from
the press. The goals are 3 s for the first transcript and 8 s for all, on an idle machine; the load average is printed.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import statistics
import subprocess
import sys
import time

from playwright.sync_api import Page, expect, sync_playwright

from tests.support.browser import PROGRAMS, chromium_program

PATIENCE = 300_000  # milliseconds
ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")


def main() -> None:
    """Prints the times of each run, and their medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--look", type=float, default=0.0, help="seconds between the sample and the press")
    options = parser.parse_args()
    program = chromium_program()
    if program is None:
        sys.exit(f"Chromium is not installed; on Debian: apt-get install {PROGRAMS[0]}")
    expect.set_options(timeout=PATIENCE)
    runs = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for _ in range(options.runs):
            runs.append(_with_page(browser.new_page(viewport={"width": 1280, "height": 900}), options.look))
            load = os.getloadavg()[0]
            print(f"first transcript {runs[-1][0]:.2f} s, all {runs[-1][1]:.2f} s (load {load:.1f})", flush=True)
        browser.close()
    first, complete = (statistics.median(times) for times in zip(*runs, strict=True))
    print(f"median of {options.runs}: first {first:.2f} s (goal 3), all {complete:.2f} s (goal 8)")


def _with_page(page: Page, look: float) -> tuple[float, float]:
    """Starts the page, measures it, and ends it."""
    page.set_default_timeout(PATIENCE)
    command = [sys.executable, "-m", "workbench", "app", "--port", "0"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    served = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    try:
        page.goto(_address(served))
        return _measured(page, look)
    finally:
        page.close()
        served.send_signal(signal.SIGTERM)
        served.wait(60)


def _address(served: subprocess.Popen[str]) -> str:
    """Returns the page's address when it prints that."""
    assert served.stdout is not None
    for line in served.stdout:
        if match := ADDRESS.search(line):
            return match[0]
    raise SystemExit("the page ended without an address")


def _measured(page: Page, look: float) -> tuple[float, float]:
    """Returns the seconds from the press to the first transcript and to all."""
    page.locator("button.sample").first.click()
    expect(page.locator("#recordings")).to_contain_text("three_seven_one")
    ticked = page.locator("#models input:checked").count()
    time.sleep(look)
    started = time.perf_counter()
    page.locator("#run").click()
    times = []
    for count in (1, ticked):  # the page looks at every frame; `expect` would look once a second
        page.wait_for_function("count => document.querySelectorAll('.result.done').length >= count", arg=count)
        times.append(time.perf_counter() - started)
    return times[0], times[1]


if __name__ == "__main__":
    main()
