"""The root of the page: results that it sends as HTML come back, and are the only HTML that a kept run holds."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gradio as gr
import pytest

from panels.running.root import Page
from panels.running.sent_results import SentResults
from workbench.serving.admission.guard import Guard

LARGE = "x" * 100_000  # beyond the limit for texts of a public page


@pytest.fixture
def page() -> Page:
    with Page() as page:
        result, text = gr.HTML(), gr.Textbox()
        text.submit(lambda *_: None, [result, text], [result, text])
        gr.File().upload(lambda _: None, gr.File(), api_visibility="private")
    page.sent.of([result])
    page.guard = Guard("public")
    return page


def result_of(work: Coroutine[Any, Any, list[Any]]) -> list[Any]:
    """Runs the coroutine in its own thread, because browser tests leave an event loop in this one."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(asyncio.run, work).result()


def receive(page: Page, *values: Any) -> list[Any]:
    return result_of(page.preprocess_data(page.fns[0], list(values), None))


def test_large_results_may_come_back_and_large_texts_are_refused(page: Page) -> None:
    assert receive(page, LARGE, "short")[0] == LARGE
    with pytest.raises(gr.Error, match="kB of text; expected at most 64 kB"):
        receive(page, "", LARGE)


def test_upload_that_was_removed_is_not_searched_for(page: Page, tmp_path: Path) -> None:
    missing = {"path": str(tmp_path / "old.wav"), "orig_name": "old.wav", "meta": {"_type": "gradio.FileData"}}
    with pytest.raises(gr.Error, match="it has started again, or removed old files"):
        result_of(page.preprocess_data(page.fns[1], [missing], None))


def test_uploads_reach_functions_as_plain_strings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path))
    with Page() as page:
        gr.Button().click(lambda *_: None, [gr.File(), gr.File(file_count="multiple")])
    file = tmp_path / "new.wav"
    file.write_bytes(b"RIFF")
    value = {"path": str(file), "orig_name": file.name, "meta": {"_type": "gradio.FileData"}}
    one, several = result_of(page.preprocess_data(page.fns[0], [value, [value]], None))
    assert [type(one), *map(type, several)] == [str, str], "no other process must import Gradio to read a path"


def test_results_that_are_sent_as_html_are_remembered(page: Page) -> None:
    result_of(page.postprocess_data(page.fns[0], [LARGE, "short"], None))
    assert LARGE in page.sent and "short" not in page.sent and f"{LARGE}!" not in page.sent


def test_sent_results_forget_the_oldest_and_ignore_other_values() -> None:
    stored, unlisted = gr.HTML(), gr.HTML()
    results = SentResults(limit=2).of([stored])
    for value in ("a", "b", "a", {"value": "c"}, {"visible": False}, None, 3, ""):
        results.add(stored, value)
    results.add(unlisted, "d")
    assert "d" not in results
    assert [each in results for each in ("a", "b", "c", "", None, 3)] == [True, False, True, False, False, False]


def test_calls_without_a_session_share_nothing() -> None:
    with Page() as page:
        text = gr.Textbox()
        text.submit(lambda request: str(request.session_hash), [text], [text])

    def user_of(**session: str) -> Any:
        request = gr.Request(None, **session)
        return result_of(page.call_function(page.fns[0], [request], None, request))["prediction"]

    assert user_of() != user_of() and "None" not in (user_of(), user_of())
    assert user_of(session_hash="open page") == "open page"
