"""Takes the pictures of the README: the page after a transcription, an answer of the Chat tab, and a parity verdict.

Needs Debian's `chromium` and `fonts-noto-color-emoji`. Run it from the checkout: `.venv/bin/python docs/pictures.py`.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "pictures"
WIDTH, HEIGHT = 1280, 860  # pixels
PATIENCE = 180_000  # milliseconds until models are loaded and have written


def transcribed(page: Page) -> None:
    """Takes the picture of four models that transcribed one recording."""
    page.locator("button.sample").first.click()
    expect(page.locator("#recordings")).to_contain_text("three_seven_one")
    page.locator("#run").click()
    expect(page.locator(".result.done")).to_have_count(page.locator("#models input:checked").count())
    page.evaluate("document.activeElement.blur(); window.scrollTo(0, 0)")
    page.screenshot(path=FOLDER / "page.png")


def answered(page: Page) -> None:
    """Takes the picture of a spoken answer, with its tokens and codec streams."""
    page.get_by_role("tab", name="Chat").click()
    expect(page.locator(".chat[data-ready]")).to_be_visible()
    answer = page.locator(".chat .answer")
    for _ in range(2):  # the first answer loads the model
        page.locator(".chat .new-chat").click()
        page.locator(".chat button.sample").first.click()
        expect(answer.locator(".glance")).to_be_visible()
    answer.get_by_label("Look inside").click()
    expect(answer.locator(".inside canvas")).to_be_visible()
    page.evaluate("document.activeElement.blur(); window.scrollTo(0, 0)")
    page.mouse.move(0, 0)
    page.screenshot(path=FOLDER / "chat.png")


def compared(page: Page) -> None:
    """Takes the picture of a quantised candidate and of one without CMVN, with the table of stages."""
    page.get_by_role("tab", name="Parity").click()
    page.locator("button.sample:visible").first.click()
    page.locator("#parity-candidates textarea").fill("gguf:q8_0\npytorch+cmvn=off")
    page.locator("#parity-run").click()
    expect(page.locator("#parity-status")).to_contain_text("Compared in")
    expect(page.locator("#parity-closer h3")).to_be_visible()
    page.evaluate("document.activeElement.blur(); window.scrollTo(0, 0)")
    page.wait_for_timeout(1000)  # the table scrolls to the stage
    page.screenshot(path=FOLDER / "verdict.png")


def main() -> None:
    """Serves the page, takes the pictures, and ends what it started."""
    sys.path.insert(0, str(ROOT))
    from panels.page import build_page
    from panels.running.sessions import SessionPool
    from panels.serving import launch
    from workbench.registry.registry import Registry

    program = shutil.which("chromium")
    if program is None:
        sys.exit("chromium is not installed; on Debian: apt-get install chromium")
    FOLDER.mkdir(exist_ok=True)
    with SessionPool(Registry()) as pool, sync_playwright() as playwright:
        served = build_page(pool)
        _, url, _ = launch(served, server_name="127.0.0.1", server_port=None, prevent_thread_lock=True, quiet=True)
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.set_default_timeout(PATIENCE)
        expect.set_options(timeout=PATIENCE)
        page.goto(url)
        transcribed(page)
        answered(page)
        compared(page)
        browser.close()
        served.close()


if __name__ == "__main__":
    main()
