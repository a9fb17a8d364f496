"""Quantisations on the page: chosen beside other runtimes, converted with progress, compared, unloaded, scripted."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from panels.widgets.samples import read_samples
from tests.panels.conftest import DEMOS, Served, needs
from tests.panels.test_transcribe_page import add_files, expect, open_page, until
from tests.support.fake_panels import tone
from tests.support.widths import fits_a_phone_and_a_desk

pytestmark = pytest.mark.tabs("transcribe,models")


def choose(page: Any, *names: str) -> None:
    """Opens the quantisations of the first model, and ticks some."""
    page.get_by_role("button", name="GGUF").first.click()
    for name in names:
        page.get_by_label(f"Fake SenseVoice · GGUF {name}").check()


@pytest.mark.browser
def test_model_and_its_quantisations_are_run_side_by_side_and_unloaded(served_gguf: Served, page: Any) -> None:
    open_page(page, served_gguf)
    expect(page.locator("#models input:checked")).to_have_count(2)
    expect(page.locator("#models .file").first).to_be_hidden()
    choose(page, "f32", "q4_0")
    expect(page.locator("#models .file").nth(2)).to_have_text("q8_01.9 MB")
    expect(page.locator("#models .more").first).to_have_text("GGUFf32, q4_0")
    page.get_by_label("Fake Paraformer · PyTorch").uncheck()
    page.locator("button.sample").first.click()
    expect(page.locator("#recordings")).to_contain_text("three_seven_one")
    page.locator("#run").click()
    expect(page.locator(".result.done")).to_have_count(3)
    assert page.locator(".result .runtime").all_inner_texts() == ["PyTorch", "GGUF f32", "GGUF q4_0"]
    assert page.locator(".result .rate").all_inner_texts() == ["WER 33.3 %", "WER 0.0 %", "WER 66.7 %"]
    rows = [row.locator("td").all_inner_texts() for row in page.locator(".summary tbody tr").all()]
    assert [row[3] for row in rows] == ["7.2 MB", "7.2 MB", "1.1 MB"] and rows[2][0] == "WER 66.7 %"
    assert fits_a_phone_and_a_desk(page)
    with page.expect_download() as waiting:
        page.locator(".result.done").nth(2).get_by_role("button", name="Segments and export").click()
        expect(page.locator("#closer h3")).to_contain_text("GGUF q4_0")
        page.locator("#export-txt").click()
    assert waiting.value.suggested_filename == "three_seven_one.fake-sense-q4_0.txt"

    page.get_by_role("tab", name="Models").click()
    expect(page.locator("#cards .weights .there")).to_have_text(["f32 7.2 MB (there)", "q4_0 1.1 MB (there)"])
    expect(page.locator("#residents tbody tr")).to_have_count(2)
    assert fits_a_phone_and_a_desk(page)
    page.locator("#residents tr", has_text="GGUF q4_0").get_by_role("button", name="Unload").click()
    until(page, lambda: served_gguf.registry.unloaded == ["fake/sense|gguf|q4_0"])
    expect(page.locator("#residents tbody tr")).to_have_count(1)


@pytest.mark.browser
def test_a_conversion_shows_its_progress_and_can_be_cancelled(served_gguf: Served, page: Any, tmp_path: Path) -> None:
    registry = served_gguf.registry
    registry.conversion.clear()
    open_page(page, served_gguf)
    choose(page, "q8_0")
    page.get_by_label("Fake Paraformer · PyTorch").uncheck()
    add_files(page, tone(tmp_path / "a.wav"))
    page.locator("#run").click()
    expect(page.locator(".result.done")).to_have_count(1)
    expect(page.locator(".result.running")).to_contain_text("converting to q8_0, 50%")
    page.locator("#cancel").click()
    expect(page.locator(".result.stopped")).to_have_count(1)
    assert registry.stopped.wait(60)
    registry.conversion.set()
    expect(page.locator("#models .file.there")).to_have_count(1)
    page.locator("#run").click()  # and again, now to the end
    expect(page.locator(".result.done")).to_have_count(2)
    expect(page.locator("#models .file.there")).to_have_count(2)
    expect(page.locator("#models input:checked")).to_have_count(2)


@pytest.mark.browser
def test_file_sizes_load_when_the_list_opens_and_ticks_are_retained(served_gguf: Served, page: Any) -> None:
    registry = served_gguf.registry
    registry.measured = False
    released, measure = threading.Event(), registry.measure
    registry.measure = lambda *arguments: measure(*arguments) if released.wait(60) else ()
    open_page(page, served_gguf)
    choose(page, "q8_0")
    expect(page.locator("#models .files p").first).to_have_text("Looking up the sizes of the files…")
    page.get_by_label("Fake Paraformer · PyTorch").uncheck()
    released.set()
    expect(page.locator("#models .file").nth(2)).to_have_text("q8_01.9 MB")
    expect(page.get_by_label("Fake SenseVoice · GGUF q8_0")).to_be_checked()
    expect(page.get_by_label("Fake Paraformer · PyTorch")).not_to_be_checked()

    expect(page.get_by_label("Fake SenseVoice · GGUF q8_0").locator("xpath=../../p")).to_contain_text("dashed frame")

    registry.measured = False
    page.get_by_role("tab", name="Models").click()
    expect(page.locator("#cards .weights .there")).to_have_text("f32 7.2 MB (there)")


@pytest.mark.browser
def test_the_keyboard_reaches_the_quantisations(served_gguf: Served, page: Any) -> None:
    open_page(page, served_gguf)
    page.get_by_label("Fake SenseVoice · PyTorch").focus()
    for key in ("Tab", "Enter", "Tab", "Tab", "Space"):
        page.keyboard.press(key)
    expect(page.get_by_label("Fake SenseVoice · GGUF f16")).to_be_checked()
    expect(page.locator("#models .more").first).to_have_attribute("aria-expanded", "true")


@pytest.mark.browser
def test_loading_message_is_shown_until_the_models_are_listed(served_gguf: Served, page: Any) -> None:
    released, cards = threading.Event(), served_gguf.registry.cards
    served_gguf.registry.cards = lambda: cards() if released.wait(60) else []
    page.goto(served_gguf.url)
    expect(page.locator("#models")).to_contain_text("Looking up which models can run here")
    released.set()
    expect(page.locator("#models input").first).to_be_visible()
    expect(page.locator("#models")).not_to_contain_text("Looking up")


def test_transcribe_endpoint_accepts_quantisations(served_gguf: Served, tmp_path: Path) -> None:
    client_module = pytest.importorskip("gradio_client")
    client = client_module.Client(served_gguf.url, verbose=False)
    audio = [client_module.handle_file(str(tone(tmp_path / "a.wav")))]
    models = ["fake/sense|gguf|q8_0", "fake/sense|gguf", "fake/sense|pytorch"]
    results = client.predict(audio, models, "pytorch", "{}", "three seven one", "basic", api_name="/transcribe")
    assert [(result["runtime"], result["quantization"], result["weight_bytes"]) for result in results] == [
        ("gguf", "q8_0", 1_950_000),
        ("gguf", "f32", 7_200_000),
        ("pytorch", None, 7_200_000),
    ]
    assert [round(result["score"]["wer"], 2) for result in results] == [0.33, 0.0, 0.33]
    runs_on = client.predict(api_name="/models")[0]["runtimes"]["gguf"]
    assert runs_on["quantizations"][2] == {"name": "q8_0", "bytes": 1_950_000, "converted": True, "default": False}
    with pytest.raises(client_module.exceptions.AppError, match="there is no 'q3' of fake/sense on gguf"):
        client.predict(audio, ["fake/sense|gguf|q3"], "pytorch", "{}", "", "basic", api_name="/transcribe")


@pytest.mark.slow
def test_quantised_demo_models_transcribe_without_word_errors(demos: Served) -> None:
    client_module = pytest.importorskip("gradio_client")
    models = DEMOS[:4]  # the others take no recording
    needs(demos.registry, "gguf", *models)
    sample = next(each for each in read_samples() if each.path.name == "three_seven_one.wav")
    client = client_module.Client(demos.url, verbose=False)
    audio = [client_module.handle_file(str(sample.path))]
    cells = [f"{model}|gguf|q8_0" for model in models]
    results = client.predict(audio, cells, "pytorch", "{}", sample.text, "digits", api_name="/transcribe")
    assert [each.get("error") for each in results] == [None] * 4
    assert [(each["model"], each["quantization"]) for each in results] == [(model, "q8_0") for model in models]
    assert [each["score"]["wer"] for each in results] == [0.0] * 4
    quantizations = {
        each["id"]: each["runtimes"]["gguf"]["quantizations"] for each in client.predict(api_name="/models")
    }
    sizes = {
        model: {each["name"]: each["bytes"] for each in quantizations[model] if each["converted"]} for model in models
    }
    assert [sizes[each["model"]]["q8_0"] for each in results] == [each["weight_bytes"] for each in results]
