"""The page in Firefox and in Safari's engine, where they are installed: it transcribes and draws without a fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.panels.conftest import Served, free_port
from tests.support.other_browsers import Browser, firefox, webkit

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.tabs("transcribe")]

# Notes what the page's own scripts throw, and what the content security policy forbids.
NOTE_FAULTS = """window.faults = [];
addEventListener('error', ({error}) => { if (error) window.faults.push(String(error)); });
addEventListener('unhandledrejection', ({reason}) => window.faults.push(String(reason)));
addEventListener('securitypolicyviolation', ({violatedDirective}) => window.faults.push(violatedDirective));
return true;"""
DRAWN = """const {soundBox: box} = document.querySelector('.timeline').timeline;
return box.getContext('2d').getImageData(0, 0, box.width, box.height).data.some(Boolean);"""
PRESS = "const button = document.querySelector('{}'); button?.click(); return Boolean(button);"


def transcribe(browser: Browser, url: str) -> None:
    browser.open(url)
    browser.wait(NOTE_FAULTS)
    browser.wait("return document.querySelector('#models input:checked');")
    browser.wait(PRESS.format("button.sample"))
    browser.wait("return document.querySelector('.timeline[data-ready=whole]');")
    browser.wait(DRAWN)
    browser.wait(PRESS.format("#run"))
    browser.wait("return document.querySelectorAll('.result.done').length === 2;")
    assert browser.wait("return document.querySelector('.segment textarea')?.value;")
    assert browser.wait("return JSON.stringify(window.faults);") == "[]"


def test_page_works_in_firefox(served: Served, tmp_path: Path) -> None:
    with firefox(tmp_path) as browser:
        transcribe(browser, served.url)


def test_page_works_in_the_engine_of_safari(served: Served, tmp_path: Path) -> None:
    with webkit(tmp_path, free_port()) as browser:
        transcribe(browser, served.url)
