"""The Inject tab: its event handlers, its endpoint for scripts, and the tab in a real browser."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradio as gr
import numpy as np
import pytest

from panels.inject.embedding_view import ListedEmbedding, array_choices, listed_embeddings, listed_html, look_html
from panels.inject.endpoint import injected
from panels.inject.events import InjectActions, _read_entry, _write_entry
from panels.running.sessions import SessionPool
from tests.panels.conftest import Served, serve
from tests.support.browser import unfold
from tests.support.fake_injection import WIDTH, FakeInjectRegistry
from tests.support.fake_panels import broken, tone
from tests.support.widths import no_sideways_scroll
from workbench.audio import check
from workbench.core.errors import BadInput
from workbench.embeddings import embedding_of, read_embedding
from workbench.families.language.directory import PLACEHOLDER

pytestmark = pytest.mark.tabs("inject")

LONG = 120_000  # milliseconds; a first run loads its models
RNG = np.random.default_rng(5)
VISITOR = gr.Request(session_hash="a visitor")
VALUES = RNG.normal(size=(6, WIDTH)).astype(np.float32)


@pytest.fixture
def inject_pool() -> Iterator[SessionPool]:
    with SessionPool(FakeInjectRegistry()) as pool:  # type: ignore[arg-type]
        yield pool


@pytest.fixture
def served_inject(tabs: str | None) -> Iterator[Served]:
    """The page over a fake language model on two runtimes."""
    yield from serve(SessionPool(FakeInjectRegistry()), tabs)  # type: ignore[arg-type]


@pytest.fixture
def actions(inject_pool: SessionPool) -> InjectActions:
    return InjectActions(inject_pool, (), ())


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The warnings that the page shows."""
    messages: list[str] = []
    monkeypatch.setattr(gr, "Warning", messages.append)
    return messages


def press(embedding: ListedEmbedding, **data: str) -> Any:
    return SimpleNamespace(_data={"key": embedding.key, **data})


def save_array(path: Path, values: np.ndarray = VALUES) -> str:
    np.save(path, values)
    return str(path)


# Event handlers.


def test_added_files_follow_the_listed_embeddings(actions: InjectActions, tmp_path: Path) -> None:
    first = ListedEmbedding(embedding_of(VALUES, "first"))
    embeddings, html, *_, files = actions.add([save_array(tmp_path / "more.npy")], (first,), ())
    assert [item.embedding.name for item in embeddings] == ["first", "more.npy"] and files is None
    assert "more.npy" in html and "6 × 8" in html


def test_bad_file_gives_a_warning_and_the_others_are_added(
    actions: InjectActions, warnings: list[str], tmp_path: Path
) -> None:
    (tmp_path / "text.npy").write_text("no array")
    good = save_array(tmp_path / "good.npy")
    integers = save_array(tmp_path / "whole.npy", np.ones((2, 2), np.int8))
    embeddings, *_ = actions.add([str(tmp_path / "text.npy"), integers, good], (), ())
    assert [item.embedding.name for item in embeddings] == ["good.npy"]
    assert len(warnings) == 2 and "text.npy" in warnings[0] and "int8" in warnings[1]


def test_user_chooses_arrays_of_files_with_several_arrays(actions: InjectActions, tmp_path: Path) -> None:
    for name in ("two", "other", "third"):
        np.savez(tmp_path / f"{name}.npz", speech=VALUES, noise=VALUES[:2])
    path, *other_paths = (str(tmp_path / f"{name}.npz") for name in ("two", "other", "third"))
    embeddings, _, row, choices, waiting, _ = actions.add([path, save_array(tmp_path / "one.npy")], (), ())
    assert [item.embedding.name for item in embeddings] == ["one.npy"] and row["elem_classes"] == []
    assert choices["label"] == "two.npz has 2 arrays; choose some" and choices["value"] == ["speech"]
    assert choices["choices"] == [("speech (6, 8) float32", "speech"), ("noise (2, 8) float32", "noise")]
    # Files that the user adds meanwhile wait for their turn.
    embeddings, _, row, choices, waiting, _ = actions.add(other_paths, embeddings, waiting)
    assert "two.npz" in choices["label"]
    embeddings, _, row, choices, waiting = actions.take(waiting, ["noise", "speech"], embeddings)
    assert [item.embedding.tokens for item in embeddings] == [6, 2, 6] and "other.npz" in choices["label"]
    with pytest.raises(BadInput, match="no array of other"):
        actions.take(waiting, [], embeddings)
    row, choices, waiting = actions.leave_out(waiting)
    assert "third.npz" in choices["label"]
    embeddings, html, row, choices, waiting = actions.take(waiting, ["noise"], embeddings)
    assert len(embeddings) == 4 and "third.npz" in html and row["elem_classes"] == ["away"] and waiting == ()
    with pytest.raises(BadInput, match="add it again"):
        actions.take(waiting, ["noise"], embeddings)


def test_listed_embeddings_are_moved_and_removed(actions: InjectActions) -> None:
    embeddings = tuple(ListedEmbedding(embedding_of(VALUES, name)) for name in "abc")
    embeddings, _ = actions.earlier(embeddings, press(embeddings[2]))
    assert [item.embedding.name for item in embeddings] == ["a", "c", "b"]
    embeddings, html = actions.remove(embeddings, press(embeddings[0]))
    assert [item.embedding.name for item in embeddings] == ["c", "b"] and "<b>a</b>" not in html


@pytest.mark.parametrize("form", ["npy", "npz", "pt", "safetensors"])
def test_saved_embedding_reads_back_unchanged(actions: InjectActions, form: str) -> None:
    embeddings = (ListedEmbedding(embedding_of(VALUES, "speech.npy")),)
    file = actions.save(embeddings, press(embeddings[0], form=form))
    assert file["name"] == f"speech.{form}"
    np.testing.assert_array_equal(read_embedding(base64.b64decode(file["base64"])).values, VALUES)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("talk by demo/funasr-nano", "talk by demo-funasr-nano.npy"),
        ("probe.npz: layer/3", "probe.npz-layer-3.npy"),
        ("v1.5 speech.pt", "v1.5 speech.npy"),
        ("", "embedding.npy"),
    ],
)
def test_saved_embedding_is_named_like_the_embedding(actions: InjectActions, name: str, file: str) -> None:
    embeddings = (ListedEmbedding(embedding_of(VALUES, name)),)
    assert actions.save(embeddings, press(embeddings[0], form="npy"))["name"] == file


@pytest.mark.parametrize("name", ["語音識別測試" * 20, "100%/a.npy", "a\n\x85b", "talk by fake/nano"])
@pytest.mark.parametrize("from_recording", [True, False])
def test_stored_run_keeps_names_and_origin_of_its_embeddings(name: str, from_recording: bool, tmp_path: Path) -> None:
    path = _write_entry(ListedEmbedding(embedding_of(VALUES, name), from_recording), 1, tmp_path)
    entry = _read_entry(path)
    assert name.startswith(entry.embedding.name) and len(entry.embedding.name) >= min(len(name), 50)
    assert entry.from_recording == from_recording
    np.testing.assert_array_equal(entry.embedding.values, VALUES)


def test_inspection_shows_the_nearest_tokens_of_an_embedding(actions: InjectActions) -> None:
    embeddings = (ListedEmbedding(embedding_of(VALUES, "speech <i>")),)
    html = actions.look(embeddings, {"chosen": ["fake/text|gguf", "fake/text|pytorch"]}, press(embeddings[0]))
    assert "speech &lt;i&gt;" in html and "&lt;word 0&gt;" in html and html.count("<img") == 3


def test_inspection_without_an_embedding_table_gives_the_reason(actions: InjectActions) -> None:
    embeddings = (ListedEmbedding(embedding_of(VALUES, "speech")),)
    assert "the table is not shown" in actions.look(embeddings, {"chosen": ["fake/text|gguf"]}, press(embeddings[0]))
    assert "tick a language model" in actions.look(embeddings, {"chosen": []}, press(embeddings[0]))
    narrow = (ListedEmbedding(embedding_of(np.ones((1, 3)), "narrow")),)
    assert "3 wide" in actions.look(narrow, {"chosen": ["fake/text|pytorch"]}, press(narrow[0]))


def test_inspection_of_a_long_embedding_lists_only_some_tokens(inject_pool: Any) -> None:
    near = inject_pool.registry.texts["pytorch"].neighbours(np.zeros((80, WIDTH)))
    html = look_html(embedding_of(np.ones((80, WIDTH)), "long"), near, "a model")
    assert "20 more tokens are not listed" in html


def test_embeddings_of_a_recording_set_the_prompt_of_their_model(actions: InjectActions, tmp_path: Path) -> None:
    recording = str(tone(tmp_path / "talk.wav"))
    [(title, cell)] = actions.speech_models()
    assert "Nano" in title
    *_, (new, progress) = actions.make(recording, cell, VISITOR)
    embeddings, html, prompt, chat, made_prompt, taken = actions.append(new, (), "  ", "")
    assert embeddings[0].embedding.tokens == 5 and "talk by fake/nano" in html and taken is None
    assert (prompt, chat, progress) == (f"Transcribe: {PLACEHOLDER}\n", False, "") and made_prompt == prompt
    embeddings, _, prompt, *_ = actions.append(new, embeddings, "my own", made_prompt)
    assert len(embeddings) == 2 and prompt not in ("my own", made_prompt), "the user's own prompt stays"
    own_embedding = ListedEmbedding(embedding_of(VALUES, "mine"))
    [(remaining, _, _, fault)] = actions.begin_with(recording, (own_embedding, *embeddings))
    assert remaining == (own_embedding,), "another recording replaces embeddings of recordings only, not those of files"
    assert fault == ""
    listed, _, prompt, *_ = actions.append(new, remaining, made_prompt, made_prompt)
    assert listed[0] is own_embedding, "an embedding that was added during the work stays"
    assert prompt == made_prompt, "the next recording replaces a prompt that the user did not write"
    refused = actions.begin_with(str(broken(tmp_path / "text.wav")), remaining)
    assert "it is a text" in next(refused)[-1]
    with pytest.raises(BadInput, match="it is a text"):
        next(refused)


def test_embedding_that_is_gone_is_reported_or_not_shown(actions: InjectActions) -> None:
    with pytest.raises(BadInput, match="reload the page"):
        actions.append(None, (), "", "")
    assert actions.look_at_last((), {"chosen": []}) == "", "the user has removed the embedding meanwhile"


@pytest.mark.parametrize(
    ("recording", "model", "sentence"),
    [(None, "fake/nano|pytorch", "there is no recording"), ("a.wav", "other", "no speech model is chosen")],
)
def test_missing_recording_or_speech_model_raises_one_line_error(
    actions: InjectActions, recording: str | None, model: str, sentence: str
) -> None:
    with pytest.raises(BadInput, match=sentence):
        list(actions.make(recording, model, VISITOR))


def test_embeddings_and_answers_of_the_latest_recording_remain(actions: InjectActions, tmp_path: Path) -> None:
    recording, [(_, cell)] = str(tone(tmp_path / "talk.wav")), actions.speech_models()
    earlier, later = (actions.make(recording, cell, VISITOR) for _ in range(2))
    next(earlier), next(later)
    *_, (new, _) = later
    embeddings, *_ = actions.append(new, (), "", "")
    assert len(embeddings) == 1
    with pytest.raises(gr.Error) as stale:
        next(earlier)
    assert not stale.value.visible, "nothing follows, and the page shows no message"
    chooser = {"models": [], "chosen": ["fake/text|pytorch"]}
    earlier = actions.start(embeddings, PLACEHOLDER, chooser, VISITOR)
    next(earlier)
    *_, (html, *_) = actions.start(embeddings, PLACEHOLDER, chooser, VISITOR)
    assert "result done" in html and list(earlier) == []


def test_invalid_page_state_is_refused() -> None:
    for value in (None, [1], ("a",)):
        with pytest.raises(BadInput, match="reload the page"):
            listed_embeddings(value)
        with pytest.raises(BadInput, match="reload the page"):
            array_choices(value)


def test_empty_embedding_list_shows_instructions() -> None:
    assert "There are no embeddings yet" in listed_html(())


# The endpoint.


def test_inject_endpoint_answers_for_every_model(inject_pool: SessionPool, tmp_path: Path) -> None:
    path = save_array(tmp_path / "speech.npy")
    prompt, models = f"What is {PLACEHOLDER}?", ["fake/text", "fake/text|gguf"]
    answers = injected(inject_pool, [path], models, prompt, options={"max_new_tokens": 4})
    assert [(answer["runtime"], answer["text"]) for answer in answers] == [
        ("pytorch", "seven one three"),
        ("gguf", "seven one three"),
    ]
    json.dumps(answers)
    [failed] = injected(inject_pool, [path, path], ["fake/text"], prompt)
    assert failed["error"] == "the prompt has 1 placeholders and 2 embeddings"


def test_inject_endpoint_accepts_the_name_of_an_array(inject_pool: Any, tmp_path: Path) -> None:
    path = tmp_path / "two.npz"
    np.savez(path, speech=VALUES, noise=VALUES[:2])
    with pytest.raises(BadInput, match="speech"):
        injected(inject_pool, [str(path)], ["fake/text"], PLACEHOLDER)
    injected(inject_pool, [str(path)], ["fake/text"], PLACEHOLDER, tensors={"two.npz": "noise"})
    assert inject_pool.registry.texts["pytorch"].calls[-1]["lengths"] == [2]


# In a browser.


def expect(locator: Any) -> Any:
    from playwright.sync_api import expect as expect_

    return expect_(locator)


def open_tab(page: Any, served: Served) -> None:
    page.goto(served.url)
    page.get_by_role("tab", name="Inject").click()
    expect(page.locator("#inject-models input").first).to_be_visible()


@pytest.mark.browser
def test_embedding_is_injected_into_two_runtimes(served_inject: Served, page: Any, tmp_path: Path) -> None:
    open_tab(page, served_inject)
    page.goto(f"{served_inject.url}#inject")  # the browser would focus an element of that name
    assert page.evaluate("scrollY") == 0 and page.locator(".go :focus").count() == 0
    page.locator("#inject-run").click()
    expect(page.locator(".toast-body").last).to_contain_text("there is no embedding")
    page.locator("#inject-recording").get_by_label("Upload file").click()
    page.set_input_files("#inject-recording input[type=file]", str(broken(tmp_path / "text.wav")))
    expect(page.locator("#inject-recording-fault")).to_contain_text("text.wav is not a sound file")
    (tmp_path / "bad.npy").write_text("no array")
    files = [save_array(tmp_path / "speech.npy"), str(tmp_path / "bad.npy")]
    unfold(page, "Add embedding files")
    page.set_input_files("#embedding-files input[type=file]", files)
    expect(page.locator("#embeddings")).to_contain_text("speech.npy")
    expect(page.locator(".toast-body").last).to_contain_text("bad.npy")
    page.locator("#inject-prompt textarea").fill("What is ")
    page.locator("#insert-placeholder").click()
    expect(page.locator("#inject-prompt textarea")).to_have_value(f"What is {PLACEHOLDER}")
    for box in page.locator("#inject-models input").all():
        box.check()
    page.locator("#inject-run").click()
    expect(page.locator("#answers .result.done")).to_have_count(2)
    expect(page.locator("#answers")).to_contain_text("the same likeliest token, 2 of the 2")
    page.locator("#embeddings").get_by_role("button", name="Inspect").click()
    expect(page.locator("#embedding-look img")).to_have_count(3)
    with page.expect_download() as waiting:
        page.locator("#embeddings summary").click()
        page.locator("#embeddings").get_by_role("button", name="safetensors").click()
    np.testing.assert_array_equal(read_embedding(Path(waiting.value.path())).values, VALUES)
    page.set_viewport_size({"width": 390, "height": 800})
    assert no_sideways_scroll(page)


@pytest.mark.browser
def test_beginning_of_an_uploaded_recording_is_read_once(
    served_inject: Served, page: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    inner = check.blocks_of
    monkeypatch.setattr(check, "blocks_of", lambda path: read.append(path.name) or inner(path))
    open_tab(page, served_inject)
    recording, fault = page.locator("#inject-recording"), page.locator("#inject-recording-fault")
    recording.get_by_label("Upload file").click()
    recording.locator("input[type=file]").set_input_files(str(broken(tmp_path / "text.wav")))
    expect(fault).to_contain_text("text.wav is not a sound file")
    expect(page.locator(".toast-body").last).to_contain_text("text.wav is not a sound file")
    recording.get_by_label("Clear").click()
    expect(fault).not_to_contain_text("text.wav")
    recording.locator("input[type=file]").set_input_files(str(tone(tmp_path / "talk.wav")))
    expect(page.locator("#embeddings")).to_contain_text("talk by fake/nano")
    assert read == ["text.wav", "talk.wav"] and served_inject.registry.opened[0] == "fake/nano|pytorch"


@pytest.mark.browser
def test_cancel_stops_the_generation_and_keeps_finished_answers(
    served_inject: Served, page: Any, tmp_path: Path
) -> None:
    hanging = served_inject.registry.texts["gguf"]
    hanging.gate = threading.Event()
    open_tab(page, served_inject)
    unfold(page, "Add embedding files")
    page.set_input_files("#embedding-files input[type=file]", [save_array(tmp_path / "speech.npy")])
    expect(page.locator("#embeddings")).to_contain_text("speech.npy")
    page.locator("#inject-prompt textarea").fill(PLACEHOLDER)
    for box in page.locator("#inject-models input").all():
        box.check()
    page.locator("#inject-run").click()
    expect(page.locator("#answers .result.done")).to_have_count(1)
    expect(page.locator("#answers .writing")).to_contain_text("seven")
    page.locator("#cancel-inject").click()
    expect(page.locator("#inject-run")).to_be_visible()
    expect(page.locator("#inject-status")).to_contain_text("Stopped: 1 of 2 answers")
    expect(page.locator("#inject-prompt textarea")).to_have_value(PLACEHOLDER)
    hanging.gate.set()
    assert hanging.abandoned.wait(60)


@pytest.mark.browser
@pytest.mark.slow
def test_sample_recording_is_embedded_and_transcribed_by_the_demo_models(demos: Served, page: Any) -> None:
    open_tab(page, demos)
    page.locator("#inject-samples button.sample").first.click()
    expect(page.locator("#embeddings")).to_contain_text("three_seven_one by demo/funasr-nano", timeout=LONG)
    expect(page.locator("#answers .result.done .heard").first).to_have_text("three seven one", timeout=LONG)
    expect(page.locator("#answers")).to_contain_text("The first token")
    assert PLACEHOLDER in page.locator("#inject-prompt textarea").input_value()
    expect(page.locator("#embedding-look")).to_contain_text("Nearest tokens of", timeout=LONG)
