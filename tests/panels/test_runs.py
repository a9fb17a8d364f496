"""Runs of models over recordings: row states after every step, stops, options, request checks and loaded sessions."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from panels.running.choices import ModelOnRuntime, chosen_offers, offers, vad_choices
from panels.transcribe.job import RunState, prepare
from panels.transcribe.run import idle_first, run
from panels.widgets.model_chooser import chooser_value, chosen_in
from tests.support.fake_panels import broken, tone
from tests.support.processes import Background
from workbench.core.errors import BadInput, Cancelled
from workbench.core.progress import report

BOTH = ["fake/sense|pytorch", "fake/para|pytorch"]


def job(pool: Any, recordings: list[Path], cells: list[str] = BOTH, reference: str = "", **options: Any) -> Any:
    return prepare(pool.registry, [str(each) for each in recordings], cells, reference, "basic", options)


def last(pool: Any, prepared: Any) -> RunState:
    *_, state = run(pool, prepared, threading.Event())
    return state


def test_every_model_runs_on_every_recording_in_order_and_loads_once(pool: Any, tmp_path: Path) -> None:
    first, second = tone(tmp_path / "a.wav"), tone(tmp_path / "b.wav")
    state = last(pool, job(pool, [first, second], reference="three seven one\nthree"))
    assert [(row.recording, row.cell.model, row.status) for row in state.rows] == [
        ("a.wav", "fake/sense", "done"),
        ("a.wav", "fake/para", "done"),
        ("b.wav", "fake/sense", "done"),
        ("b.wav", "fake/para", "done"),
    ]
    summaries = [row.score.summary for row in state.rows if row.score]
    assert summaries == [
        "WER 33.3 %",
        "WER 0.0 %",
        "WER 200.0 %",
        "WER 200.0 %",
    ]
    assert state.finished and not state.stopped and state.fraction == 1.0
    assert pool.registry.opened == ["fake/sense", "fake/para"], "each model loads once"


def test_rows_start_as_waiting_and_progress_grows_to_one(pool: Any, tmp_path: Path) -> None:
    states = list(run(pool, job(pool, [tone(tmp_path / "a.wav")]), threading.Event()))
    assert [row.status for row in states[0].rows] == ["waiting", "waiting"]
    fractions = [state.fraction for state in states]
    assert fractions == sorted(fractions) and fractions[-1] == 1.0


def test_same_recording_given_twice_makes_two_rows(pool: Any, tmp_path: Path) -> None:
    path = tone(tmp_path / "a.wav")
    state = last(pool, job(pool, [path, path], BOTH[:1], "three eleven one\nthree"))
    assert [row.score.wer for row in state.rows if row.score] == [0.0, 2.0]
    assert len({row.key for row in state.rows}) == 2


def test_a_broken_recording_fails_its_own_row(pool: Any, tmp_path: Path) -> None:
    state = last(pool, job(pool, [broken(tmp_path / "text.wav"), tone(tmp_path / "a.wav")], BOTH[:1]))
    bad, good = state.rows
    assert bad.status == "failed" and "text.wav" in bad.error and "\n" not in bad.error
    assert good.status == "done" and good.transcript and good.transcript.text == "three eleven one"


def test_file_without_sound_is_refused_before_a_model_is_loaded(pool: Any, tmp_path: Path) -> None:
    state = last(pool, job(pool, [broken(tmp_path / "text.wav")], BOTH))
    assert [row.error.split(":")[0] for row in state.rows] == ["text.wav is not a sound file that can be read"] * 2
    assert state.finished and pool.registry.opened == []


def test_a_model_that_cannot_be_loaded_fails_its_own_rows(pool: Any, tmp_path: Path) -> None:
    state = last(pool, job(pool, [tone(tmp_path / "a.wav"), tone(tmp_path / "b.wav")], ["fake/hub|pytorch", BOTH[1]]))
    assert [row.status for row in state.rows] == ["failed", "done", "failed", "done"]
    assert state.rows[0].error == state.rows[2].error == "fake/hub is not on this machine and the hub cannot be reached"


def test_an_unforeseen_error_shows_no_traceback(pool: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def stream(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("secret detail")

    pool.registry.sessions["fake/sense"].stream = stream
    state = last(pool, job(pool, [tone(tmp_path / "a.wav")]))
    assert [row.status for row in state.rows] == ["failed", "done"]
    assert "ZeroDivisionError" in state.rows[0].error and "secret" not in state.rows[0].error
    assert "secret detail" in caplog.text


def test_a_stop_keeps_finished_rows_and_stops_the_model(pool: Any, tmp_path: Path) -> None:
    second, stop = pool.registry.sessions["fake/para"], threading.Event()
    second.gate = threading.Event()  # stays shut: the second model hangs after its first word
    states = []
    for state in run(pool, job(pool, [tone(tmp_path / "a.wav")], BOTH), stop):
        states.append(state)
        if state.rows[0].status == "done" and state.rows[1].progress and state.rows[1].progress.total:
            stop.set()
    assert [row.status for row in states[-1].rows] == ["done", "stopped"]
    assert states[-1].finished and states[-1].stopped and states[-1].rows[0].transcript
    second.gate.set()
    assert second.abandoned.wait(60), "the model continued"


def test_idle_model_runs_first_while_another_model_is_occupied(pool: Any, tmp_path: Path) -> None:
    busy = pool.registry.sessions["fake/sense"]
    pool.session("fake/sense", "pytorch")
    busy.occupied, busy.gate = True, threading.Event()
    order = []
    recordings = [tone(tmp_path / "a.wav"), tone(tmp_path / "b.wav")]
    for state in run(pool, job(pool, recordings), threading.Event()):
        finished = [(row.recording, row.cell.model) for row in state.rows if row.status == "done"]
        order += [each for each in finished if each not in order]
        if len(order) == 2:
            busy.gate.set()
    assert [model for _, model in order] == ["fake/para"] * 2 + ["fake/sense"] * 2


def test_model_that_is_being_loaded_counts_as_occupied(gguf_pool: Any) -> None:
    registry = gguf_pool.registry
    registry.conversion.clear()
    opening = Background(lambda: gguf_pool.session("fake/sense", "gguf", "q8_0", lambda *_: None))
    assert registry.converting.wait(60)
    assert gguf_pool.occupied("fake/sense", "gguf", "q8_0") and not gguf_pool.occupied("fake/para", "pytorch")
    registry.conversion.set()
    assert opening.ended().error is None and not gguf_pool.occupied("fake/sense", "gguf", "q8_0")


@given(st.lists(st.booleans(), max_size=6))
def test_idle_first_yields_every_step_once_with_idle_steps_first(busy: list[bool]) -> None:
    steps = list(idle_first(range(len(busy)), busy.__getitem__))
    assert steps == sorted(range(len(busy)), key=lambda number: busy[number])


def test_waiting_row_shows_the_progress_message_of_the_session(pool: Any, tmp_path: Path) -> None:
    """The row shows the session's reports before its first event, and no message says that the model loads."""
    session, reported = pool.registry.sessions["fake/sense"], threading.Event()
    pool.session("fake/sense", "pytorch")
    stream = session.stream

    def stream_after_report(*arguments: Any, **options: Any) -> Any:
        report(0.0, "waiting for another run of this model")
        assert reported.wait(60), "the run did not report that it waits"
        yield from stream(*arguments, **options)

    session.stream = stream_after_report
    activities = []
    for state in run(pool, job(pool, [tone(tmp_path / "a.wav")], BOTH[:1]), threading.Event()):
        activities += [row.progress.activity for row in state.rows if row.progress]
        if "waiting for another run of this model" in activities:
            reported.set()
    assert activities[0] == "waiting for another run of this model" and "loading the model" not in activities


def test_closed_run_abandons_the_transcription(pool: Any, tmp_path: Path) -> None:
    pool.registry.gate.clear()
    states = run(pool, job(pool, [tone(tmp_path / "a.wav")], BOTH[:1]), threading.Event())
    for state in states:
        if state.rows[0].status == "running":
            break
    states.close()
    pool.registry.gate.set()
    assert pool.registry.sessions["fake/sense"].abandoned.wait(60)


def test_cancelled_call_is_reported_as_stopped_and_not_failed(pool: Any, tmp_path: Path) -> None:
    def stream(*_: Any, **__: Any) -> Any:
        raise Cancelled("stopped")

    pool.registry.sessions["fake/sense"].stream = stream
    state = last(pool, job(pool, [tone(tmp_path / "a.wav")]))
    assert [row.status for row in state.rows] == ["stopped", "done"]


def test_each_model_gets_the_options_it_has(pool: Any, tmp_path: Path) -> None:
    last(pool, job(pool, [tone(tmp_path / "a.wav")], language="en", timestamps=False))
    assert pool.registry.sessions["fake/sense"].calls == [{"language": "en", "timestamps": False}]
    assert pool.registry.sessions["fake/para"].calls == [{"timestamps": False}]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"recordings": []}, "no recording"),
        ({"cells": []}, "no model is chosen"),
        ({"cells": ["/etc|pytorch"]}, "there is no '/etc'"),
        ({"cells": ["fake/sense|vllm"]}, "cannot run: Fake SenseVoice has no vllm network"),
        ({"reference": "one\ntwo\nthree"}, "2 recordings and 3 lines"),
        ({"normaliser": "magic"}, "no normaliser 'magic'"),
        ({"options": {"langage": "en"}}, "no.* option 'langage'"),
        ({"options": {"language": "tlh"}}, "option language .* is 'tlh'"),
        ({"options": {"vad": "/etc"}}, "option vad is '/etc'; expected one of auto, silero, none, fake/vad"),
    ],
)
def test_invalid_request_is_refused_before_a_model_loads(pool: Any, changes: dict[str, Any], message: str) -> None:
    request = {"recordings": ["a.wav", "b.wav"], "cells": BOTH, "reference": "", "normaliser": "basic", "options": {}}
    with pytest.raises(BadInput, match=message):
        prepare(pool.registry, **(request | changes))
    assert not pool.registry.opened


def test_offers_list_runnable_models_first_and_reasons_for_the_others(pool: Any) -> None:
    listing = offers(pool.registry)
    assert [offer.cell.value for offer in listing[:3]] == [*BOTH, "fake/hub|pytorch"]
    assert listing[2].title == "Fake from afar · PyTorch"
    assert all(offer.reason for offer in listing[3:]) and len(listing) == 9
    assert not any(offer.cell.model == "fake/vad" for offer in listing)
    assert vad_choices(pool.registry) == ("auto", "silero", "none", "fake/vad")


def test_model_name_without_a_runtime_selects_pytorch_once(pool: Any) -> None:
    selection = chosen_offers(["fake/sense", "fake/sense|pytorch"], offers(pool.registry))
    assert [offer.cell for offer in selection] == [ModelOnRuntime("fake/sense", "pytorch")]


def test_a_model_runs_in_several_quantisations_side_by_side(gguf_pool: Any, tmp_path: Path) -> None:
    cells = ["fake/sense|pytorch", *(f"fake/sense|gguf|{name}" for name in ("f32", "q8_0", "q4_0"))]
    state = last(gguf_pool, job(gguf_pool, [tone(tmp_path / "a.wav")], cells, "three seven one"))
    assert [row.title for row in state.rows] == [
        "Fake SenseVoice · PyTorch",
        "Fake SenseVoice · GGUF f32",
        "Fake SenseVoice · GGUF q8_0",
        "Fake SenseVoice · GGUF q4_0",
    ]
    assert [row.score.summary for row in state.rows if row.score] == [
        "WER 33.3 %",
        "WER 0.0 %",
        "WER 33.3 %",
        "WER 66.7 %",
    ]
    assert [row.weight_bytes for row in state.rows] == [7_200_000, 7_200_000, 1_950_000, 1_100_000]
    assert sorted(gguf_pool.registry.opened) == sorted(["fake/sense", *cells[1:]])  # they open side by side


def test_a_conversion_shows_in_its_row_and_stops_with_the_run(gguf_pool: Any, tmp_path: Path) -> None:
    registry, stop = gguf_pool.registry, threading.Event()
    registry.conversion.clear()
    activities: set[str] = set()
    for state in run(gguf_pool, job(gguf_pool, [tone(tmp_path / "a.wav")], ["fake/sense|gguf|q8_0"]), stop):
        activities |= {row.progress.activity for row in state.rows if row.progress}
        if "converting to q8_0, 50%" in activities:
            stop.set()
    assert state.rows[0].status == "stopped" and registry.stopped.wait(60) and not registry.opened


def test_value_without_a_quantisation_selects_the_default_one(gguf_pool: Any) -> None:
    listing = offers(gguf_pool.registry)
    for value in ("fake/sense|gguf", "fake/sense|gguf|auto", "fake/sense|gguf|f32"):
        [offer] = chosen_offers([value, "fake/sense|gguf"], listing)
        assert (
            offer.cell == ModelOnRuntime("fake/sense", "gguf", "f32")
            and offer.weights
            and offer.weights.nbytes == 7_200_000
        )
    with pytest.raises(
        BadInput, match=r"^there is no 'q3' of fake/sense on gguf; its weights are f32, f16, q8_0, q4_0"
    ):
        chosen_offers(["fake/sense|gguf|q3"], listing)
    with pytest.raises(BadInput, match=r"^there is no 'q8_0' of fake/sense on pytorch; its weights are as the check"):
        chosen_offers(["fake/sense|pytorch|q8_0"], listing)


def test_chooser_has_one_line_for_each_runnable_model(gguf_pool: Any) -> None:
    value = chooser_value(offers(gguf_pool.registry))
    assert [model["name"] for model in value["models"]] == ["Fake SenseVoice", "Fake Paraformer", "Fake from afar"]
    assert value["chosen"] == BOTH, "each model that is ready, on the first runtime it has"
    first, _, afar = value["models"]
    assert [runtime["title"] for runtime in first["runtimes"]] == ["PyTorch", "GGUF"]
    assert first["runtimes"][1]["boxes"][2] == {
        "value": "fake/sense|gguf|q8_0",
        "title": "Fake SenseVoice · GGUF q8_0",
        "label": "q8_0",
        "hint": "",
        "size": "1.9 MB",
        "dtype": "",
        "there": False,
    }
    assert afar["note"] == "downloads 940 MB first" and afar["runtimes"][1]["boxes"][0]["size"] == ""
    chosen_again = chooser_value(offers(gguf_pool.registry), ["gone|pytorch", "fake/sense|gguf|q4_0"])
    assert chosen_in(chosen_again) == ["fake/sense|gguf|q4_0"]


@pytest.mark.parametrize("value", [{"chosen": "x"}, {"chosen": [1]}, {"chosen": {}}])
def test_invalid_chooser_value_raises_one_line_error(value: Any) -> None:
    with pytest.raises(BadInput, match="reload the page"):
        chosen_in(value)
    assert chosen_in(None) == chosen_in("x") == []


def test_unload_affects_only_the_given_quantisation(gguf_pool: Any) -> None:
    for name in ("f32", "q8_0"):
        gguf_pool.session("fake/sense", "gguf", name)
    gguf_pool.unload("fake/sense", "gguf", "q8_0")
    assert [each.quantization for each in gguf_pool.residents()] == ["f32"]


def test_pool_opens_a_session_once_and_unloads_idle_models(pool: Any) -> None:
    assert pool.session("fake/sense", "pytorch") is pool.session("fake/sense", "pytorch")
    pool.idle_minutes = 2
    assert [each.model for each in pool.unload_idle()] == ["fake/sense"]
    assert pool.residents() == []
    sentence = "^the time after which models are unloaded is {}; expected 0.1 to 10080 minutes \\(a week\\)$"
    descriptions = {
        0: "0 minutes",
        -1: "-1 minutes",
        float("nan"): "nan minutes",
        1e9: "1e\\+09 minutes",
        None: "empty",
    }
    for minutes, description in descriptions.items():
        with pytest.raises(BadInput, match=sentence.format(description)):
            pool.idle_minutes = minutes
    assert pool.idle_minutes == 2


def test_a_model_at_work_is_not_unloaded(pool: Any) -> None:
    pool.session("fake/sense", "pytorch")
    pool.registry.gate.clear()
    with pytest.raises(BadInput, match="is at work"):
        pool.unload("fake/sense", "pytorch")
    pool.registry.gate.set()
    pool.unload("fake/sense", "pytorch")
    assert pool.registry.unloaded == ["fake/sense"]
