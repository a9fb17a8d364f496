"""vLLM on the page: engines chosen, configured, started with progress, shared, their logs, and unloaded."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gradio as gr
import psutil
import pytest

from panels.models.view import log_html, residents_html
from panels.running.choices import offers
from panels.running.sessions import SessionPool
from panels.transcribe.job import RunState, prepare
from panels.transcribe.run import run
from panels.widgets.engine_inputs import SETTINGS, check_settings, make_settings, read_settings
from panels.widgets.model_chooser import chooser_value
from tests.panels.conftest import Served, needs, serve
from tests.panels.test_transcribe_page import add_files, expect, open_page, until
from tests.support.browser import unfold
from tests.support.fake_engines import FakeEngineRegistry
from tests.support.fake_panels import tone
from tests.support.widths import fits_a_phone_and_a_desk
from workbench.core.errors import BadInput

pytestmark = pytest.mark.tabs("transcribe,models")

NANO, FAR = "fake/nano|vllm", "fake/far|vllm"
START = 400_000  # milliseconds; an engine starts while the machine has other work
LOG = "INFO loading weights\nINFO <b>ready</b>\n"


@pytest.fixture
def registry(tmp_path: Path) -> FakeEngineRegistry:
    log = tmp_path / "fake-nano-7.log"
    log.write_text(LOG)
    return FakeEngineRegistry(log)


@pytest.fixture
def engine_pool(registry: FakeEngineRegistry) -> Iterator[SessionPool]:
    with SessionPool(registry) as pool:  # type: ignore[arg-type]
        yield pool


@pytest.fixture
def served_engine(registry: FakeEngineRegistry, tabs: str | None) -> Iterator[Served]:
    """The page over fake models, one of which runs on vLLM too."""
    yield from serve(SessionPool(registry), tabs)  # type: ignore[arg-type]


def states(pool: SessionPool, cells: list[str], recordings: list[Path], **settings: Any) -> list[RunState]:
    paths = [str(path) for path in recordings]
    job = prepare(pool.registry, paths, cells, "", "basic", {}, None, {"vllm": settings})
    return list(run(pool, job, threading.Event()))


def choose_only(page: Any, label: str) -> None:
    """Ticks one box of the chooser, and no other."""
    page.get_by_label(label).check()
    for value in page.locator("#models input:checked").evaluate_all("boxes => boxes.map((box) => box.ariaLabel)"):
        if value != label:
            page.get_by_label(value).uncheck()


PREPARED = "workbench.prepared.process"


def engine_processes() -> list[str]:
    """Returns the command lines of the session and vLLM processes that this process started.

    A process that is forked from a prepared one may have its parent's command line.
    """
    commands = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            words = " ".join(process.cmdline())
            parent_command = " ".join(psutil.Process(process.ppid()).cmdline())
            own = "workbench.isolation.worker" in words or "VLLM" in words
            if own or (PREPARED in words and PREPARED in parent_command):
                commands.append(words)
    return commands


# Settings.


def test_only_changed_engine_settings_are_passed_with_their_types() -> None:
    with gr.Blocks():
        inputs = make_settings()
    assert [spec.name for spec in SETTINGS] == ["dtype", "max_length", "kv_gigabytes", "tensor_parallel", "eager"]
    assert read_settings([each.value for each in inputs]) == {}  # type: ignore[attr-defined]
    settings = read_settings(["bfloat16", " 512", "2", "2", "off"])
    assert settings == {
        "dtype": "bfloat16",
        "max_length": 512,
        "kv_gigabytes": 2.0,
        "tensor_parallel": 2,
        "eager": False,
    }
    assert [type(each) for each in settings.values()] == [str, int, float, int, bool]
    assert check_settings({"eager": True, "max_length": 512}) == {"eager": True, "max_length": 512}


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (["", "0", "", "", ""], "^Max length is 0; expected 1 to 1048576$"),
        (["", "1.5", "", "", ""], r"^Max length is '1\.5'; expected a whole number$"),
        (["", "", "-1", "", ""], r"^KV gigabytes is -1\.0; expected 0\.001 to 10000$"),
        (["", "", "nan", "", ""], "^KV gigabytes is nan; expected a finite number$"),
        (["", " ", "", "two", ""], "^Tensor parallel is 'two'; expected a whole number$"),
        (["", None, "", "", "maybe"], "^Eager is 'maybe'; expected true or false$"),
        (["int8", "", "", "", ""], "^Dtype is 'int8'; expected one of auto, float32, bfloat16, float16$"),
    ],
)
def test_invalid_engine_setting_raises_one_line_error(values: list[Any], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        read_settings(values)


def test_scripts_can_set_only_the_settings_of_the_page() -> None:
    with pytest.raises(BadInput, match=r"^an engine has no setting 'threads' here; it has dtype, max_length, kv_gig"):
        check_settings({"threads": 64})
    with pytest.raises(BadInput, match=r"^max_length is True; expected a whole number$"):
        check_settings({"max_length": True})


# Choosing.


def test_the_chooser_offers_engines_beside_the_other_runtimes(engine_pool: SessionPool) -> None:
    value = chooser_value(offers(engine_pool.registry))
    models = {model["name"]: model for model in value["models"]}
    assert [each["title"] for each in models["Fake Nano"]["runtimes"]] == ["PyTorch", "vLLM"]
    [box] = models["Fake Nano"]["runtimes"][1]["boxes"]
    assert (box["value"], box["title"], box["label"], box["dtype"]) == (NANO, "Fake Nano · vLLM", "", "bfloat16")
    assert "a minute to start" in box["hint"] and "dtype bfloat16, max length 4096" in box["hint"]
    assert models["Fake on a server"]["note"] == "on http://gpu.example:8000"
    assert "sent to that server" in models["Fake on a server"]["runtimes"][0]["boxes"][0]["hint"]
    assert FAR not in value["chosen"], "no recording leaves this machine unless the user chooses the server"


# Running.


def test_an_engine_gets_the_settings_and_all_recordings_at_once(
    engine_pool: SessionPool, registry: FakeEngineRegistry, tmp_path: Path
) -> None:
    registry.gate.clear()
    recordings = [tone(tmp_path / f"{name}.wav") for name in "abcd"]
    run_states: list[RunState] = []
    running = threading.Thread(
        target=lambda: run_states.extend(states(engine_pool, [NANO], recordings, max_length=512))
    )
    running.start()
    until_opened = registry.starting.wait(60)
    [engine] = _engines(registry)
    together = engine.wait_for(4)
    registry.gate.set()
    running.join(60)
    assert until_opened and together and engine.settings == {"max_length": 512}
    last = run_states[-1]
    assert last.finished and [row.status for row in last.rows] == ["done"] * 4
    assert [Path(row.path).name for row in last.rows] == ["a.wav", "b.wav", "c.wav", "d.wav"]


def _engines(registry: FakeEngineRegistry) -> list[Any]:
    for _ in range(6000):
        if registry.engines:
            break
        threading.Event().wait(0.01)
    return list(registry.engines.values())


def test_other_runtimes_and_remote_servers_get_no_engine_settings(
    engine_pool: SessionPool, registry: FakeEngineRegistry, tmp_path: Path
) -> None:
    recordings = [tone(tmp_path / f"{name}.wav") for name in "abc"]
    last = states(engine_pool, ["fake/nano|pytorch", NANO, FAR], recordings, eager=False)[-1]
    assert [row.status for row in last.rows] == ["done"] * 9
    assert registry.engines.keys() == {"fake/nano {'eager': False}", "fake/far {}"}


def test_different_settings_open_different_sessions(engine_pool: SessionPool) -> None:
    first = engine_pool.session("fake/nano", "vllm", on_progress=lambda *_: None, settings={"max_length": 512})
    repeated = engine_pool.session("fake/nano", "vllm", settings={"max_length": 512})
    different = engine_pool.session("fake/nano", "vllm", on_progress=lambda *_: None, settings={"max_length": 256})
    assert first is repeated and first is not different


def test_engine_start_failure_fails_its_rows_with_the_reason(
    engine_pool: SessionPool, registry: FakeEngineRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise BadInput("the engine needs 9 GB for one request; lower max_length")

    monkeypatch.setattr(registry, "open", refuse)
    last = states(engine_pool, [NANO], [tone(tmp_path / "a.wav"), tone(tmp_path / "b.wav")])[-1]
    assert [(row.status, row.error[:27]) for row in last.rows] == [("failed", "the engine needs 9 GB for o")] * 2


# In memory.


def test_loaded_engine_shows_start_time_memory_and_log(engine_pool: SessionPool, registry: FakeEngineRegistry) -> None:
    engine_pool.session("fake/nano", "vllm", on_progress=lambda *_: None)
    html = residents_html(engine_pool)
    assert "41.5 s" in html and "3.2 GB" in html and "idle for 30 s" in html and "vLLM" in html
    assert f'data-event="log" data-name="{registry.log.name}"' in html
    log = log_html(engine_pool, registry.log.name)
    assert "&lt;b&gt;ready&lt;/b&gt;" in log and str(registry.log) in log
    registry.log.write_text("x" * 100_000 + "the end")
    assert len(log_html(engine_pool, registry.log.name)) < 10_000 and "the end" in log_html(
        engine_pool, registry.log.name
    )
    registry.log.unlink()
    assert "cannot be read: No such file" in log_html(engine_pool, registry.log.name)
    assert log_html(engine_pool, "../../etc/passwd") == "", "only logs of loaded engines are shown"


# The page.


@pytest.mark.browser
def test_engine_settings_are_hidden_without_vllm_models(served: Served, page: Any) -> None:
    open_page(page, served)
    expect(page.locator("#models input:checked")).to_have_count(2)
    expect(page.locator("#engine")).to_be_hidden()


@pytest.mark.browser
def test_engine_starts_with_progress_transcribes_and_is_unloaded(
    served_engine: Served, page: Any, tmp_path: Path
) -> None:
    registry = served_engine.registry
    page.set_viewport_size({"width": 390, "height": 844})
    open_page(page, served_engine)
    choose_only(page, "Fake Nano · vLLM")
    expect(page.locator("#engine")).to_be_visible()
    add_files(page, tone(tmp_path / "a.wav"))
    unfold(page, "vLLM engine")
    page.locator("#setting-max_length input").fill("0")
    page.locator("#run").click()
    expect(page.locator(".toast-body")).to_contain_text("Max length is 0; expected 1 to 1048576")
    expect(page.locator("#setting-max_length input")).to_have_value("0")
    page.locator("#setting-max_length input").fill("512")
    registry.started.clear()
    page.locator("#run").click()
    expect(page.locator(".result.running")).to_contain_text("loading the weights, 50%")
    assert fits_a_phone_and_a_desk(page)
    registry.started.set()
    expect(page.locator(".result.done")).to_have_count(1)
    expect(page.locator(".result .runtime")).to_have_text("vLLM")
    assert list(registry.engines) == ["fake/nano {'max_length': 512}"]

    page.get_by_role("tab", name="Models").click()
    row = page.locator("#residents tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("41.5 s")
    row.get_by_role("button", name="Log").click()
    expect(page.locator("#engine-log pre")).to_contain_text("<b>ready</b>")
    registry.log.write_text("INFO one more line\n")
    expect(page.locator("#engine-log pre")).to_contain_text("one more line")  # it is kept up to date
    assert fits_a_phone_and_a_desk(page)
    page.locator("#engine-log").get_by_role("button", name="Hide").click()
    expect(page.locator("#engine-log pre")).to_have_count(0)
    row.get_by_role("button", name="Unload").click()
    until(page, lambda: registry.unloaded == ["fake/nano"])
    expect(page.locator("#residents")).to_contain_text("No model is loaded")


@pytest.mark.browser
def test_engine_start_can_be_cancelled_and_repeated(served_engine: Served, page: Any, tmp_path: Path) -> None:
    registry = served_engine.registry
    registry.started.clear()
    open_page(page, served_engine)
    choose_only(page, "Fake Nano · vLLM")
    add_files(page, tone(tmp_path / "a.wav"))
    page.locator("#run").click()
    expect(page.locator(".result.running")).to_contain_text("loading the weights")
    page.locator("#cancel").click()
    expect(page.locator(".result.stopped")).to_have_count(1)
    assert registry.stopped.wait(60)
    registry.started.set()
    page.locator("#run").click()
    expect(page.locator(".result.done")).to_have_count(1)


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_demo_model_starts_transcribes_and_unloads_on_vllm(demos: Served, page: Any) -> None:
    needs(demos.registry, "vllm", "demo/funasr-nano")
    open_page(page, demos)
    choose_only(page, "Demo Fun-ASR-Nano: spoken digits · vLLM")
    unfold(page, "vLLM engine")
    page.locator("#setting-kv_gigabytes input").fill("0.25")
    page.locator("button.sample").first.click()
    expect(page.locator("#recordings")).to_contain_text("three_seven_one")
    page.locator("#run").click()
    expect(page.locator(".result.running")).to_contain_text(re.compile(r", \d+%"), timeout=START)
    expect(page.locator(".result.done")).to_have_count(1, timeout=START)
    expect(page.locator(".result .rate")).to_have_text("WER 0.0 %")
    page.get_by_role("tab", name="Models").click()
    row = page.locator("#residents tbody tr")
    expect(row).to_contain_text("vLLM")
    expect(row.locator("td").nth(0)).to_have_text(re.compile(r"^(\d{3} M|\d\.\d G)B$"))
    expect(row.locator("td").nth(1)).to_have_text(re.compile(r"^(\d+ min )?\d[\d.]* s$"))
    row.get_by_role("button", name="Log").click()
    expect(page.locator("#engine-log pre")).to_contain_text("INFO")
    assert engine_processes()
    row.get_by_role("button", name="Unload").click()
    expect(page.locator("#residents")).to_contain_text("No model is loaded", timeout=START)
    assert engine_processes() == []


def test_transcribe_endpoint_accepts_engine_settings(served_engine: Served, tmp_path: Path) -> None:
    client_module = pytest.importorskip("gradio_client")
    client = client_module.Client(served_engine.url, verbose=False)
    audio = [client_module.handle_file(str(tone(tmp_path / "a.wav")))]
    arguments = (audio, [NANO], "pytorch", "{}", "", "basic")
    [result] = client.predict(*arguments, '{"max_length": 256}', api_name="/transcribe")
    assert (result["runtime"], result["text"]) == ("vllm", "three seven one")
    client.predict(*arguments, api_name="/transcribe")  # calls without engine settings still work
    assert list(served_engine.registry.engines) == ["fake/nano {'max_length': 256}", "fake/nano {}"]
    for engine, sentence in (("[]", "engine is"), ("{", "not JSON"), ('{"device": "x"}', "no setting 'device'")):
        with pytest.raises(client_module.exceptions.AppError, match=sentence):
            client.predict(*arguments, engine, api_name="/transcribe")
