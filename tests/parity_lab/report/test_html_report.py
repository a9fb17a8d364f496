"""The HTML report: its content, that it is self-contained, and that it runs no scripts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.fake_lab import FakeRegistry
from tests.support.networks import META, computed
from workbench.core.errors import BadInput
from workbench.parity_lab import ParityRun, page, run_parity, write_page
from workbench.trace.trace import Trace

NASTY = "<script>alert(1)</script>\"'&<img src=x onerror=alert(2)>"


class Parts(HTMLParser):
    """The elements of a page, and its texts."""

    def __init__(self, document: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(document)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ParityRun]:
    """A run with a candidate within, one whose tokens differ by a fault, a missing one and one of another shape."""
    fakes = FakeRegistry()
    fakes.family = "causal_lm"
    fakes.missing["vllm"] = f"vLLM is not installed {NASTY}"
    fakes.faults["gguf"] = {
        "encoder.layers.3": lambda x: np.where(x > 2, np.nan, x),
        "logits": lambda x: np.arange(x.size).reshape(x.shape) % 7.0,
        "text": lambda x: np.array(NASTY),
    }
    other = dict(computed())
    other["encoder.layers.2"] = other["encoder.layers.2"][:-1]
    path = tmp_path_factory.mktemp("other") / "other & more.safetensors"
    Trace(other, {**META, "runtime": NASTY, "versions": {NASTY: "1"}}).save(path)
    with run_parity(
        fakes,  # type: ignore[arg-type]
        "tiny",
        f"a prompt {NASTY}",
        candidates=["pytorch:f16", "gguf", "vllm", str(path)],
    ) as run:
        yield run


@pytest.fixture(scope="module")
def report(run: ParityRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the run with two figures for each candidate."""
    return write_page(run, tmp_path_factory.mktemp("report") / "out.html", figures=2)


@pytest.fixture(scope="module")
def document(report: Path) -> str:
    return report.read_text(encoding="utf-8")


def test_html_report_shows_the_findings(run: ParityRun, document: str) -> None:
    parts = Parts(document)
    text = " ".join(parts.texts)
    for outcome in run.outcomes:
        assert outcome.sentence in text and outcome.name in text
    for words in ("within tolerance", "beyond tolerance", "not available", "float64", "a1b2", "Noise or bug?"):
        assert words in text
    assert "encoder.layers.3" in text and "The first divergent stage" in text and "not finite" in text
    assert "other shape" in text and "edit" in parts.texts
    assert "no near tie. Row 0 of the logits decided" in text
    images = [each for tag, each in parts.elements if tag == "img"]
    assert len(images) >= 10 and all(each["alt"] for each in images)


def test_html_report_loads_no_external_resources_and_runs_no_scripts(document: str) -> None:
    parts = Parts(document)
    assert {tag for tag, _ in parts.elements} & {"link", "iframe", "object", "embed", "form", "base"} == set()
    assert [each for tag, each in parts.elements if tag == "script"] == [{"type": "application/json", "id": "data"}]
    for tag, attributes in parts.elements:
        assert not [name for name in attributes if name.startswith("on")]
        assert "href" not in attributes
        assert tag != "img" or str(attributes["src"]).startswith("data:image/png;base64,")
    assert not re.search(r"url\(|@import|https?:", re.sub(r'base64,[^"]*"', "", document))
    policies = [each for tag, each in parts.elements if tag == "meta" and each.get("http-equiv")]
    assert [each["content"] for each in policies] == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]


def test_user_text_is_escaped(document: str) -> None:
    assert "<script>alert" not in document and "<img src=x" not in document
    text = "".join(Parts(document).texts)
    assert f"a prompt {NASTY}" in text and text.count(NASTY) == 5 and f"vLLM is not installed {NASTY}" in text


def test_html_report_data_equal_the_run_json(run: ParityRun) -> None:
    [data] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page(run, 0), flags=re.DOTALL)
    assert json.loads(data) == json.loads(run.to_json())


def test_html_report_is_written_to_the_given_path(
    run: ParityRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert write_page(run, tmp_path / "out.html", figures=0).read_text(encoding="utf-8").startswith("<!doctype html>")
    # A wrong place is refused before anything is drawn.
    monkeypatch.delattr("workbench.parity_lab.report.html_report.page")
    for place in (tmp_path, tmp_path / "nowhere" / "out.html"):
        with pytest.raises(BadInput, match="not a place for a report"):
            write_page(run, place)


@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("colours", ["light", "dark"])
def test_html_report_is_readable_in_a_browser(
    run: ParityRun, report: Path, chromium: Any, width: int, colours: Any
) -> None:
    context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=colours, offline=True)
    tab = context.new_page()
    messages: list[str] = []
    urls: list[str] = []
    tab.on("pageerror", lambda error: messages.append(str(error)))
    tab.on("console", lambda event: messages.append(event.text))
    tab.on("dialog", lambda dialog: messages.append(dialog.message))
    tab.on("request", lambda request: urls.append(request.url))
    tab.goto(report.as_uri())
    for details in tab.locator("details").all():
        details.evaluate("each => { each.open = true; }")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.evaluate("[...document.images].every(each => each.complete && each.naturalWidth > 100)")
    assert tab.locator("section.verdict").count() == len(run.outcomes)
    narrow = tab.locator(".heat tbody tr").evaluate_all("rows => rows.some(row => row.offsetHeight > 90)")
    assert not narrow, "names of stages are broken into letters"
    assert messages == [] and [url for url in urls if not url.startswith("data:")] == [report.as_uri()]
    context.close()


@pytest.mark.browser
def test_printed_html_report_is_complete(report: Path, chromium: Any) -> None:
    context = chromium.new_context(color_scheme="dark", offline=True)
    page = context.new_page()
    page.goto(report.as_uri())
    page.emulate_media(media="print")
    for details in page.locator("details").all():
        details.evaluate("each => { each.open = true; }")
    cut = """() => [...document.querySelectorAll('.scroll')]
        .filter((each) => each.scrollHeight > each.clientHeight + 1).length"""
    assert page.evaluate(cut) == 0
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    context.close()


def test_html_report_states_isolated_or_end_to_end_mode(tmp_path: Path) -> None:
    fakes = FakeRegistry()
    fakes.faults["gguf"] = {"encoder.layers.3": lambda x: 1.5 * x}
    for isolated, mode in ((True, "Isolated: every stage"), (False, "End to end: each side")):
        with run_parity(fakes, "tiny", "talk.wav", candidates="gguf", isolated=isolated) as run:  # type: ignore[arg-type]
            texts = " ".join(Parts(page(run)).texts)
            assert mode in texts and ("The first divergent stage; the largest own error;" in texts) is isolated
            assert ("where the error grows most" in texts) is not isolated
