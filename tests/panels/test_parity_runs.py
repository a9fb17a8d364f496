"""Parity runs without a browser: offered candidates, request checks, progress, cancellation and stored runs."""

from __future__ import annotations

import base64
import re
import shutil
import sys
import threading
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
from hypothesis import given
from hypothesis import strategies as st

from panels.parity.endpoint import compared
from panels.parity.events import ParityActions, first_look, text_field
from panels.parity.request import UncheckedRequest, check_request, source_of
from panels.parity.run import LastRuns, Step, compute, follow
from panels.parity.several import inputs_of, uploaded_inputs
from panels.parity.sides import check_uploads, lines_of, offered, traceable, uploads_by_name, usual_sides
from panels.parity.view import precision_choices, result_html, several_html, sides_html, stage_detail_html, status_html
from tests.support.fake_lab import dies, waits
from tests.support.fake_parity import FakeParityRegistry
from tests.support.networks import META, computed
from workbench.core.errors import BadInput, Refused, SessionDied
from workbench.families import FAMILIES
from workbench.parity_lab import Input, ParityRuns, page
from workbench.parity_lab.judgement.clean_spread import check_precision
from workbench.serving.admission.guard import Guard
from workbench.serving.sessions import SessionPool
from workbench.trace.read import StoredTrace
from workbench.trace.trace import Trace


@pytest.fixture
def registry() -> Any:
    return FakeParityRegistry()


def ask(registry: Any, *candidates: str, source: str | None = "a.wav", **changes: Any) -> Any:
    fields: dict[str, Any] = {"model": "fake/sense", "reference": "pytorch:f32"} | changes
    return check_request(registry, UncheckedRequest(source=source, candidates=candidates, **fields))


# Offered models and types.


def test_traceable_lists_all_models_with_stages(registry: Any) -> None:
    assert [card.id for card in traceable(registry)] == [
        "fake/sense",
        "fake/para",
        "fake/hub",
        "fake/nano",
        "fake/text",
    ]


def test_offered_types_are_those_that_the_runtime_supports(registry: Any) -> None:
    def sides(model: str) -> list[list[str]]:
        return [[kind.side for kind in each.kinds] for each in offered(registry, registry.card(model))]

    gguf = ["gguf:f32", "gguf:f16", "gguf:q8_0", "gguf:q4_0"]
    assert sides("fake/sense") == [["pytorch:f32", "pytorch:f64"], gguf, []]
    assert sides("fake/text")[0] == ["pytorch:f32", "pytorch:f64", "pytorch:bf16", "pytorch:f16"]
    assert offered(registry, registry.card("fake/sense"))[2].reason == "Fake SenseVoice has nothing for vLLM to serve"
    assert usual_sides(registry, registry.card("fake/sense")) == ("pytorch:f32", "gguf:f32")


def test_candidates_are_buttons_and_unavailable_runtimes_give_the_reason(registry: Any) -> None:
    offers = offered(registry, registry.card("fake/sense"))
    html = sides_html(offers, ['<b>"dump.npz'], ["gguf:q8_0+cmvn=off", '<b>"dump.npz'])
    buttons = re.findall(r'aria-pressed="(\w+)" data-side="([^"]*)"', html)
    assert [side for state, side in buttons if state == "true"] == ["gguf:q8_0", "&lt;b&gt;&#34;dump.npz"]
    assert len(buttons) == 7 and "nothing for vLLM to serve" in html and "<b>" not in html


@given(st.lists(st.text("ab.n", min_size=1, max_size=4)))
def test_uploaded_files_get_unique_names(names: list[str]) -> None:
    paths = [f"/tmp/{number}/{name}" for number, name in enumerate(names)]
    uploads = uploads_by_name(paths)
    assert list(uploads.values()) == paths


# Requests.


@pytest.mark.parametrize(
    ("candidates", "changes", "sentence"),
    [
        ([], {}, "no candidate is chosen; press at least one, or upload a file"),
        ([], {"uploads": {"port.npz": "x"}}, "no candidate is chosen; press or name one, such as port.npz"),
        (["gguf"], {"reference": " "}, "no reference is named"),
        (
            ["gguf"],
            {"source": None},
            "there is no recording for pytorch:f32; add a file, record one, or click a sample",
        ),
        (["gguf"], {"model": "fake/text", "source": ""}, "there is no prompt for pytorch:f32; write one"),
        (["gguf"], {"model": "/etc"}, "there is no model '/etc' to compare"),
        (["gguf"], {"model": "fake/vad"}, "there is no model 'fake/vad' to compare"),
        (["/etc/passwd"], {}, "neither a runtime nor an uploaded file"),
        (["gguf+vad=/etc"], {}, "is not one of auto, silero, none, fake/vad"),
        (["gguf:f32+dtype=f16"], {}, "not understood"),
        (["gguf"], {"options": {"vad": "/etc"}}, "option vad is '/etc'"),
        (["gguf"], {"options": {"loudness": 1}}, "no option 'loudness'"),
        (["gguf"], {"preset": "f33"}, "no preset 'f33'"),
        (["gguf"], {"rules": ["peak"]}, "'peak' is not understood"),
        (["gguf"], {"stages": ","}, "pattern is empty"),
        (["gguf"], {"mapping": "nowhere.toml"}, "nowhere.toml"),
        (["gguf"], {"model": "fake/text", "embeddings": ["nowhere.npy"]}, "nowhere.npy"),
    ],
)
def test_invalid_request_raises_one_line_error_before_any_trace(
    registry: Any, candidates: list[str], changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(BadInput, match=re.escape(sentence)) as caught:
        ask(registry, *candidates, **changes)
    assert "\n" not in str(caught.value) and registry.traced == []


def test_traces_alone_need_no_input(registry: Any, tmp_path: Path) -> None:
    paths = {name: str(Trace(computed(), META).save(tmp_path / name)) for name in ("a.safetensors", "b.safetensors")}
    request = ask(registry, "b.safetensors", reference="a.safetensors", uploads=paths, source=None)
    with compute(registry, request) as run:
        assert [each.status for each in run.outcomes] == ["within"] and run.source == "traces only"
        assert run.outcomes[0].name == "b.safetensors" and registry.traced == []


def test_candidates_are_read_one_per_line_without_duplicates() -> None:
    assert lines_of(" gguf \n\npytorch:f64\ngguf\n") == ["gguf", "pytorch:f64"]
    assert lines_of(None) == []


# Runs.


def test_followed_run_reports_progress_and_ends_with_the_result(registry: Any) -> None:
    steps = list(follow(registry, ask(registry, "gguf:f32", "vllm"), threading.Event()))
    shares = [step.share for step in steps]
    assert shares == sorted(shares) and shares[-1] == 1.0 and not any(step.run for step in steps[:-1])
    run = steps[-1].run
    assert run is not None and [each.name for each in run.outcomes] == ["gguf:f32", "vllm"]
    assert "Compared in" in status_html(steps[-1]) and "2 within tolerance" in status_html(steps[-1])
    html = result_html(run)
    assert 'data-stage="encoder.layers.0"' in html and html.count("section class") == 2
    run.close()


def test_stopped_run_is_reported_as_stopped_after_it_ends(registry: Any) -> None:
    registry.acts["gguf"] = waits
    stop = threading.Event()
    steps = []
    for step in follow(registry, ask(registry, "gguf"), stop):
        steps.append(step)
        if "tracing gguf" in step.activity:
            stop.set()
    assert steps[-1].stopped and steps[-1].run is None and registry.open_now == [] and registry.cancelled == 1
    assert "Stopped after" in status_html(steps[-1])
    assert "stopping" in status_html(Step(0.5, "tracing", 1.0, stopping=True))


def test_run_is_stopped_when_its_follower_closes(registry: Any) -> None:
    registry.acts["gguf"] = waits
    following = follow(registry, ask(registry, "gguf"), threading.Event())
    for step in following:
        if "tracing gguf" in step.activity:
            break
    session = registry.open_now[0]
    following.close()
    assert session.released.wait(60)


def test_error_in_the_reference_trace_is_raised(registry: Any) -> None:
    registry.acts["pytorch"] = dies
    with pytest.raises(SessionDied, match="ended"):
        list(follow(registry, ask(registry, "gguf"), threading.Event()))


def test_first_opened_stage_is_the_first_wrong_stage(registry: Any) -> None:
    registry.faults["gguf"] = {"encoder.layers.3": lambda x: 1.02 * x}
    with compute(registry, ask(registry, "pytorch:f64", "gguf")) as run:
        assert first_look(run) == (1, "encoder.layers.3")
    with compute(registry, ask(registry, "pytorch:f64")) as run:
        place, stage = first_look(run) or (None, "")
        assert place == 0 and stage in run.reference.trace


def test_isolated_comparison_of_an_uploaded_trace_uses_its_own_stage_inputs(registry: Any, tmp_path: Path) -> None:
    all_stages = computed(faults={"encoder.layers.3": lambda x: 1.02 * x})
    dump = Trace({stage: array for stage, array in all_stages.items() if stage.startswith("encoder.")}, {})
    traces = {"port.npz": str(dump.save(tmp_path / "port.safetensors"))}
    (tmp_path / "names.toml").write_text('[meta]\ndtype = "float32"\n', encoding="utf-8")
    request = ask(registry, "port.npz", uploads=traces, isolated=True, mapping=str(tmp_path / "names.toml"))
    with compute(registry, request) as run:
        assert first_look(run) == (0, "encoder.layers.3")
        assert run.outcomes[0].verdict and run.outcomes[0].verdict.faulty_stages == ("encoder.layers.3",)
        assert "every stage of the reference is computed from the candidate" in result_html(run)


@pytest.mark.parametrize("isolated", [False, True])
def test_public_server_compares_traces_in_another_process_with_equal_results(
    registry: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolated: bool
) -> None:
    registry.faults["gguf"] = {"encoder.layers.1": lambda x: 1.01 * x}
    stages = computed(faults={"encoder.layers.3": lambda x: 1.02 * x})
    traces = {"port.npz": str(Trace(stages, {}).save(tmp_path / "port.safetensors"))}
    (tmp_path / "names.toml").write_text('[meta]\nprogram = "a port"\n', encoding="utf-8")
    request = ask(registry, "gguf", "port.npz", uploads=traces, isolated=isolated, mapping=str(tmp_path / "names.toml"))
    with compute(registry, request) as run:
        expected = json_without_times(run)

    def refuse(*_: Any) -> None:
        raise AssertionError("a trace is read in the process of the server")

    monkeypatch.setattr(sys.modules["workbench.compare.compare"], "compare_stage", refuse)  # not the function
    monkeypatch.setattr("workbench.compare.precision.half_precision_of_values", refuse)
    if not isolated:  # sessions of this registry read their stage inputs in this process
        monkeypatch.setattr(StoredTrace, "__getitem__", refuse)
    *_, last = follow(registry, request, threading.Event(), Guard("public"))
    assert last.run is not None and json_without_times(last.run) == expected and '"status": "beyond"' in expected
    last.run.close()


def test_public_server_renders_stages_and_reports_without_reading_traces(
    registry: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.faults["gguf"] = {"encoder.layers.1": lambda x: 1.01 * x}
    user = gr.Request(session_hash="a visitor")
    with SessionPool(registry, guard=Guard("public")) as pool, compute(registry, ask(registry, "gguf")) as run:
        actions = ParityActions(pool, [])
        actions.last_runs.put("a visitor", run)
        expected = stage_detail_html(run, 0, "encoder.layers.1"), page(run)

        def refuse(*_: Any) -> None:
            raise AssertionError("a trace is read in the process of the server")

        monkeypatch.setattr(StoredTrace, "__getitem__", refuse)
        pressed = gr.EventData(None, {"stage": "encoder.layers.1", "side": "0"})
        assert actions.look_at_first(None, user) == (expected[0], (0, "encoder.layers.1"))
        assert actions.look(None, pressed, user) == (expected[0], (0, "encoder.layers.1"))
        assert base64.b64decode(actions.save_page(user)["base64"]).decode() == expected[1]
        shutil.rmtree(run.folder)
        with pytest.raises(BadInput, match="not kept any more; run it again"):
            actions.look(None, pressed, user)


def json_without_times(run: Any) -> str:
    """The JSON of a run without its durations."""
    return re.sub(r'"(load_|trace_)?seconds": [0-9.e-]+', "", run.to_json(profiles=True))


def test_store_retains_the_last_run_of_each_user_up_to_a_limit(registry: Any) -> None:
    last_runs = LastRuns(limit=2)
    runs = [compute(registry, ask(registry, "gguf")) for _ in range(4)]
    last_runs.put("a", runs[0])
    last_runs.put("a", runs[1])
    assert last_runs.of("a") is runs[1] and [run.folder.is_dir() for run in runs[:2]] == [False, True]
    last_runs.put("b", runs[2])
    assert last_runs.of("a") is runs[1]  # the run that was used last
    last_runs.put("c", runs[3])
    assert [run.folder.is_dir() for run in runs] == [False, True, False, True]
    with pytest.raises(BadInput, match="run it again"):
        last_runs.of("b")
    last_runs.drop("b")
    last_runs.close()
    assert not any(run.folder.is_dir() for run in runs)


def test_speech_language_model_input_is_text_recording_or_both() -> None:
    family = FAMILIES["speechlm"]
    audio_part = {"type": "audio", "audio": "a.wav"}
    text_part = {"type": "text", "text": "x.wav"}  # a text by a user of the page, not a file of this machine
    assert source_of(family, None, " ") is None
    assert source_of(family, "a.wav", "") == [{"role": "user", "content": [audio_part]}]
    assert source_of(family, None, " x.wav ") == [{"role": "user", "content": [text_part]}]
    assert source_of(family, "a.wav", "x.wav") == [{"role": "user", "content": [audio_part, text_part]}]
    assert text_field(family)["label"] == "Text" and text_field(FAMILIES["causal_lm"])["label"] == "Prompt"
    assert source_of(FAMILIES["sensevoice"], "a.wav", "hm") == "a.wav"
    assert source_of(FAMILIES["causal_lm"], "a.wav", " hm ") == "hm"


# Several inputs.


def test_endpoint_returns_one_verdict_over_several_inputs(registry: Any) -> None:
    sounds = ["/uploads/1/a.wav", "/uploads/2/a.wav"]
    inputs = inputs_of(sounds, FAMILIES["sensevoice"])
    result = compared(registry, UncheckedRequest("fake/sense", None, "pytorch:f32", ["gguf:f32"], inputs=inputs))
    assert result["inputs"] == ["a-1", "a-2"] and result["candidates"][0]["status"] == "within"
    assert result["candidates"][0]["consistency"]["inputs"] == 2
    assert [each["status"] for each in result["candidates"][0]["inputs"]] == ["within"] * 2
    assert registry.open_now == []


def test_followed_run_over_several_uploaded_inputs_ends_with_one_verdict(registry: Any) -> None:
    registry.faults["gguf"] = {"encoder.layers.3": lambda x: 1.02 * x}
    inputs = uploaded_inputs(["/uploads/1/a.wav", "/uploads/2/<b>.wav"], FAMILIES["sensevoice"])
    request = ask(registry, "gguf:f32", "pytorch:f64", source=None, inputs=inputs)
    *steps, last = follow(registry, request, threading.Event())
    assert any(step.activity.startswith("<b>-2: ") for step in steps)
    run = last.run
    assert isinstance(run, ParityRuns) and run.inputs == ("a-1", "<b>-2")
    assert [(each.status, each.faulty_stage) for each in run.candidates] == [
        ("beyond", "encoder.layers.3"),
        ("within", None),
    ]
    status = status_html(last)
    assert "over 2 inputs: 1 within tolerance, 1 beyond" in status
    html = several_html(run)
    assert html.count('<section class="verdict') == 2 and "&lt;b&gt;-2" in html and "<b>-2" not in html
    last_runs = LastRuns()
    last_runs.put("a", run)
    last_runs.close()  # there is nothing to remove


def test_uploaded_list_files_give_prompts_and_are_refused_for_recordings(tmp_path: Path) -> None:
    list_file = tmp_path / "prompts.txt"
    list_file.write_text("one\n\ntwo\n")
    inputs = uploaded_inputs([str(list_file)], FAMILIES["causal_lm"])
    assert [(each.name, each.source) for each in inputs] == [("text-1", "one"), ("text-2", "two")]
    assert uploaded_inputs([], FAMILIES["causal_lm"]) == uploaded_inputs([], FAMILIES["sensevoice"]) == []
    with pytest.raises(BadInput, match="is a list; upload the recordings themselves"):
        uploaded_inputs([str(list_file)], FAMILIES["sensevoice"])
    with pytest.raises(BadInput, match="with one prompt per line"):
        uploaded_inputs(["a.wav"], FAMILIES["causal_lm"])


@pytest.mark.parametrize(
    ("model", "changes", "sentence"),
    [
        ("fake/sense", {"uploads": {"a.npz": "a.npz"}, "candidates": ["a.npz"]}, "a trace file belongs to one input"),
        ("fake/text", {"embeddings": ["a.npy"]}, "embeddings belong to one prompt"),
        ("fake/sense", {"precision": "/etc/model.gguf"}, "expected a type such as q8_0"),
        ("fake/sense", {"precision": "f33"}, "precision is 'f33'"),
    ],
)
def test_invalid_several_input_or_precision_requests_are_refused(
    registry: Any, model: str, changes: Any, sentence: str
) -> None:
    inputs = [Input("a", "a"), Input("b", "b")]
    candidates = changes.pop("candidates", ["gguf:f32"])
    with pytest.raises(BadInput, match=re.escape(sentence)):
        ask(registry, *candidates, model=model, inputs=inputs, **changes)
    assert registry.traced == []


def test_given_precision_is_used_in_the_verdict_on_a_trace(registry: Any, tmp_path: Path) -> None:
    meta = {name: value for name, value in META.items() if name not in ("dtype", "runtime", "quantization")}
    path = str(Trace(computed(), meta).save(tmp_path / "port.safetensors"))
    request = ask(registry, "port.safetensors", uploads={"port.safetensors": path}, precision="bf16")
    assert request.options.precision == "bfloat16"
    with compute(registry, request) as run:
        assert "judged as bfloat16" in run.outcomes[0].precision
    assert {value for _, value in precision_choices()} >= {"auto", "float32", "bfloat16", "float16", "q8_0"}
    for _, value in precision_choices():
        check_precision(value)


def test_uploaded_gguf_file_is_accepted_as_candidate_or_trace_precision(registry: Any, tmp_path: Path) -> None:
    uploads = {name: str(tmp_path / name) for name in ("port.gguf", "port.npz")}
    Path(uploads["port.gguf"]).write_bytes(b"GGUF")
    request = ask(registry, "port.gguf", "port.npz", uploads=uploads, precision="port.gguf")
    [file, trace] = request.candidates
    assert (file.name, file.runtime, file.file) == ("port.gguf", "gguf", Path(uploads["port.gguf"]))
    assert trace.path == Path(uploads["port.npz"]) and trace.file is None
    assert request.options.precision == uploads["port.gguf"]
    assert ("port.gguf", "port.gguf") in precision_choices(uploads)
    assert uploads_by_name(["/a/port.gguf", "/b/port.gguf"]) == {
        "port.gguf": "/a/port.gguf",
        "port (2).gguf": "/b/port.gguf",
    }
    for changes, sentence in [
        ({"reference": "port.gguf"}, "the reference port.gguf is a GGUF file; make it a candidate"),
        ({"precision": "other.gguf"}, "or an uploaded GGUF file"),
        ({"precision": "/etc/other.gguf"}, "or an uploaded GGUF file"),
    ]:
        with pytest.raises(BadInput, match=re.escape(sentence)):
            ask(registry, "port.npz", uploads=uploads, **changes)


def test_public_page_refuses_uploaded_gguf_files() -> None:
    check_uploads(Guard("local"), ["/uploads/1/port.gguf"])
    check_uploads(Guard("public"), ["/uploads/1/port.npz"])
    for name in ("port.gguf", "PORT.GGUF"):
        with pytest.raises(Refused, match="running an uploaded GGUF file is for the owner of this page"):
            check_uploads(Guard("public"), ["/uploads/1/port.npz", f"/uploads/1/{name}"])


def test_prompt_equal_to_a_file_path_is_not_read_as_a_file(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("secret")
    [prompt] = inputs_of([str(tmp_path / "list.txt")], FAMILIES["causal_lm"])
    assert prompt.source == str(tmp_path / "list.txt")
