"""The state of sessions in the registry, the progress of their loads, and cancelling of calls."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.processes import FAKE_CHILD, PATIENCE, Background, children, eventually
from tests.support.tiny_checkpoints import tiny_sensevoice
from tests.support.tiny_language import tiny_language
from workbench.core.errors import BadInput, Cancelled, SessionDied
from workbench.core.progress import listening
from workbench.isolation import serial
from workbench.registry.handle import OpenSession
from workbench.registry.registry import Registry, Residency

LOADS = ("stuck", "steps", "logging", "fake", "never")  # the names that `tests.support.fake_worker` knows


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models of both kinds with names that the fake child knows: pytorch runs one call at a time, vllm several."""
    monkeypatch.setattr(serial, "CHILD", FAKE_CHILD)
    monkeypatch.setattr("workbench.core.packages.find_spec", lambda name: object())  # no runtime package is loaded
    directories = {"pytorch": tiny_sensevoice(tmp_path / "speech"), "vllm": tiny_language(tmp_path / "language")}
    families = {"pytorch": "sensevoice", "vllm": "causal_lm"}
    cards = [
        f'[[model]]\nid = "{name}-{runtime}"\nfamily = "{families[runtime]}"\nsource.directory = "{directory}"\n'
        for runtime, directory in directories.items()
        for name in LOADS
    ]
    (tmp_path / "models.toml").write_text("\n".join(cards), encoding="utf-8")
    monkeypatch.setenv("WORKBENCH_MODELS", str(tmp_path / "models.toml"))


both_runtimes = pytest.mark.parametrize("runtime", ["pytorch", "vllm"])


def only(registry: Registry) -> Residency:
    [resident] = registry.residents()
    return resident


@both_runtimes
def test_resident_state_changes_from_loading_to_idle_at_work_and_unloaded(
    models: None, registry: Registry, runtime: str
) -> None:
    opening = Background(lambda: registry.open(f"never-{runtime}", runtime))
    eventually(lambda: bool(registry.residents()) and only(registry).state == "loading")
    assert only(registry).busy
    registry.close()
    assert isinstance(opening.ended().error, SessionDied)
    with Registry() as registry, registry.open(f"fake-{runtime}", runtime) as session:
        resident = only(registry)
        assert resident.state == "idle" and resident.load_seconds == session.load_seconds > 0
        assert resident.log is None
        events = session.stream("x", do="many")
        next(events)
        assert only(registry).state == "at work"
        events.close()
        assert only(registry).state == "idle"
        assert registry.unload(f"fake-{runtime}", runtime)
        assert only(registry).state == "unloaded" and only(registry).memory_bytes == 0


@both_runtimes
def test_resident_has_the_path_of_the_engine_log(
    models: None, registry: Registry, runtime: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "engine.log"))
    with registry.open(f"logging-{runtime}", runtime):
        assert only(registry).log == tmp_path / "engine.log"


@both_runtimes
def test_load_progress_is_reported(models: None, registry: Registry, runtime: str) -> None:
    reports: list[tuple[float, str]] = []
    name = f"steps-{runtime}"
    with registry.open(name, runtime, on_progress=lambda *report: reports.append(report)):
        pass
    steps = [(step / 4, f"step {step}") for step in range(1, 4)]
    assert (
        reports[0] == (0.0, f"loading {name}")
        and reports == sorted(reports)
        and set(reports[1:]) <= {reports[0], *steps}
    )
    if runtime == "pytorch":  # a caller that waits for a shared load receives only the latest report
        assert set(steps) <= set(reports)


@both_runtimes
def test_stuck_load_is_cancelled_by_its_progress_callback(models: None, registry: Registry, runtime: str) -> None:
    children_before, fractions = children(), list[float]()

    def stop(fraction: float, activity: str) -> None:
        fractions.append(fraction)
        if fractions.count(0.5) == 3:
            raise Cancelled("enough")

    with pytest.raises(Cancelled, match=r"^enough$"):
        registry.open(f"stuck-{runtime}", runtime, on_progress=stop)
    assert registry.residents() == [] and children() <= children_before


@both_runtimes
def test_second_caller_receives_load_progress_and_can_cancel_its_wait(
    models: None, registry: Registry, runtime: str
) -> None:
    name, reported = f"stuck-{runtime}", threading.Event()
    first = Background(lambda: registry.open(name, runtime, on_progress=lambda *_: None))
    eventually(lambda: bool(registry.residents()) and only(registry).memory_bytes > 0)

    def leave(fraction: float, activity: str) -> None:
        if (fraction, activity) == (0.5, "half way"):
            reported.set()
            raise Cancelled("no more")

    second = Background(lambda: registry.open(name, runtime, on_progress=leave))
    assert reported.wait(PATIENCE)
    assert isinstance(second.ended().error, Cancelled)
    assert only(registry).state == "loading" and first.thread.is_alive(), "the first caller's load continues"
    registry.close()
    assert isinstance(first.ended().error, (SessionDied, BadInput))


def test_cancel_stops_only_the_calls_of_its_own_session(models: None, registry: Registry) -> None:
    sessions = [registry.open("fake-vllm", "vllm") for _ in range(2)]
    started = [threading.Event(), threading.Event()]

    def listen(session: OpenSession, started: threading.Event) -> None:
        for _ in session.stream("x", do="block"):
            started.set()

    calls = [Background(lambda pair=pair: listen(*pair)) for pair in zip(sessions, started, strict=True)]  # type: ignore[misc]
    assert all(event.wait(PATIENCE) for event in started)
    assert sessions[0].pid == sessions[1].pid
    sessions[0].cancel()
    assert isinstance(calls[0].ended().error, Cancelled)
    assert calls[1].thread.is_alive() and only(registry).busy
    assert sessions[0].generate("go on").text == "go on"
    sessions[1].cancel()
    assert isinstance(calls[1].ended().error, Cancelled)
    sessions[0].close()
    for call in (lambda: sessions[0].generate("x"), lambda: sessions[0].trace("x")):
        with pytest.raises(BadInput, match="the session of fake-vllm is closed; open it again"):
            call()
    sessions[0].cancel()
    assert sessions[1].generate("x").tokens == (1, 2, 3)


def test_waiting_for_a_busy_session_is_reported_and_can_be_cancelled(models: None, registry: Registry) -> None:
    first, second = registry.open("fake-pytorch"), registry.open("fake-pytorch")
    assert not second.occupied
    activities: list[str] = []

    def record(_: float, activity: str) -> None:
        activities.append(activity)
        if len(activities) == 2:
            raise Cancelled("enough")

    def wait() -> None:
        with listening(record):
            second.transcribe("x")

    with closing(first.stream("x", do="many")) as events:
        next(events)
        assert second.occupied
        assert isinstance(Background(wait).ended().error, Cancelled)
        assert activities == ["waiting for another run of this model"] * 2
        next(events)
    assert not second.occupied and second.transcribe("x").text
