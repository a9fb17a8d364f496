"""The Evaluate tab in a real browser at both widths, its addresses, and its endpoint for scripts."""

from __future__ import annotations

import csv
import json
import re
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import soundfile

from panels.evaluate.corpus import example
from panels.evaluate.events import EvaluateActions
from panels.evaluate.run import Job, opened, run
from panels.evaluate.view import summary
from panels.running.sessions import SessionPool
from tests.panels.conftest import Served, serve
from tests.panels.test_transcribe_page import expect, until
from tests.support.browser import unfold
from tests.support.fake_evaluation import FakeEvaluation
from tests.support.fake_panels import FakeRegistry, tone
from tests.support.widths import fits_a_phone_and_a_desk, no_sideways_scroll
from workbench.core.errors import BadInput
from workbench.evaluation.manifests import read_manifest
from workbench.evaluation.rows import Utterance
from workbench.evaluation.runner import run as evaluate
from workbench.evaluation.store import read
from workbench.evaluation.transcripts import files as transcript_reading
from workbench.serving.admission.guard import Guard
from workbench.serving.admission.limits import PUBLIC


@pytest.fixture(scope="module")
def fake() -> FakeEvaluation:
    return FakeEvaluation()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The user's folders, which the tests of this file share, as they share the page."""
    return tmp_path_factory.mktemp("evaluate")


@pytest.fixture(scope="module")
def bench(fake: FakeEvaluation, home: Path) -> Iterator[Served]:
    """The page over fake models."""
    with pytest.MonkeyPatch.context() as set_:
        live_in(home, set_)
        set_.setattr("panels.evaluate.events.evaluate", fake)
        yield from serve(SessionPool(FakeRegistry()), "transcribe,parity,evaluate")  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def at_home(user_folders: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live_in(home, monkeypatch)


def live_in(home: Path, set_: pytest.MonkeyPatch) -> None:
    set_.setenv("XDG_CACHE_HOME", str(home / "cache"))
    set_.setenv("GRADIO_TEMP_DIR", str(home / "uploads"))


def open_tab(page: Any, bench: Served) -> None:
    page.goto(f"{bench.url}#evaluate")
    expect(page.locator("#evaluate-models input:checked")).to_have_count(2)


@pytest.mark.browser
def test_samples_are_evaluated_filtered_exported_and_sent_to_other_tabs(bench: Served, page: Any) -> None:
    open_tab(page, bench)
    page.locator("#evaluate-run").click()
    expect(page.locator("#evaluate-status")).to_contain_text("18 results in")
    report = page.frame_locator("#evaluate-report iframe")
    expect(report.locator("#overview tbody tr")).to_have_count(2)
    expect(report.locator("#differences")).to_contain_text("fake/para is")
    expect(report.locator("#worst .recording").first).to_contain_text("eleven")
    assert fits_a_phone_and_a_desk(page, report.locator("html").element_handle().owner_frame())

    # A filter, one row in detail with its sound, and its links to other tabs.
    report.locator(".tools input[type=search]").fill("six five")
    expect(report.locator(".count")).to_contain_text("of 9 recordings")
    report.locator(".tools input[type=search]").fill("three_seven")
    expect(report.locator(".grid .rows .line")).to_have_count(1)
    report.locator(".grid .rows .line").first.click()
    expect(report.locator("#row .wrong").first).to_contain_text("eleven instead of seven")
    expect(report.locator("#row audio")).to_have_attribute("src", re.compile("^data:audio/flac"))
    with page.expect_download() as waiting:
        page.get_by_role("link", name="CSV").click()
    rows = list(csv.DictReader(Path(waiting.value.path()).read_text(encoding="utf-8-sig").splitlines()))
    assert len(rows) == 18 and rows[0]["reference"] == "three seven one"
    with page.expect_download() as waiting:
        report.get_by_role("button", name="Save JSON").click()
    [saved] = json.loads(Path(waiting.value.path()).read_text(encoding="utf-8"))
    assert saved["id"] == "three_seven_one"
    with page.expect_download() as waiting:
        page.get_by_role("link", name="Report (HTML)").click()
    assert "<!doctype html>" in Path(waiting.value.path()).read_text(encoding="utf-8")
    report.locator("#row .doors button", has_text="Transcribe").click()
    expect(page.locator("#recordings")).to_contain_text("three_seven_one")
    expect(page.locator("#reference textarea")).to_have_value("three seven one")
    expect(page.get_by_role("tab", name="Transcribe")).to_have_attribute("aria-selected", "true")
    until(page, lambda: page.evaluate("scrollY") == 0)  # the recording is in view
    page.get_by_role("tab", name="Evaluate").click()
    expect(page.get_by_role("tab", name="Evaluate")).to_have_attribute("aria-selected", "true")
    # By the keyboard: the tab that has just opened may still scroll, and a press of the mouse would miss.
    report.locator("#row .doors button", has_text="Parity").press("Enter")
    expect(page.locator("#parity-recording")).to_contain_text("three_seven_one")


@pytest.mark.browser
def test_cancel_keeps_the_finished_results_on_a_phone(
    bench: Served, fake: FakeEvaluation, page: Any, tmp_path: Path
) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    open_tab(page, bench)
    unfold(page, "Or a path on this machine")
    page.locator("#evaluate-path input, #evaluate-path textarea").fill(str(tmp_path / "nowhere"))
    page.locator("#evaluate-run").click()
    expect(page.locator(".toast-body")).to_contain_text("there is no")
    page.locator("#evaluate-path input, #evaluate-path textarea").fill("")
    with patch.object(fake, "free", 5):
        fake.gate.clear()
        try:
            page.locator("#evaluate-run").click()
            expect(page.locator("#evaluate-status")).to_contain_text("about 3 s left")
            page.locator("#evaluate-cancel").click()
            expect(page.locator("#evaluate-status")).to_contain_text("Stopped: 5 results")
        finally:
            fake.gate.set()
    report = page.frame_locator("#evaluate-report iframe")
    expect(report.locator("#overview")).to_contain_text("5 of 9")
    expect(report.locator(".grid .rows .line").first).to_be_visible()
    assert no_sideways_scroll(page)


def test_evaluate_endpoint_returns_scores_and_skipped_rows(bench: Served, tmp_path: Path) -> None:
    client_module = pytest.importorskip("gradio_client")
    client = client_module.Client(bench.url, verbose=False)
    result = client.predict(models=["fake/sense", "fake/para"], limit="3", rows=True, api_name="/evaluate")
    assert [model["done"] for model in result["models"]] == [3, 3]
    assert result["models"][0]["wer"]["value"] == pytest.approx(1 / 12) and result["models"][1]["wer"]["value"] == 0
    assert result["pairs"][0]["sentence"] and len(result["rows"]) == 6
    archive = tmp_path / "corpus.zip"
    with zipfile.ZipFile(archive, "w") as zip_file:
        zip_file.write(tone(tmp_path / "a.wav", 1.0), "wavs/a.wav")
        zip_file.writestr("list.csv", "audio,text\nwavs/a.wav,seven\nwavs/b.wav\n")
    result = client.predict(models="fake/sense", files=[client_module.handle_file(str(archive))], api_name="/evaluate")
    assert result["models"][0]["wer"]["value"] == 1 and result["skipped"][0]["where"].startswith("list.csv, line 3")
    for changes, sentence in (
        ({"limit": "x"}, "the limit is 'x'"),
        ({"models": "fake/none"}, "there is no 'fake/none'"),
    ):
        with pytest.raises(client_module.exceptions.AppError, match=sentence):
            client.predict(**{"models": "fake/sense", **changes}, api_name="/evaluate")


def test_report_urls_without_a_valid_key_are_refused(bench: Served) -> None:
    import httpx

    for path in ("report/x", "table/x?as=csv", "sound/x?id=a"):
        answer = httpx.get(f"{bench.url}evaluate/{path}")
        assert answer.status_code == 400 and "not kept any more" in answer.json()["error"]


@pytest.mark.parametrize("mode", ["local", "public"])
def test_path_on_the_machine_is_offered_to_its_owner_only(mode: str) -> None:
    from panels.page import build_page, chosen_tabs

    page = build_page(SessionPool(FakeRegistry(), guard=Guard(mode)), chosen_tabs("evaluate"))  # type: ignore[arg-type]
    [part] = [each for each in page.blocks.values() if getattr(each, "label", "") == "Or a path on this machine"]
    assert part.visible == (mode == "local")


def test_run_that_is_stopped_early_or_fails_leaves_no_files(tmp_path: Path) -> None:
    registry = FakeRegistry()
    stopped = Event()
    stopped.set()
    job = Job(example(), ["fake/sense|pytorch"], "basic", None, tmp_path / "job")
    *_, last = run(registry, job, stopped, evaluate, Guard())  # type: ignore[arg-type]
    assert last.stopped and last.results is None and not job.folder.exists()
    with pytest.raises(BadInput, match="no model is named"):
        list(run(registry, replace(job, models=[]), Event(), evaluate, Guard()))  # type: ignore[arg-type]
    assert not job.folder.exists()
    (tmp_path / "notes.csv").write_text("no corpus")
    actions = EvaluateActions(SessionPool(registry))  # type: ignore[arg-type]
    with (
        patch("panels.evaluate.events.upload_folder", lambda: tmp_path),
        pytest.raises(BadInput, match="has the columns no corpus"),
    ):
        actions.job([str(tmp_path / "notes.csv")], "", ["fake/sense|pytorch"], "basic", "")
    assert [each.name for each in tmp_path.iterdir()] == ["notes.csv"]


def test_end_of_the_time_for_a_run_keeps_its_results(tmp_path: Path) -> None:
    registry, guard = FakeRegistry(), Guard("public", replace(PUBLIC, run_minutes=0.02))
    compute = FakeEvaluation(free=5)
    compute.gate.clear()
    job = Job(example(), ["fake/sense|pytorch"], "basic", None, tmp_path / "job")
    *_, last = run(registry, job, Event(), compute, guard)  # type: ignore[arg-type]
    assert last.results is not None and last.results.figures.models[0].done == 5
    assert summary(last).startswith("Stopped at the 1 s that one run may take here: 5 results in")
    last.results.close()
    compute.free = 0
    with pytest.raises(BadInput, match=r"no recording was finished in the 1 s that one run may take here; evaluate"):
        list(run(registry, job, Event(), compute, guard))  # type: ignore[arg-type]
    assert not job.folder.exists()


@pytest.mark.parametrize(("name", "shown"), [("list.csv", "list.csv"), ("a.txt", "uploaded files")])
def test_report_of_an_upload_names_no_folder_of_the_server(tmp_path: Path, name: str, shown: str) -> None:
    tone(tmp_path / "a.wav")
    (tmp_path / name).write_text("audio,text\na.wav,seven\nb.wav\n")
    pool = SessionPool(FakeRegistry())  # type: ignore[arg-type]
    actions = EvaluateActions(pool, FakeEvaluation())
    files = [str(tmp_path / "a.wav"), str(tmp_path / name)]
    job = actions.job(files, "", ["fake/sense|pytorch"], "basic", "")
    *_, last = run(pool.registry, job, Event(), actions.compute)
    assert last.results is not None
    text = last.results.report.read_text(encoding="utf-8")
    assert f"Evaluation over {shown}<" in text and str(job.folder) not in text
    assert ("1 row of the manifest could not be used" in text) == (name == "list.csv")


def test_recordings_of_one_name_are_sent_to_other_tabs_as_different_files(tmp_path: Path) -> None:
    for place, seconds in enumerate((0.5, 1.0)):
        (tmp_path / f"s{place}").mkdir()
        tone(tmp_path / f"s{place}" / "001.wav", seconds)
        (tmp_path / f"s{place}" / "001.txt").write_text("one")
    actions = EvaluateActions(SessionPool(FakeRegistry()), FakeEvaluation())  # type: ignore[arg-type]
    FakeEvaluation()(
        str(tmp_path),
        ["fake/sense|pytorch"],
        tmp_path.parent / "results",
        normaliser="basic",
        limit=None,
        on_progress=lambda share, activity: None,
        on_skipped=lambda row: None,
    )
    results = opened(read(tmp_path.parent / "results"), tmp_path.parent / "kept")
    actions.last_results.put(results.key, results)
    taken = [actions.take_one(SimpleNamespace(_data={"key": results.key, "id": f"s{place}/001"})) for place in (0, 1)]  # type: ignore[arg-type]
    actions.last_results.close()
    assert [soundfile.info(each).duration for each in taken] == [0.5, 1.0]
    assert {Path(each).name for each in taken} == {"001.wav"}


def test_example_manifest_lists_the_shipped_samples() -> None:
    rows = list(read_manifest(example()).rows())
    assert all(isinstance(each, Utterance) for each in rows)
    samples = json.loads((Path(example()).parent / "samples.json").read_text(encoding="utf-8"))
    assert [(each.audio, each.text) for each in rows] == [(each["file"], each["text"]) for each in samples]  # type: ignore[union-attr]
    for each in samples:
        assert soundfile.info(Path(example()).parent / each["file"]).duration == pytest.approx(
            each["seconds"], abs=0.01
        )


def test_invalid_evaluation_choices_raise_one_line_errors(
    pool: SessionPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path))
    actions = EvaluateActions(pool)
    for fields, sentence in (
        (([], "", [], "basic", ""), "no model is chosen"),
        (([], "", ["fake/sense"], "nothing", ""), "no normaliser 'nothing'"),
        (([], "", ["fake/sense"], "basic", "0"), "a number of recordings, at least 1"),
        (([], str(tmp_path / "x"), ["fake/sense"], "basic", ""), "on the machine that runs this page"),
    ):
        with pytest.raises(BadInput, match=sentence):
            actions.job(*fields)  # type: ignore[arg-type]
    job = actions.job([], "", ["fake/sense", "fake/para|pytorch"], "digits", "5")
    assert job.models == ["fake/sense|pytorch", "fake/para|pytorch"] and job.limit == 5 and job.manifest == example()


def test_uploaded_transcripts_stand_in_the_report_without_a_model(pool: SessionPool, tmp_path: Path) -> None:
    trn = tmp_path / "espnet.trn"
    trn.write_text("three eleven one (three_seven_one)\nnine (somebody_else)\n")
    actions = EvaluateActions(pool)
    with patch("panels.evaluate.events.upload_folder", lambda: tmp_path):
        job = actions.job([], "", [], "basic", "1", [str(trn)])
    *_, last = run(FakeRegistry(), job, Event(), evaluate, Guard())  # type: ignore[arg-type]
    assert last.results is not None and last.results.columns.texts == {"espnet": ["three eleven one"]}
    assert summary(last).endswith("belongs to no recording of the corpus, such as 'somebody_else' (espnet.trn, line 2)")
    last.results.close()


def test_unusable_transcripts_are_refused_without_a_folder_of_the_server(
    pool: SessionPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("panels.evaluate.corpus.MAX_TRANSCRIPTS", 100)
    actions = EvaluateActions(pool)
    for name, content in (
        ("a.trn", "no id\n"),
        ("b.trn", "x (y)\n" * 50),
        ("c.trn", "one (x)\n"),
        ("c.txt", "x one\n"),
    ):
        (tmp_path / name).write_text(content)
    for files, sentence in (
        (["b.trn"], "b.trn has more than 0 MB; the command `workbench evaluate` takes it"),
        (["c.trn", "c.txt"], "two files of transcripts are called c"),
    ):
        with pytest.raises(BadInput) as caught:
            actions.job([], "", [], "basic", "", [str(tmp_path / name) for name in files])
        assert str(caught.value).startswith(sentence), "it names no folder"
    for name, sentence in (
        ("a.trn", "a.trn, line 1 has no id in parentheses"),
        ("c.trn", "no transcript of c.trn belongs to a recording of the corpus"),
    ):
        with patch("panels.evaluate.events.upload_folder", lambda: tmp_path):
            job = actions.job([], "", [], "basic", "", [str(tmp_path / name)])
        with pytest.raises(BadInput) as caught:
            list(run(FakeRegistry(), job, Event(), evaluate, Guard()))  # type: ignore[arg-type]
        assert str(caught.value).startswith(sentence)
        assert not job.folder.exists()


def test_run_reads_a_file_of_transcripts_once(
    pool: SessionPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "espnet.trn").write_text("three eleven one (three_seven_one)\n")
    names: list[str] = []

    def noted(path: Path, text: str) -> Any:
        names.append(path.name)
        return reader(path, text)

    reader = transcript_reading._reader
    monkeypatch.setattr(transcript_reading, "_reader", noted)
    actions = EvaluateActions(pool)
    with patch("panels.evaluate.events.upload_folder", lambda: tmp_path):
        job = actions.job([], "", [], "basic", "1", [str(tmp_path / "espnet.trn")])
    *_, last = run(FakeRegistry(), job, Event(), evaluate, Guard())  # type: ignore[arg-type]
    assert last.results is not None and names == ["espnet.trn"]
    last.results.close()
