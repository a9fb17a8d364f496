"""Scheduling of workers: despite worker failures, each recording is computed exactly once with unchanged results."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.driven_evaluations import KEYS, FakeWorkers, all_rows, chosen, drive, emptied
from workbench.core.errors import BadInput, Unavailable, WorkbenchError
from workbench.evaluation import schedule as scheduling
from workbench.evaluation.progress import Estimate
from workbench.evaluation.rows import Utterance
from workbench.evaluation.schedule import EvaluationState
from workbench.evaluation.store import RESULTS
from workbench.evaluation.workers import Failed


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 5), batch=st.integers(1, 9), deadly=st.floats(0, 0.3))
def test_each_recording_is_computed_once_despite_worker_deaths(
    tmp_path_factory: pytest.TempPathFactory, seed: int, count: int, batch: int, deadly: float
) -> None:
    evaluation, expected = emptied(tmp_path_factory.mktemp("deaths") / "out", 20)
    generator, died = random.Random(seed), set[str]()

    def fate(worker: int, utterances: Sequence[Utterance]) -> str | None:
        first = utterances[0].id
        if generator.random() > deadly or first in died:  # no recording is that unlucky three times
            return None
        died.update(each.id for each in utterances)
        return generator.choice(["killed", "outage"])

    workers = FakeWorkers(fate, lambda number: generator.random() > deadly / 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scheduling, "STARTS", 100)
        patch.setattr(scheduling, "PLACE_OUTAGES", 100)
        patch.setattr(scheduling, "MAX_PAUSE_SECONDS", 0.0)
        schedule = drive(evaluation, workers, count, batch)
    assert all_rows(evaluation) == expected
    assert schedule.computed == 40 and workers.most <= count and not workers.jobs


def test_stopped_run_keeps_its_results_and_the_next_run_resumes(tmp_path: Path) -> None:
    evaluation, expected = emptied(tmp_path / "out")

    def stop(state: EvaluationState) -> None:
        if state.done >= 17:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        drive(evaluation, FakeWorkers(), on_beat=stop)
    done_before = sum(evaluation.done().values())
    assert 17 <= done_before < 60
    states: list[EvaluationState] = []
    workers = FakeWorkers()
    assert drive(evaluation, workers, count=3, batch=7, on_beat=states.append).computed == 60 - done_before
    assert len(workers.seen) == 60 - done_before, "nothing is computed twice"
    assert all_rows(evaluation) == expected
    assert (states[0].done, states[-1].done, states[-1].total) == (done_before, 60, 60)


def test_limit_computes_only_the_first_recordings(tmp_path: Path) -> None:
    evaluation, expected = emptied(tmp_path / "out")
    assert drive(evaluation, FakeWorkers(), limit=5).computed == 10
    assert evaluation.done() == dict.fromkeys(KEYS, 5)
    assert drive(evaluation, FakeWorkers(), limit=3).computed == 0
    assert drive(evaluation, FakeWorkers()).computed == 50 and all_rows(evaluation) == expected


def test_recording_that_kills_every_worker_is_recorded_as_failed(tmp_path: Path) -> None:
    evaluation, _ = emptied(tmp_path / "out")
    deadly = {"u00003", "u00014"}
    workers = FakeWorkers(lambda worker, utterances: "killed" if deadly & {each.id for each in utterances} else None)
    schedule = drive(evaluation, workers)
    errors = {
        (each.model, each.id): each.error for each in evaluation.results() if each.error and "process" in each.error
    }
    assert errors.keys() == {(key, each) for key in KEYS for each in deadly}
    assert set(errors.values()) == {
        "the model's process ended 3 times while it transcribed this (it was ended by SIGKILL)"
    }
    assert schedule.computed == 60
    assert all(workers.seen.count(each) <= 2 * 4 for each in deadly), (
        "for each model, three tries and one beside another"
    )


def test_model_that_cannot_be_loaded_raises_an_error(tmp_path: Path) -> None:
    evaluation, _ = emptied(tmp_path / "out")
    with pytest.raises(WorkbenchError, match=r"demo/a\|pytorch cannot be loaded: its process was ended .* 5 times"):
        drive(evaluation, FakeWorkers(born=lambda number: False))
    with pytest.raises(BadInput, match="a tensor is missing"):
        drive(evaluation, FakeWorkers(born=lambda number: lambda n: Failed(n, BadInput("a tensor is missing"))))


def test_evaluation_continues_when_a_server_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluation, expected = emptied(tmp_path / "out")
    models = [replace(chosen(key, ["http://one", "http://two"])) for key in KEYS]
    workers = FakeWorkers()

    def fate(worker: int, utterances: Sequence[Utterance]) -> str | None:
        server = workers.jobs[worker].spec.server
        return "outage" if server and server.url == "http://two" and len(workers.seen) > 12 else None

    workers.fate = fate
    drive(evaluation, workers, models=models)
    assert all_rows(evaluation) == expected and {"http://one", "http://two"} == {*workers.addresses}
    for path in evaluation.path.glob(f"{RESULTS}/*/*"):
        path.unlink()
    monkeypatch.setattr(scheduling, "MAX_PAUSE_SECONDS", 0.0)
    with pytest.raises(Unavailable, match="the server is away"):
        drive(evaluation, FakeWorkers(lambda worker, utterances: "outage"), models=models, batch=1)


def test_batch_size_is_limited_by_total_recording_duration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluation, _ = emptied(tmp_path / "out", 10)
    monkeypatch.setattr(scheduling, "BATCH_SECONDS", 3.0)
    sizes: list[list[float]] = []

    def fate(worker: int, utterances: Sequence[Utterance]) -> None:
        sizes.append([each.duration or 0.0 for each in utterances])

    drive(evaluation, FakeWorkers(fate), batch=8)
    assert all(sum(each) <= 3.0 or len(each) == 1 for each in sizes) and max(map(len, sizes)) > 1


def test_progress_estimate_states_count_speed_and_time_left() -> None:
    now = 0.0
    estimate = Estimate(lambda: now)

    def state(count: int, workers: int = 2, models_left: int = 1) -> EvaluationState:
        return EvaluationState("demo/a|pytorch", count, 200, count, 100, count, 2.0 * count, workers, 0, models_left)

    assert estimate.words(state(0, 0)) == "demo/a|pytorch: 0 of 100, loading, then 1 more model"
    now = 50.0  # loading took long, and does not count as computing
    assert estimate.words(state(0)) == "demo/a|pytorch: 0 of 100, then 1 more model"
    for second in range(1, 11):
        now = 50.0 + second
        text = estimate.words(state(2 * second))
    assert text == "demo/a|pytorch: 20 of 100, 4 × real time, about 40.0 s left, then 1 more model"
