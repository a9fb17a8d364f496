"""Takes the pictures of the README and the docs: every tab of the page after a run, and the picture of a link to it.

Needs Debian's `chromium-headless-shell` or `chromium`, and `fonts-noto-color-emoji`. Run it from the checkout:
`.venv/bin/python docs/pictures.py`, or with names of TABS for some of them. The PNG files have 256 colours at most, so
that a clone stays small.
"""

from __future__ import annotations

import argparse
import io
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Locator, Page, expect, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "pictures"
WIDTH, HEIGHT = 1280, 860  # pixels
LINK_WIDTH, LINK_HEIGHT = 1200, 630
COLOURS = 256
BROWSERS = ("chromium-headless-shell", "chromium")
PATIENCE = 180_000  # milliseconds until models are loaded and have written


def take(page: Page, path: Path) -> None:
    """Saves what the window shows, without focus and pointer."""
    from PIL import Image

    page.evaluate(
        "document.activeElement.blur(); document.querySelectorAll('.toast-body').forEach((each) => each.remove())"
    )
    page.mouse.move(0, 0)
    with Image.open(io.BytesIO(page.screenshot())) as picture:
        picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


def complain(toast: Locator) -> None:
    """Ends the program with the sentence of an error that the page shows."""
    sys.exit(f"the page says: {toast.inner_text()}")


def top(page: Page) -> None:
    """Scrolls to the top of the page."""
    page.evaluate("window.scrollTo(0, 0)")


def transcribe(page: Page) -> None:
    """Four models transcribe one recording."""
    page.locator("#tabpanel-transcribe button.sample, button.sample:visible").first.click()
    expect(page.locator("#recordings")).to_contain_text("three_seven_one")
    for run in (1, 2):  # the first run loads the models
        page.locator("#run").click()
        expect(page.locator("#history summary")).to_have_text(f"Earlier runs ({run})")
    expect(page.locator(".result.done")).to_have_count(page.locator("#models input:checked").count())
    expect(page.locator("#closer")).to_be_visible()
    top(page)
    take(page, FOLDER / "page.png")
    page.set_viewport_size({"width": LINK_WIDTH, "height": LINK_HEIGHT})
    take(page, ROOT / "assets" / "link.png")
    page.set_viewport_size({"width": WIDTH, "height": HEIGHT})


def parity(page: Page) -> None:
    """A quantised candidate and one without CMVN, with the table of stages."""
    expect(page.locator("#parity-reference input")).not_to_have_value("")  # the tab is filled
    page.locator("button.sample:visible").first.click()
    expect(page.locator("#parity-speech")).to_contain_text("three_seven_one")
    page.locator("#parity-candidates textarea").fill("gguf:q8_0\npytorch+cmvn=off")
    page.locator("#parity-run").click()
    expect(page.locator("#parity-status")).to_contain_text("Compared in")
    expect(page.locator("#parity-closer h3")).to_be_visible()
    page.set_viewport_size({"width": WIDTH, "height": HEIGHT + 240})  # the verdicts, and the beginning of the table
    top(page)
    page.wait_for_timeout(1000)  # the table scrolls to the stage
    take(page, FOLDER / "verdict.png")
    page.set_viewport_size({"width": WIDTH, "height": HEIGHT})


def chat(page: Page) -> None:
    """A spoken answer, with its tokens and codec streams."""
    expect(page.locator(".chat[data-ready]")).to_be_visible()
    answer = page.locator(".chat .answer")
    for _ in range(2):  # the first answer loads the model
        page.locator(".chat .new-chat").click()
        page.locator(".chat button.sample").first.click()
        expect(answer.locator(".glance")).to_be_visible()
    answer.get_by_label("Look inside").click()
    expect(answer.locator(".inside canvas")).to_be_visible()
    top(page)
    take(page, FOLDER / "chat.png")


def decode(page: Page) -> None:
    """An example of a beam search with a language model, and the search frame by frame."""
    page.locator("#decode-examples button.sample").first.click()
    expect(page.locator(".checked").filter(has_text=re.compile(r"\w")).first).to_be_visible()
    page.locator("#decode-run").click()
    expect(page.locator("#decode-follow canvas")).to_be_visible()
    top(page)
    take(page, FOLDER / "decode.png")


def visualise(page: Page) -> None:
    """A view of a model, over the time of the recording."""
    page.locator("button.sample:visible").first.click()
    expect(page.locator("#visualise-speech")).to_contain_text("yweweler")
    page.locator("#visualise-run").click()
    expect(page.locator("#visualise-status")).to_contain_text("Done in")
    expect(page.locator("#visualise-stage canvas").first).to_be_visible()
    top(page)
    take(page, FOLDER / "visualise.png")


def evaluate(page: Page) -> None:
    """Two models over the samples."""
    boxes = page.locator("#evaluate-models input:visible")
    expect(boxes.nth(1)).to_be_visible()
    for number in range(boxes.count()):
        boxes.nth(number).set_checked(number < 2)
    page.locator("#evaluate-run").click()
    expect(page.locator("#evaluate-report iframe")).to_be_visible()
    expect(page.frame_locator("#evaluate-report iframe").locator("table").first).to_be_visible()
    top(page)
    take(page, FOLDER / "evaluate-tab.png")


def inject(page: Page) -> None:
    """From a recording to an answer: its embeddings, the words near them, what a language model writes."""
    page.locator("#inject-samples button.sample").first.click()
    expect(page.locator("#answers .result.done").first).to_be_visible()
    expect(page.locator("#embedding-look img").first).to_be_visible()
    top(page)
    take(page, FOLDER / "inject.png")


def models(page: Page) -> None:
    """All models, and those in memory."""
    expect(page.locator("#cards tbody tr").first).to_be_visible()
    top(page)
    take(page, FOLDER / "models.png")


def report(page: Page) -> None:
    """The report of three models over the samples, which is a file of its own."""
    from workbench import evaluation
    from workbench.evaluation.report import write_report

    names = ["demo/sensevoice", "demo/sensevoice|gguf|q8_0", "demo/paraformer"]
    with TemporaryDirectory() as folder:
        evaluation.run(ROOT / "assets" / "samples" / "manifest.csv", names, folder, workers=1)
        file = Path(folder) / "report.html"
        write_report(folder, file)
        browser = page.context.browser
        assert browser is not None, "the page belongs to a browser that this program has started"
        window = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        window.goto(file.as_uri())
        expect(window.locator("table").first).to_be_visible()
        take(window, FOLDER / "evaluate.png")
        window.close()


TABS: dict[str, tuple[str, Callable[[Page], None]]] = {
    each.__name__: (each.__name__.capitalize(), each)
    for each in (transcribe, parity, chat, decode, visualise, evaluate, inject, models)
}
TABS["report"] = ("Evaluate", report)  # the tab stays as it is


def main() -> None:
    """Serves the page, takes the pictures, and ends what it started."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tabs", nargs="*", help=f"by default all of {', '.join(TABS)}")
    wanted = parser.parse_args().tabs or list(TABS)
    unknown = [name for name in wanted if name not in TABS]
    if unknown:
        parser.error(f"there is no tab {unknown[0]!r}; expected one of {', '.join(TABS)}")
    sys.path.insert(0, str(ROOT))
    from panels.page import build_page
    from panels.running.sessions import SessionPool
    from panels.serving import launch
    from workbench.prepared.pool import prepared_processes
    from workbench.registry.registry import Registry

    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        sys.exit(f"there is no {' or '.join(BROWSERS)}; on Debian: apt-get install {BROWSERS[0]}")
    FOLDER.mkdir(exist_ok=True)
    with (
        prepared_processes(),  # models start as they do for users
        SessionPool(Registry(), opens_ahead=True) as pool,
        sync_playwright() as playwright,
    ):
        served = build_page(pool)
        _, url, _ = launch(served, server_name="127.0.0.1", server_port=None, prevent_thread_lock=True, quiet=True)
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.set_default_timeout(PATIENCE)
        expect.set_options(timeout=PATIENCE)
        page.add_locator_handler(page.locator(".toast-body.error").first, complain)
        page.goto(url)
        for name in wanted:
            label, picture = TABS[name]
            page.get_by_role("tab", name=label, exact=True).click()
            picture(page)
            sys.stdout.write(f"{name}\n")
            sys.stdout.flush()
        browser.close()
        served.close()


if __name__ == "__main__":
    main()
