"""What a browser receives and computes until the page shows its samples, and what it receives when it comes back.

    python -m benchmarks.page_opening [--rounds N]

Starts the page as its owner does, and opens it in Chromium on the same machine. Counts the bytes as they are sent.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
from playwright.sync_api import sync_playwright

from benchmarks.startup import served_page

PROGRAMS = ("chromium-headless-shell", "chromium")


def opened(page: Any, url: str) -> tuple[float, int, int]:
    """Opens the address; returns the seconds until the samples are there, the bytes received and the requests."""
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    received: list[float] = []
    session.on("Network.loadingFinished", lambda event: received.append(event["encodedDataLength"]))
    begun = time.perf_counter()
    page.goto(url)
    page.wait_for_selector("button.sample")
    seconds = time.perf_counter() - begun
    page.wait_for_timeout(1500)  # for what comes after the samples; a stream of events never ends
    return seconds, round(sum(received)), len(received)


@contextmanager
def browser(program: str) -> Iterator[Any]:
    """A browser of somebody who was never here, with a folder for what it keeps."""
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as kept:
        context = playwright.chromium.launch_persistent_context(kept, executable_path=program, args=["--no-sandbox"])
        yield context
        context.close()


def main() -> int:
    """Prints the medians of a first and of a second visit."""
    parser = argparse.ArgumentParser(description="What a browser does until the page shows its samples.")
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        print(f"needs Chromium: apt-get install {PROGRAMS[0]}", file=sys.stderr)
        return 2
    visits: tuple[list[Any], list[Any]] = ([], [])
    with served_page() as (url, process):
        for _ in range(rounds):
            with browser(program) as context:
                for visit in visits:
                    before = sum(psutil.Process(process.pid).cpu_times()[:2])
                    page = context.new_page()
                    seen = opened(page, url)
                    visit.append((*seen, sum(psutil.Process(process.pid).cpu_times()[:2]) - before))
                    page.close()
    for name, visit in zip(("first visit", "second visit"), visits, strict=True):
        seconds, received, requests, server = (statistics.median(column) for column in zip(*visit, strict=True))
        print(
            f"{name:13} {seconds:5.2f} s until the samples, {received / 1000:7.0f} kB in {requests:.0f} requests, "
            f"{server:5.2f} s of the server's processor"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
