"""What a browser receives until the page shows its samples, at a first and at a second visit, and how long that takes.

    python -m benchmarks.page_opening [--rounds N]

It starts the page in local mode and opens it in Chromium on the same machine. It counts compressed bytes.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
from playwright.sync_api import sync_playwright

from benchmarks.served import served
from tests.support.browser import PROGRAMS, chromium_program


def open_page(page: Any, url: str) -> tuple[float, int, int]:
    """Opens the address; returns the seconds until the page shows its samples, the bytes received and the requests."""
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    received: list[float] = []
    session.on("Network.loadingFinished", lambda event: received.append(event["encodedDataLength"]))
    started = time.perf_counter()
    page.goto(url)
    page.wait_for_selector("button.sample")
    seconds = time.perf_counter() - started
    page.wait_for_timeout(1500)  # some files come after the samples, and the network never becomes idle
    return seconds, round(sum(received)), len(received)


@contextmanager
def browser(program: str) -> Iterator[Any]:
    """Starts a browser with an empty cache on the disk."""
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as profile:
        context = playwright.chromium.launch_persistent_context(profile, executable_path=program, args=["--no-sandbox"])
        yield context
        context.close()


def main() -> int:
    """Prints the medians of a first and of a second visit."""
    parser = argparse.ArgumentParser(description="What a browser does until the page shows its samples.")
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    program = chromium_program()
    if program is None:
        print(f"needs Chromium: apt-get install {PROGRAMS[0]}", file=sys.stderr)
        return 2
    visits: tuple[list[Any], list[Any]] = ([], [])
    with served("local", {}, page=True) as server:
        process = psutil.Process(server.process.pid)
        for _ in range(rounds):
            with browser(program) as context:
                for visit in visits:
                    before = sum(process.cpu_times()[:2])
                    page = context.new_page()
                    measured = open_page(page, server.url)
                    visit.append((*measured, sum(process.cpu_times()[:2]) - before))
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
