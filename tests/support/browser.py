"""Debian's Chromium, for the tests that look at a page."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser")  # in this order
QUICK = "--js-flags=--no-opt"  # a page of a test ends before what V8 optimises has paid off
MICROPHONE = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")  # beeps, and is allowed
SOON = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))"
# What Safari sends for two fingers on a trackpad, in the middle of an element: their distance grows by half.
TRACKPAD = """(element) => {
  const {left, width} = element.getBoundingClientRect();
  return [['gesturestart', 1], ['gesturechange', 1.2], ['gesturechange', 1.5]].map(([name, scale]) => {
    const event = new Event(name, {bubbles: true, cancelable: true});
    element.dispatchEvent(Object.assign(event, {scale, clientX: left + width / 2}));
    return event.defaultPrevented;
  });
}"""
PATIENCE = 60_000  # milliseconds; a machine with other work is slow


def chromium_program() -> str | None:
    """The path of Chromium: its shell without windows where that is installed, else the whole program."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """Debian's Chromium, headless."""
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="the browser tests need playwright (pip install playwright)"
    )
    program = chromium_program()
    if program is None:
        pytest.skip(f"the browser tests need Chromium (apt-get install {PROGRAMS[0]})")
    sync_api.expect.set_options(timeout=PATIENCE)
    flags = ["--no-sandbox", "--disable-background-networking", "--disable-gpu", "--mute-audio", QUICK, *MICROPHONE]
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=flags)
        yield browser
        browser.close()


def unfold(page: Any, name: str) -> None:
    """Presses a closed accordion of that name, and waits until what is in it stands.

    Gradio mounts it only now, and sets its values some frames later; until then a field loses what is written into it.
    """
    page.get_by_role("button", name=re.compile(f"^{name}")).click()
    page.evaluate(SOON)
