"""Streamed text in the results table: shown as it is generated, at a limited rate, and stopped within one token."""

from __future__ import annotations

import threading
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from panels.models.view import cards_html
from panels.running.choices import offers
from panels.running.progress import SHOW_SECONDS
from panels.transcribe.job import RunState, prepare
from panels.transcribe.run import run
from panels.transcribe.view import phrases, results_html
from panels.widgets.option_inputs import by_family, make_inputs, read_inputs, shown_options
from tests.panels.conftest import Served
from tests.panels.test_rows import HOSTILE, ROW, Tags
from tests.panels.test_transcribe_page import add_files, expect, open_page
from tests.support.fake_panels import tone
from workbench.core.errors import BadInput

NANO = ["fake/nano|pytorch"]


def job(pool: Any, path: Path, cells: list[str] = NANO, **options: Any) -> Any:
    return prepare(pool.registry, [str(path)], cells, "", "basic", options)


# The run.


def test_streamed_text_grows_and_is_replaced_by_the_transcript(language_pool: Any, tmp_path: Path) -> None:
    writer = language_pool.registry.writer
    states = run_in_steps(language_pool, tmp_path, 12)
    texts = [state.rows[0].writing for state in states if state.rows[0].status == "running"]
    assert len({text for text in texts if text}) > 3
    assert all(later.startswith(earlier) for earlier, later in pairwise(texts))
    last = states[-1].rows[0]
    assert last.status == "done" and last.writing == "" and last.transcript
    assert last.transcript.text == writer.words and last.transcript.notes


def test_results_table_is_sent_at_most_ten_times_a_second(language_pool: Any, tmp_path: Path) -> None:
    states = run_in_steps(language_pool, tmp_path, 30)
    gaps = [later.seconds - earlier.seconds for earlier, later in pairwise(states[1:-1])]
    assert gaps and min(gaps) >= 0.95 * SHOW_SECONDS


def run_in_steps(pool: Any, tmp_path: Path, step: int) -> list[RunState]:
    """Returns the tables of a run whose model writes `step` more letters whenever the page shows all earlier ones."""
    writer, states = pool.registry.writer, []
    writer.allow(step)
    for state in run(pool, job(pool, tone(tmp_path / "a.wav")), threading.Event()):
        states.append(state)
        if len(state.rows[0].writing) >= writer.allowed:
            writer.allow(writer.allowed + step)
    return states


def test_stop_ends_the_model_within_one_token_and_keeps_the_text(language_pool: Any, tmp_path: Path) -> None:
    writer, stop = language_pool.registry.writer, threading.Event()
    writer.allow(9)
    state = RunState()
    for state in run(language_pool, job(language_pool, tone(tmp_path / "a.wav")), stop):
        if len(state.rows[0].writing) == 9:
            stop.set()
    assert state.finished and state.stopped
    assert state.rows[0].status == "stopped" and state.rows[0].writing == writer.words[:9]
    writer.allow(1 << 30)
    assert writer.abandoned.wait(60), "the stream was left open"
    assert writer.letters <= 10, "more than one token was computed after the stop"


def test_finished_segments_of_a_non_streaming_model_are_shown_as_text(language_pool: Any, tmp_path: Path) -> None:
    sense, stop = language_pool.registry.sessions["fake/sense"], threading.Event()
    sense.gate = threading.Event()
    path = tone(tmp_path / "a.wav")
    for state in run(language_pool, job(language_pool, path, ["fake/sense|pytorch"]), stop):
        if state.rows[0].writing:
            assert state.rows[0].writing == "three"
            stop.set()
    sense.gate.set()
    assert sense.abandoned.wait(60)


# The HTML.


@given(st.text(alphabet="ab ,。三七", max_size=120), st.text(alphabet="ab ,。三七", max_size=40))
def test_announced_phrases_do_not_change_when_text_is_added(text: str, addition: str) -> None:
    phrases_before, rest = phrases(text)
    phrases_after, _ = phrases(text + addition)
    assert "".join(phrases_before) + rest == text
    assert phrases_after[: len(phrases_before)] == phrases_before


def test_streamed_text_is_marked_as_a_busy_live_region() -> None:
    running = replace(ROW, status="running", writing="three seven one " * 4)
    html = results_html(RunState((running,)))
    assert 'aria-live="polite"' in html and 'aria-busy="true"' in html and "writing" in html
    assert "three seven one" in Tags(html).words and "look" not in html, "nothing to open yet"
    assert html.count("<span>") == 2, "two phrases are finished"


def test_stopped_text_is_marked_as_stopped_and_escaped() -> None:
    stopped = replace(ROW, status="stopped", writing=HOSTILE)
    tags = Tags(results_html(RunState((stopped,), finished=True, stopped=True)))
    assert "Stopped before its end" in tags.words and "onerror" in tags.words and "img" not in tags.names
    assert "img" not in Tags(results_html(RunState((replace(stopped, status="running"),)))).names


# Options that differ between families, and models that do not transcribe.


def test_option_that_differs_between_families_has_one_input_per_family(language_pool: Any) -> None:
    import gradio as gr

    options = shown_options(language_pool.registry)
    keys = [option.key for option in options]
    assert len(set(keys)) == len(keys)
    assert {"language-sensevoice", "language-funasr_nano", "itn-sensevoice", "itn-funasr_nano"} <= set(keys)
    assert {"vad", "hotwords", "batch_size", "max_new_tokens"} <= set(keys)
    with gr.Blocks():
        inputs = make_inputs(options, language_pool.registry)
    assert len(inputs["language-funasr_nano"].choices) == 32 and len(inputs["language-sensevoice"].choices) == 7  # type: ignore[attr-defined]
    assert (inputs["itn-sensevoice"].value, inputs["itn-funasr_nano"].value) == (False, True)
    labels = {option.key: option.label for option in options}
    assert labels["itn-funasr_nano"] == "ITN (Fun-ASR-Nano)" and labels["hotwords"] == "Hotwords"
    info = next(option.info for option in options if option.key == "hotwords")
    assert info.startswith("Words that") and info.endswith("one per line (Paraformer and Fun-ASR-Nano)")


def test_each_family_gets_its_own_option_value(language_pool: Any, tmp_path: Path) -> None:
    registry = language_pool.registry
    options = shown_options(registry)
    values = {option.key: None if option.spec.kind is not tuple else "" for option in options}
    values |= {"language-funasr_nano": "vi", "language-sensevoice": "en", "hotwords": "seven\n  eleven \n"}
    family_options = by_family(options, read_inputs(options, list(values.values())))
    cells = ["fake/nano|pytorch", "fake/sense|pytorch"]
    prepared = prepare(registry, ["a.wav"], cells, "", "basic", {}, family_options)
    nano, sense = prepared.options["fake/nano"], prepared.options["fake/sense"]
    assert (nano["language"], nano["itn"], nano["hotwords"]) == ("vi", True, ("seven", "eleven"))
    assert (sense["language"], sense["itn"]) == ("en", False) and "hotwords" not in sense


def test_option_value_that_one_model_refuses_raises_one_line_error(language_pool: Any) -> None:
    cells = ["fake/nano|pytorch", "fake/sense|pytorch"]
    with pytest.raises(BadInput, match="option language of fake/sense is 'vi'; expected one of auto, zh, en"):
        prepare(language_pool.registry, ["a.wav"], cells, "", "basic", {"language": "vi"})


def test_text_language_model_is_listed_but_not_offered_for_transcription(language_pool: Any) -> None:
    registry = language_pool.registry
    assert not any(offer.cell.model == "fake/text" for offer in offers(registry))
    with pytest.raises(BadInput, match="there is no 'fake/text'"):
        prepare(registry, ["a.wav"], ["fake/text|pytorch"], "", "basic", {})
    html = cards_html(language_pool)
    assert "Fake language model" in html and "writes text" in html and "transcribes speech" in html
    assert not any("causal_lm" in option.families for option in shown_options(registry))


# In the browser.


@pytest.mark.browser
def test_streamed_text_is_shown_in_the_browser_and_cancel_stops_it(
    served_language: Served, page: Any, tmp_path: Path
) -> None:
    writer = served_language.registry.writer
    writer.allow(60)
    open_page(page, served_language)
    page.locator("#models").get_by_text("Fake SenseVoice").click()  # off
    expect(page.locator("#models")).not_to_contain_text("Fake language model")
    add_files(page, tone(tmp_path / "a.wav"))
    page.locator("#run").click()
    expect(page.locator(".result.done")).to_have_count(1)  # Fake Paraformer
    writing = page.locator(".result.running .writing")
    expect(writing).to_contain_text(writer.words[:50])
    expect(writing.locator("[aria-live=polite] span").first).to_have_text(phrases(writer.words)[0][0].strip())

    # A finished row can be used meanwhile: later updates do not replace it.
    page.evaluate("document.querySelector('.result.done').marked = true")
    writer.allow(66)
    expect(writing).to_contain_text(writer.words[:66])
    assert page.evaluate("document.querySelector('.result.done').marked"), "the finished row was replaced"
    page.locator(".result.done").get_by_role("button", name="Segments and export").click()
    expect(page.locator("#closer")).to_be_visible()
    page.locator("#cancel").click()
    expect(page.locator("#run")).to_be_visible()
    stopped = page.locator(".result.stopped")
    expect(stopped).to_contain_text(writer.words[:50])
    expect(stopped).to_contain_text("Stopped before its end")
    writer.allow(1 << 30)
    assert writer.abandoned.wait(60) and writer.letters <= 67

    page.locator("#run").click()  # and again, now to the end
    expect(page.locator(".result.done")).to_have_count(2)
    expect(page.locator(".result.done").last).to_contain_text("a segment of speech was cut off")
