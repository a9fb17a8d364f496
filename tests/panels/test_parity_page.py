"""The Parity tab in a real browser."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.panels.conftest import Served, needs
from tests.panels.test_transcribe_page import LONG, expect, until
from tests.support.browser import unfold
from tests.support.fake_lab import waits
from tests.support.fake_panels import broken, tone
from tests.support.networks import STAGES, computed
from tests.support.widths import no_sideways_scroll, no_sideways_scroll_by_day_and_night

pytestmark = pytest.mark.tabs("parity")


def open_tab(page: Any, served: Served) -> None:
    page.goto(served.url)
    page.get_by_role("tab", name="Parity").click()
    expect(page.locator("#parity-sides [data-side]").first).to_be_visible()


def pick(page: Any) -> None:
    page.locator("#parity-samples .sample").first.click()
    expect(page.locator("#parity-recording")).to_contain_text("three_seven_one")


def candidates(page: Any) -> Any:
    return page.locator("#parity-candidates textarea")


def compare(page: Any, *sides: str) -> None:
    """Runs with these candidates and waits for the first stage that is opened."""
    pick(page)
    candidates(page).fill("\n".join(sides))
    page.locator("#parity-run").click()
    expect(page.locator("#parity-status")).to_contain_text("Compared in", timeout=LONG)
    expect(page.locator("#parity-closer h3")).to_be_visible()


@pytest.mark.browser
@pytest.mark.slow
def test_demo_model_is_compared_on_two_runtimes_and_its_report_opens_offline(
    demos: Served, page: Any, tmp_path: Path
) -> None:
    needs(demos.registry, "gguf", "demo/sensevoice")
    open_tab(page, demos)
    expect(page.locator("#parity-model input")).to_have_value(re.compile("SenseVoice"))
    expect(page.locator("#parity-reference input")).to_have_value("PyTorch f32")
    expect(candidates(page)).to_have_value("gguf:f32")
    expect(page.locator("#parity-sides")).to_contain_text("nothing for vLLM to serve")
    pick(page)
    page.locator("#parity-run").click()
    expect(page.locator("section.verdict.within")).to_have_count(1, timeout=2 * LONG)
    verdict = page.locator("section.verdict")
    expect(verdict).to_contain_text("within tolerance")
    expect(verdict).to_contain_text("Arithmetic noise")
    sentence = verdict.locator("p").nth(1).inner_text()

    page.locator('[data-stage="encoder.layers.2"] button').click()
    expect(page.locator("#parity-closer h3")).to_contain_text("encoder.layers.2 gguf:f32 against pytorch:f32")
    expect(page.locator("#parity-closer img")).to_have_count(5)
    expect(page.locator("#parity-closer .statistics")).to_contain_text("distance of the candidate from float64")

    with page.expect_download() as waiting:
        page.locator("#parity-html").click()
    assert re.fullmatch(r"parity-demo-sensevoice-\d{4}-\d\d-\d\d\.html", waiting.value.suggested_filename)
    report = tmp_path / "report.html"
    waiting.value.save_as(report)
    offline = page.context.browser.new_context(offline=True)
    view = offline.new_page()
    view.goto(report.as_uri())
    expect(view.locator("h1")).to_have_text("Parity of demo/sensevoice")
    expect(view.locator("section.verdict p").nth(1)).to_have_text(sentence)
    offline.close()


@pytest.mark.browser
@pytest.mark.tabs("parity,inject")
def test_empty_panels_are_hidden_before_the_first_run(lab: Served, page: Any) -> None:
    open_tab(page, lab)
    for each in ("#parity-prompt", "#parity-exports", "#parity-cancel", "#parity-status", "#parity-closer img"):
        expect(page.locator(each)).to_be_hidden()
    for name in ("Parity", "Inject"):
        page.get_by_role("tab", name=name).click()
        inputs, results = (page.locator(f".{each} > *:visible").first.bounding_box() for each in ("inputs", "results"))
        assert inputs["y"] == results["y"], "no empty element stands above either column"
    expect(page.locator("#which-tensor")).to_be_hidden()


@pytest.mark.browser
def test_candidates_are_selected_by_button_text_and_experiment_switches(lab: Served, page: Any) -> None:
    open_tab(page, lab)
    expect(candidates(page)).to_have_value("gguf:f32")
    for side in ("gguf:q8_0", "pytorch:f64"):
        page.locator(f'[data-side="{side}"]').click()
    expect(candidates(page)).to_have_value("gguf:f32\ngguf:q8_0\npytorch:f64")
    page.locator('[data-side="gguf:f32"]').click()
    expect(candidates(page)).to_have_value("gguf:q8_0\npytorch:f64")
    expect(page.locator('[aria-pressed="true"]')).to_have_count(2)

    unfold(page, "Experiments")
    page.locator("#parity-candidates-cmvn input").check()
    expect(candidates(page)).to_have_value("gguf:q8_0+cmvn=off\npytorch:f64+cmvn=off")
    page.locator('[data-side="gguf:q4_0"]').click()
    expect(candidates(page)).to_have_value("gguf:q8_0+cmvn=off\npytorch:f64+cmvn=off\ngguf:q4_0+cmvn=off")
    page.locator("#parity-reference-dither input").check()
    expect(page.locator("#parity-reference input")).to_have_value("pytorch:f32+dither=1")
    candidates(page).fill("gguf:f32+itn=on")
    expect(page.locator('[aria-pressed="true"]')).to_have_count(1)
    page.locator("#parity-candidates-threads input, #parity-candidates-threads textarea").press_sequentially("2")
    expect(candidates(page)).to_have_value("gguf:f32+itn=on+threads=2")
    page.locator("#parity-candidates-cmvn input").uncheck()
    pick(page)
    page.locator("#parity-run").click()
    expect(page.locator("section.verdict")).to_contain_text("gguf:f32+itn=on+threads=2")
    sides = [(runtime, settings.get("threads"), options) for runtime, settings, options in lab.registry.traced]
    assert ("gguf", 2, {"itn": True}) in sides and ("pytorch", None, {"dither": 1.0}) in sides


@pytest.mark.browser
def test_first_wrong_stage_is_opened_and_other_stages_can_be_selected(lab: Served, page: Any) -> None:
    lab.registry.faults["gguf"] = {"encoder.layers.3": lambda x: 1.02 * x}
    lab.registry.missing["vllm"] = "vLLM is not installed; run: pip install vllm"
    open_tab(page, lab)
    compare(page, "pytorch:f32", "gguf:f32", "vllm")
    expect(page.locator("section.verdict.within")).to_contain_text("Identical")
    expect(page.locator("section.verdict.beyond")).to_contain_text("encoder.layers.3 is the first stage")
    expect(page.locator("section.verdict.unavailable")).to_contain_text("pip install vllm")
    expect(page.locator("#parity-closer h3")).to_contain_text("encoder.layers.3 gguf:f32")
    expect(page.locator("#parity-closer")).to_contain_text("1.02 times the reference")
    expect(page.locator(".heat .opened")).to_have_attribute("data-stage", "encoder.layers.3")
    expect(page.locator('[data-stage="encoder.layers.3"] button')).to_have_attribute("tabindex", "0")

    # With the keyboard: the tab key reaches one stage, and the arrow keys move on from there.
    first = page.locator('[data-stage="frontend.fbank"] button')
    expect(page.locator('.heat button[tabindex="0"]')).to_have_count(1)
    first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("End")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    expect(page.locator("#parity-closer h3")).to_contain_text(f"{STAGES[-2]} gguf:f32")
    expect(page.locator("#parity-closer")).to_contain_text(re.compile("equal|edit"))
    # With the mouse: a candidate's cell, then the name of another candidate.
    page.locator('[data-stage="logits"] td[data-side="0"]').first.click()
    expect(page.locator("#parity-closer h3")).to_contain_text("logits pytorch:f32 against pytorch:f32")
    page.locator("#parity-closer").get_by_role("button", name="gguf:f32").click()
    expect(page.locator("#parity-closer h3")).to_contain_text("logits gguf:f32 against pytorch:f32")
    # A stack of layers is closed and opened.
    layer = page.locator('[data-stage="encoder.layers.0"]')
    expect(layer).to_be_visible()
    page.get_by_label(re.compile("encoder.layers 0 to 7")).uncheck()
    expect(layer).to_be_hidden()

    with page.expect_download() as waiting:
        page.locator("#parity-json").click()
    report = json.loads(Path(waiting.value.path()).read_text(encoding="utf-8"))
    assert [each["status"] for each in report["candidates"]] == ["within", "beyond", "unavailable"]


@pytest.mark.browser
def test_several_recordings_get_one_verdict_and_a_report(lab: Served, page: Any, tmp_path: Path) -> None:
    lab.registry.faults["gguf"] = {"encoder.layers.3": lambda x: 1.02 * x}
    open_tab(page, lab)
    unfold(page, "Several inputs, one verdict")
    page.set_input_files(
        "#parity-several input[type=file]", [str(tone(tmp_path / name)) for name in ("a.wav", "b.wav")]
    )
    expect(page.locator("#parity-several")).to_contain_text(re.compile(r"b\s*\.wav"))
    page.locator("#parity-run").click()
    expect(page.locator("#parity-status")).to_contain_text("over 2 inputs: 1 beyond", timeout=LONG)
    expect(page.locator("section.verdict.beyond")).to_contain_text("encoder.layers.3 is the first stage in error on 2")
    expect(page.locator("#parity-result table").last).to_contain_text("b-2")
    expect(page.locator("#parity-closer h3")).to_have_count(0)
    with page.expect_download() as waiting:
        page.locator("#parity-html").click()
    assert "over 2 inputs" in Path(waiting.value.path()).read_text(encoding="utf-8")

    page.set_viewport_size({"width": 390, "height": 800})
    assert no_sideways_scroll(page)
    page.locator("#parity-model input").click()
    page.get_by_role("option", name="Fake language model").click()
    expect(page.locator("#parity-several")).to_contain_text("one per line")


@pytest.mark.browser
def test_isolated_mode_stages_and_tolerances_reach_the_run(
    lab: Served, page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import panels.parity.run

    calls: list[Any] = []
    real = panels.parity.run.run_parity
    monkeypatch.setattr(
        "panels.parity.run.run_parity", lambda *a, **k: calls.append((a, k)) or real(*a, **{**k, "isolated": False})
    )
    open_tab(page, lab)
    page.locator("#parity-mode label", has_text="Isolated").click()
    unfold(page, "Stages and tolerance")
    stages = page.locator("#parity-stages input, #parity-stages textarea")
    expect(stages).to_have_value("*")  # Gradio creates the inputs when they become visible
    stages.fill("encoder.*, tokens")
    page.locator("#parity-rules textarea").fill("encoder.*:relative_l2=1e-9\ncosine_distance=0.5")
    expect(stages).to_have_value("encoder.*, tokens")
    page.locator("#parity-exact input").uncheck()
    compare(page, "gguf:f32")
    [(arguments, _)] = calls
    run_options = arguments[5]
    assert run_options.stages == "encoder.*, tokens" and run_options.exact is False and run_options.isolated is True
    assert run_options.rules == ("encoder.*:relative_l2=1e-9", "cosine_distance=0.5")
    expect(page.locator("section.verdict.beyond")).to_contain_text("with changes")
    expect(page.locator("[data-stage]")).to_have_count(10 + 1)


@pytest.mark.browser
def test_uploaded_trace_with_a_name_mapping_is_compared_as_a_candidate(lab: Served, page: Any, tmp_path: Path) -> None:
    port_stages = {("enc_out" if name == "encoder.output" else name): array for name, array in computed().items()}
    port_stages["enc_out"] = np.ascontiguousarray(port_stages["enc_out"].T)
    arrays = {name: array for name, array in port_stages.items() if name != "text"}
    np.savez(tmp_path / "port.npz", **arrays)
    mapping = tmp_path / "names.toml"
    mapping.write_text('[stages]\n"encoder.output" = { from = "enc_out", transpose = true }\n')
    open_tab(page, lab)
    unfold(page, "Files of other programs")
    page.set_input_files("#parity-uploads input[type=file]", str(tmp_path / "port.npz"))
    expect(candidates(page)).to_have_value("gguf:f32\nport.npz")
    page.set_input_files("#parity-mapping input[type=file]", str(mapping))
    expect(page.locator("#parity-mapping")).to_contain_text("names")
    compare(page, "port.npz")
    expect(page.locator("section.verdict")).to_contain_text("port.npz")
    expect(page.locator("section.verdict.within")).to_contain_text("Identical: 14 stages")


@pytest.mark.browser
def test_page_has_no_horizontal_scroll_on_a_phone(lab: Served, page: Any) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    lab.registry.faults["gguf"] = {"encoder.layers.3": lambda x: 1.02 * x}
    open_tab(page, lab)
    assert no_sideways_scroll(page)
    compare(page, "gguf:f32", "pytorch:f64", "gguf:q8_0+cmvn=off+threads=1")
    for name in ("Files of other programs", "Experiments", "Stages and tolerance"):
        unfold(page, name)
    for details in page.locator("#parity-result details").all():
        details.evaluate("each => { each.open = true; }")
    expect(page.locator("#parity-rules")).to_be_visible()
    assert no_sideways_scroll_by_day_and_night(page)
    box = page.locator("#parity-result .scroll.tall").first
    assert box.evaluate("each => each.scrollWidth > each.clientWidth"), "the table scrolls in its own box"
    box.evaluate("each => { each.scrollTop = 200; each.scrollLeft = 100; }")
    [edge, head, name] = [
        page.locator(selector).first.bounding_box()
        for selector in ("#parity-result .tall", ".heat thead th", ".heat tbody th")
    ]
    assert head["y"] == pytest.approx(edge["y"], abs=2), "its head stays"
    assert name["x"] == pytest.approx(edge["x"], abs=2), "the names of stages stay"


@pytest.mark.browser
def test_results_scroll_into_view_and_buttons_are_large_enough_on_a_phone(lab: Served, page: Any) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    open_tab(page, lab)
    small = """() => [...document.querySelectorAll('.bench button:not(.icon-button), .bench summary, [role=tab]')]
        .filter((each) => each.offsetParent && each.getBoundingClientRect().height < 39)
        .map((each) => each.className + ' ' + each.innerText)"""
    assert page.evaluate(small) == []
    page.locator("#parity-run").click()  # after an error the page stays at the inputs
    expect(page.locator(".toast-body").last).to_contain_text("there is no recording")
    assert page.locator("#parity-results").bounding_box()["y"] > 844
    compare(page, "gguf:f32", "gguf:q8_0")
    until(page, lambda: 0 <= page.locator("#parity-results").bounding_box()["y"] < 422)
    assert page.evaluate(small) == []
    pressed = page.locator("#parity-closer .buttons [aria-pressed=true]")
    expect(pressed).to_have_count(1)


@pytest.mark.browser
def test_invalid_input_shows_an_error_message_and_keeps_the_fields(lab: Served, page: Any, tmp_path: Path) -> None:
    open_tab(page, lab)
    toast = page.locator(".toast-body").last
    page.locator("#parity-run").click()
    expect(toast).to_contain_text("there is no recording for pytorch:f32")
    pick(page)
    for text, sentence in [
        ("", "no candidate is chosen"),
        ("/etc/passwd", "'/etc/passwd' is neither a runtime nor an uploaded file"),
        ("gguf:q8_0+cmvn=perhaps", "expected one of checkpoint, off"),
        ("gguf+vad=/etc", "is not one of"),
    ]:
        candidates(page).fill(text)
        page.locator("#parity-run").click()
        expect(page.locator(".toast-body").last).to_contain_text(sentence)
        expect(candidates(page)).to_have_value(text)
    candidates(page).fill("gguf:f32")
    unfold(page, "Stages and tolerance")
    page.locator("#parity-rules textarea").fill("loudness=1")
    page.locator("#parity-run").click()
    expect(page.locator(".toast-body").last).to_contain_text("'loudness=1' is not understood")
    expect(page.locator("#parity-rules textarea")).to_have_value("loudness=1")
    page.locator("#parity-rules textarea").fill("")
    unfold(page, "Files of other programs")
    page.set_input_files("#parity-uploads input[type=file]", str(broken(tmp_path / "foreign.npz")))
    expect(candidates(page)).to_have_value("gguf:f32\nforeign.npz")
    page.locator("#parity-run").click()
    expect(page.locator("section.verdict.unusable")).to_contain_text("foreign.npz is truncated or not a .npz file")
    expect(page.locator("section.verdict.within")).to_have_count(1)
    candidates(page).fill("")
    page.locator("#parity-run").click()
    expect(page.locator("#parity-status")).to_contain_text("of an earlier run")


@pytest.mark.browser
def test_cancel_closes_all_sessions_and_keeps_the_chosen_inputs(lab: Served, page: Any, tempdir: Path) -> None:
    lab.registry.acts["gguf"] = waits
    open_tab(page, lab)
    pick(page)
    page.locator("#parity-run").click()
    expect(page.locator("#parity-status")).to_contain_text("tracing gguf:f32")
    page.locator("#parity-cancel").click()
    expect(page.locator("#parity-status")).to_contain_text("Stopped after")
    assert lab.registry.open_now == [] and lab.registry.cancelled == 1
    assert list(tempdir.iterdir()) == []
    expect(page.locator("#parity-run")).to_be_visible()
    expect(page.locator(".toast-body")).to_have_count(0)
    expect(candidates(page)).to_have_value("gguf:f32")
    expect(page.locator("#parity-recording")).to_contain_text("three_seven_one")
    lab.registry.acts.clear()
    page.locator("#parity-run").click()  # and again, now to the end
    expect(page.locator("section.verdict.within")).to_have_count(1)
    assert len(list(tempdir.iterdir())) == 1


@pytest.mark.browser
def test_stored_runs_are_separate_per_user_and_deleted_when_the_user_leaves(
    lab: Served, page: Any, chromium: Any, tempdir: Path
) -> None:
    open_tab(page, lab)
    compare(page, "gguf:f32")
    with chromium.new_context() as context:
        other_page = context.new_page()
        open_tab(other_page, lab)
        compare(other_page, "pytorch:f64", "gguf:q8_0")
        assert len(list(tempdir.iterdir())) == 2
        page.locator('[data-stage="logits"] button').first.click()
        expect(page.locator("#parity-closer h3")).to_contain_text("logits gguf:f32 against")
        other_page.locator("#parity-run").click()
        until(page, lambda: sorted(folder.name for folder in tempdir.iterdir()) == ["run-0", "run-2"])
        expect(other_page.locator("#parity-run")).to_be_visible()
        other_page.goto("about:blank")
        until(page, lambda: [folder.name for folder in tempdir.iterdir()] == ["run-0"])
    page.goto("about:blank")
    until(page, lambda: list(tempdir.iterdir()) == [])


@pytest.mark.browser
def test_language_model_is_compared_on_a_prompt_with_embeddings(lab: Served, page: Any, tmp_path: Path) -> None:
    open_tab(page, lab)
    page.locator("#parity-model input").click()
    page.get_by_role("option", name="Fake language model").click()
    expect(page.locator("#parity-prompt")).to_be_visible()
    expect(page.locator("#parity-samples")).to_be_hidden()
    page.locator("#parity-run").click()
    expect(page.locator(".toast-body").last).to_contain_text("there is no prompt")
    page.locator("#parity-prompt textarea").fill("Say <b>seven</b>")
    page.get_by_role("button", name="Embeddings in the prompt").click()
    np.save(tmp_path / "probe.npy", np.ones((3, 4), np.float32))
    page.set_input_files("#parity-embeddings input[type=file]", str(tmp_path / "probe.npy"))
    expect(page.locator("#parity-embeddings")).to_contain_text("probe")
    unfold(page, "Experiments")
    expect(page.locator("#parity-candidates-kv")).to_be_visible()
    expect(page.locator("#parity-candidates-cmvn")).to_be_hidden()
    page.locator("#parity-run").click()
    expect(page.locator("#parity-result h3").first).to_contain_text("Say <b>seven</b>")
    [embedding] = lab.registry.embeddings[0]
    assert embedding.name == "probe.npy" and embedding.values.shape == (3, 4)
