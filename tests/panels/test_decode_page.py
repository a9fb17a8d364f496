"""The Decode tab in a real browser, and its endpoint for scripts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from panels.widgets.samples import read_samples
from tests.panels.conftest import Served
from tests.panels.test_transcribe_page import LONG, expect
from tests.support.browser import unfold
from tests.support.decoding_files import sounds_like, write_files
from tests.support.widths import no_sideways_scroll

pytestmark = pytest.mark.tabs("decode")


def open_tab(page: Any, served: Served) -> None:
    page.goto(served.url)
    page.get_by_role("tab", name="Decode").click()
    expect(page.locator("#decode-model input")).not_to_have_value("")


def upload(page: Any, field: str, *paths: Path) -> None:
    page.set_input_files(f"#decode-{field} input[type=file]", [str(path) for path in paths])
    expect(page.locator(f"#decode-{field}")).to_contain_text(paths[-1].suffix)


@pytest.mark.browser
def test_logits_files_are_decoded_followed_explained_and_swept(served: Served, page: Any, tmp_path: Path) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    takes = {f"take{number}": sounds_like(seed=number) for number in range(2)}
    files = write_files(tmp_path, **takes)
    broken = tmp_path / "broken.lex"
    broken.write_text("two\tT OO\n")
    open_tab(page, served)

    # Nothing to decode, then a broken file: the inputs stay.
    page.locator("#decode-reference textarea").fill("too late\ntoo late")
    page.locator("#decode-run").click()
    expect(page.locator(".toast-body")).to_contain_text("there is nothing to decode")
    unfold(page, "Or files of logits")
    upload(page, "logits", *(files[name] for name in takes))
    upload(page, "tokens", files["tokens"])
    upload(page, "lexicon", broken)
    expect(page.locator("#decode-lexicon-note .fault")).to_contain_text("spells two with 'OO'")
    page.locator("#decode-lexicon button[aria-label='Clear']").click()
    expect(page.locator("#decode-lexicon-note")).to_be_hidden()
    upload(page, "lexicon", files["lexicon"])
    expect(page.locator("#decode-lexicon-note")).to_contain_text("1 spelling stands for several words")
    upload(page, "word-lm", files["word_lm"])
    expect(page.locator("#decode-word-lm-note")).to_contain_text("4 of the 4 words")
    expect(page.locator("#decode-reference textarea")).to_have_value("too late\ntoo late")

    page.evaluate(
        """() => {
          window.focusDuringRun = [];
          document.addEventListener('focusin', (event) => focusDuringRun.push(event.target.className));
        }"""
    )
    page.locator("#decode-run").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#decode-table .result.done")).to_have_count(6)
    expect(page.locator("#decode-run")).to_be_focused()  # the row has kept the keyboard's place
    assert "go" in page.evaluate("focusDuringRun[1]").split()
    best = page.locator("#decode-table .result").nth(2)
    expect(best.locator("h4")).to_have_text("Beam + lexicon + word LM")
    expect(best.locator(".rate")).to_have_text("WER 0.0 %")

    # The search, frame by frame.
    expect(page.locator("#decode-follow canvas")).to_be_visible()
    expect(page.locator("#decode-follow .moments")).to_contain_text("“late” decides")
    page.locator("#decode-follow .moments button", has_text="Frame").first.click()
    expect(page.locator("#decode-follow .active", has_text="⟨too⟩").first).to_be_visible()
    page.get_by_label("Frame of the search").fill("6")
    expect(page.locator("#decode-follow output")).to_contain_text("Frame 7 of 16")
    expect(page.locator("#decode-follow .first th")).to_contain_text("two")
    expect(page.locator("#decode-follow .alike").first).to_be_visible()
    page.get_by_label("One frame on").click()
    expect(page.locator("#decode-follow output")).to_contain_text("Frame 8 of 16")

    # The reason for a word.
    best.get_by_role("button", name="too").click()
    expect(page.locator("#decode-why h3")).to_contain_text("Why “too” and not “two”?")

    # The sweep, and the use of its pair of weights.
    unfold(page, "Sweep two weights")
    page.locator("#decode-pair label").nth(1).click()
    page.locator("#decode-first input, #decode-first textarea").fill("0.25 to 1, 2")
    page.locator("#decode-second input, #decode-second textarea").fill("0 to 1, 2")
    page.locator("#decode-sweep-run").click()
    expect(page.locator("#decode-heat td button")).to_have_count(4)
    expect(page.locator("#decode-heat .fault")).to_contain_text("the set is too small: 2 recordings")
    page.locator("#decode-heat td button").nth(2).click()
    unfold(page, "Search and weights")
    expect(page.locator("#decode-option-gamma input")).to_have_value("0.25")
    assert no_sideways_scroll(page)


def test_decode_endpoint_returns_hypotheses_and_one_line_errors(served: Served, tmp_path: Path) -> None:
    client_module = pytest.importorskip("gradio_client")
    client = client_module.Client(served.url, verbose=False)
    files = write_files(tmp_path)
    handles = {name: client_module.handle_file(str(path)) for name, path in files.items()}
    arguments = {name: handles[name] for name in ("logits", "tokens", "lexicon", "word_lm")}
    [result] = client.predict(**arguments, options={"nbest": 2}, reference="too late", api_name="/decode")
    assert [each["text"] for each in result["hypotheses"]] == ["too late", "two late"]
    np.save(tmp_path / "flat.npy", np.zeros(4, np.float32))
    flat = client_module.handle_file(str(tmp_path / "flat.npy"))
    [failed] = client.predict(logits=flat, tokens=handles["tokens"], api_name="/decode")
    assert failed["file"] == "flat.npy" and "has the shape (4,)" in failed["error"]
    for invalid, sentence in (
        ({}, "there is nothing to decode"),
        ({"logits": handles["logits"]}, "the tokens of the logits are missing"),
        ({**arguments, "options": {"beam_size": 0}}, "beam_size of the beam search is 0"),
        ({**arguments, "options": {"neural_lm": "/etc"}}, "there is no '/etc'"),
        ({**arguments, "lexicon": handles["word_lm"]}, "line 1 of the lexicon words.arpa"),
    ):
        if "lexicon" in invalid and invalid["lexicon"] is handles["word_lm"]:
            [answer] = client.predict(**invalid, api_name="/decode")
            assert sentence in answer["error"]
            continue
        with pytest.raises(client_module.exceptions.AppError, match=re.escape(sentence)):
            client.predict(**invalid, api_name="/decode")


@pytest.mark.browser
@pytest.mark.slow
def test_sample_is_decoded_with_the_demo_model(demos: Served, page: Any) -> None:
    open_tab(page, demos)
    page.locator("#decode-samples .sample").first.click()
    expect(page.locator("#decode-reference textarea")).to_have_value(read_samples()[0].text)
    page.locator("#decode-run").click()
    expect(page.locator("#decode-table .result.done")).to_have_count(2, timeout=LONG)
    expect(page.locator("#decode-follow canvas")).to_be_visible(timeout=LONG)
