"""The memory budget of sessions: estimates, which session is unloaded for a new one, and which is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from safetensors.numpy import save_file

from tests.support.processes import FAKE_CHILD, Background, eventually
from tests.support.tiny_checkpoints import add_weight_bytes, claiming_checkpoints
from tests.support.tiny_language import tiny_language
from workbench.core.errors import BadInput, Cancelled, SessionDied, Unavailable
from workbench.core.runtimes import CPU_KV_GIGABYTES
from workbench.core.settings import SessionSpec, Settings
from workbench.isolation import serial
from workbench.isolation.base import IsolatedSession
from workbench.isolation.concurrent import ParallelSession
from workbench.isolation.serial import ProcessSession
from workbench.registry.budget import (
    ENGINE_BYTES,
    PROCESS_BYTES,
    WEIGHTS_FACTOR,
    WORKER_BYTES,
    MemoryBudget,
    default_budget,
    estimated_bytes,
)
from workbench.registry.registry import Registry
from workbench.session.values import Progress
from workbench.system.memory import machine_bytes


def estimate(checkpoint: Path, runtime: str = "pytorch", language: Path | None = None) -> int:
    return estimated_bytes(SessionSpec("m", "sensevoice", runtime, checkpoint, Settings(language_file=language)))


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Models that claim 1 GB of weights each; their processes are fakes, and loading the last never ends."""
    monkeypatch.setattr(serial, "CHILD", FAKE_CHILD)
    return claiming_checkpoints(tmp_path, monkeypatch)


def room_for(count: float) -> int:
    """Returns the bytes that `count` of the `models` need."""
    return int(count * (PROCESS_BYTES + WEIGHTS_FACTOR * (1 << 30)) + (1 << 20))


def loaded_models(registry: Registry) -> list[str]:
    return [each.model for each in registry.residents() if each.memory_bytes]


def test_memory_estimate_counts_weights_and_ignores_broken_links(tmp_path: Path) -> None:
    assert estimate(tmp_path) == PROCESS_BYTES
    add_weight_bytes(tmp_path, 1000)
    (tmp_path / "gone.pt").symlink_to(tmp_path / "nowhere")
    (tmp_path / "folder.pt").mkdir()
    (tmp_path / "notes.txt").write_text("not weights")
    assert estimate(tmp_path) == PROCESS_BYTES + WEIGHTS_FACTOR * 1000


def test_float64_doubles_the_memory_estimate_of_untyped_weights(tmp_path: Path) -> None:
    add_weight_bytes(tmp_path, 1000)
    nbytes = estimated_bytes(SessionSpec("m", "sensevoice", "pytorch", tmp_path, Settings(dtype="float64")))
    assert nbytes == PROCESS_BYTES + WEIGHTS_FACTOR * 2000


def test_memory_estimate_counts_a_linked_language_model(tmp_path: Path) -> None:
    language, model = tmp_path / "qwen", tmp_path / "model"
    for folder in (language, model):
        folder.mkdir()
        add_weight_bytes(folder, 1000)
    (model / "Qwen2-7B-Instruct").symlink_to(language)
    assert estimate(model) == PROCESS_BYTES + WEIGHTS_FACTOR * 2000


def test_memory_estimate_counts_both_gguf_files(tmp_path: Path) -> None:
    ear, language = tmp_path / "ear.gguf", tmp_path / "llm.gguf"
    for path, count in ((ear, 1000), (language, 3000)):
        path.write_bytes(b"x" * count)
    assert estimate(ear, "gguf") == PROCESS_BYTES + WEIGHTS_FACTOR * 1000
    assert estimate(ear, "gguf", language) == PROCESS_BYTES + WEIGHTS_FACTOR * 4000


@pytest.mark.parametrize(
    ("stored", "dtype", "factor"),
    [
        (np.float32, "float32", 1.0),
        (np.float16, "float32", 2.0),
        (np.float16, "float16", 1.0),
        (np.float16, "auto", 1.0),
        (np.float32, "bfloat16", 0.5),
        (np.float32, "auto", 1.0),
        (np.int64, "float32", 1.0),
        (np.float32, "float64", 2.0),
        (np.float16, "float64", 4.0),
        (np.float64, "float32", 0.5),
    ],
)
def test_memory_estimate_follows_the_compute_dtype(tmp_path: Path, stored: Any, dtype: str, factor: float) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"one": np.zeros((300, 70), stored), "two": np.zeros(40_000, stored)}, path)
    content = (300 * 70 + 40_000) * np.dtype(stored).itemsize
    header = path.stat().st_size - content
    nbytes = estimated_bytes(SessionSpec("m", "causal_lm", "pytorch", tmp_path, Settings(dtype=dtype)))
    assert nbytes == pytest.approx(PROCESS_BYTES + WEIGHTS_FACTOR * (header + factor * content), abs=1)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"\xff" * 8,
        b"\x02" + b"\0" * 7 + b"[]",
        b"\x05" + b"\0" * 7 + b"{",
        len(claim := b'{"a": {"dtype": "BF16", "shape": [1000000, 1000000]}}').to_bytes(8, "little") + claim,
        len(claim := b'{"a": {"dtype": "BF16", "shape": "many"}, "b": {}}').to_bytes(8, "little") + claim,
    ],
)
def test_memory_estimate_ignores_damaged_safetensors_headers(tmp_path: Path, header: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(header)
    assert estimate(tmp_path) <= PROCESS_BYTES + WEIGHTS_FACTOR * 2 * len(header)


def test_vllm_memory_estimate_counts_workers_and_kv_cache(tmp_path: Path) -> None:
    def of(**settings: Any) -> float:
        return estimated_bytes(SessionSpec("m", "causal_lm", "vllm", tmp_path, Settings(**settings))) / (1 << 20)

    add_weight_bytes(tmp_path, 1 << 30)
    base = (ENGINE_BYTES + WEIGHTS_FACTOR * (1 << 30)) / (1 << 20)
    assert of() == pytest.approx(base + 1024 * CPU_KV_GIGABYTES, abs=1)
    assert of(kv_gigabytes=0.25) == pytest.approx(base + 256, abs=1)
    assert of(kv_gigabytes=0.25, tensor_parallel=2) == pytest.approx(base + 512 + WORKER_BYTES / (1 << 20), abs=1)


@pytest.mark.parametrize("kind", [ProcessSession, ParallelSession])
def test_unloaded_session_frees_its_memory_before_the_next_starts(
    kind: Callable[..., IsolatedSession], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each session holds its memory in a subprocess, as an engine does, and ends slowly."""
    monkeypatch.setattr(serial, "CHILD", FAKE_CHILD)
    sessions: list[IsolatedSession] = []
    budget = MemoryBudget(4 << 30, lambda: sessions)
    memory: dict[str, int] = {}

    @contextmanager
    def admitted(newcomer: IsolatedSession) -> Iterator[None]:
        with budget.admitted(newcomer):
            memory[newcomer.model] = sum(each.memory_bytes for each in sessions)
            assert not [pid for pid in started if psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie"]
            yield

    started: list[int] = []
    settings = Settings(kv_gigabytes=2.0)
    specs = [SessionSpec(name, "causal_lm", "vllm", tmp_path, settings) for name in ("holding", "holding too")]
    first, second = (kind(spec, admitted) for spec in specs)
    sessions += first, second
    try:
        for session in (first, second, first):
            started = [*session.trace("x").meta["started"], session.pid or 0]
            assert session.memory_bytes > 150 << 20
            assert [each.pid is not None for each in sessions] == [each is session for each in sessions]
        assert memory == {"holding": 0, "holding too": 0}
    finally:
        for session in sessions:
            session.close()


def test_least_recently_used_session_is_unloaded_and_reloads_on_use(models: list[str]) -> None:
    with Registry(memory_bytes=room_for(2)) as registry:
        one, two = registry.open("one"), registry.open("two")
        one.transcribe("x")  # now two is the one least recently used
        three = registry.open("three")
        assert loaded_models(registry) == ["one", "three"]
        assert two.pid is None
        assert two.transcribe("x").text.endswith("/x")
        assert loaded_models(registry) == ["two", "three"]
        assert three.pid


def test_sessions_within_the_budget_stay_loaded(models: list[str]) -> None:
    with Registry(memory_bytes=room_for(3)) as registry:
        for name in models[:3]:
            registry.open(name)
        assert loaded_models(registry) == models[:3]


def test_a_session_at_work_is_not_unloaded(models: list[str]) -> None:
    with Registry(memory_bytes=room_for(2)) as registry:
        one, _ = registry.open("one"), registry.open("two")
        with closing(one.stream("x", do="many")) as events:
            next(events)
            registry.open("three")
            assert loaded_models(registry) == ["one", "three"]


def test_prepared_processes_end_before_a_session_is_unloaded(
    models: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Prepared:
        memory_bytes = 300 << 20

        def give_up(self) -> None:
            self.memory_bytes = 0

    prepared = Prepared()
    monkeypatch.setattr("workbench.registry.budget.PREPARED", prepared)
    with Registry(memory_bytes=room_for(2) + (100 << 20)) as registry:
        registry.open("one")
        assert prepared.memory_bytes
        registry.open("two")
        assert not prepared.memory_bytes and loaded_models(registry) == ["one", "two"]


def test_session_that_does_not_fit_beside_busy_sessions_is_refused(models: list[str]) -> None:
    with Registry(memory_bytes=room_for(2) - (600 << 20)) as registry:
        one = registry.open("one")
        with closing(one.stream("x", do="many")) as events:
            next(events)
            with pytest.raises(Unavailable) as error:
                registry.open("two")
            assert str(error.value) == (
                "two needs about 1.7 GB and sessions at work hold 1.7 GB of the 2.8 GB allowed; wait for them, or set "
                "WORKBENCH_MEMORY_GB to allow more"
            )
            assert isinstance(next(events), Progress)
        assert loaded_models(registry) == ["one"] and len(registry.residents()) == 1


def test_waiting_for_memory_is_reported_as_progress(models: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.registry.budget.BEAT_SECONDS", 0.01)
    with Registry(memory_bytes=room_for(2) - (600 << 20), wait_for_memory=True) as registry:
        one = registry.open("one")
        events = one.stream("x", do="many")
        next(events)
        activities: list[str] = []

        def record(_: float, activity: str) -> None:
            activities.append(activity)
            if len(activities) == 3:
                events.close()

        assert registry.open("two", on_progress=record).pid
        waiting = "waiting for memory: two needs about 1.7 GB and sessions at work hold 1.7 GB of the 2.8 GB allowed"
        assert activities[:3] == [waiting] * 3 and activities[-1] == "loading two"


def test_waiting_for_memory_can_be_cancelled(models: list[str]) -> None:
    with Registry(memory_bytes=room_for(2) - (600 << 20), wait_for_memory=True) as registry:
        one = registry.open("one")
        with closing(one.stream("x", do="many")) as events:
            next(events)

            def leave(_: float, activity: str) -> None:
                raise Cancelled(activity)

            with pytest.raises(Cancelled, match="waiting for memory"):
                registry.open("two", on_progress=leave)
        assert len(registry.residents()) == 1


def test_session_larger_than_the_budget_is_refused_and_others_stay_loaded(models: list[str], tmp_path: Path) -> None:
    with Registry(memory_bytes=room_for(1)) as registry:
        registry.open("one")
        add_weight_bytes(tmp_path / "two", 4 << 30)
        with pytest.raises(
            Unavailable, match=r"^two needs about 5\.6 GB, more than the 1\.7 GB that all sessions may have"
        ):
            registry.open("two")
        assert loaded_models(registry) == ["one"]


def test_neural_lm_inside_a_session_counts_in_the_memory_estimate(models: list[str], tmp_path: Path) -> None:
    """A beam search opens the language model in the recogniser's process."""
    language = tiny_language(tmp_path / "language")
    add_weight_bytes(language, 1 << 30)
    with Registry(memory_bytes=room_for(2) - PROCESS_BYTES) as registry:
        one, two = registry.open("one"), registry.open("two", threads=1)
        assert loaded_models(registry) == ["two"]
        one.transcribe("x")
        assert loaded_models(registry) == ["one"]
        assert one.transcribe("x", neural_lm=str(language)).text.endswith("/x")
        assert loaded_models(registry) == ["one"]
        with closing(one.stream("x", do="many")) as events:
            next(events)
            with pytest.raises(Unavailable, match=r"two needs about 1\.7 GB and sessions at work hold 3\.0 GB"):
                two.transcribe("x")
        add_weight_bytes(language, 3 << 30)
        with pytest.raises(Unavailable, match=r"^one with language needs about 5\.6 GB, more than the 3\.0 GB"):
            one.transcribe("x", neural_lm=str(language))
        assert two.transcribe("x").text.endswith("/x")
        assert loaded_models(registry) == ["two"]
        one.transcribe("x")  # greedy again, in a new process
        assert registry._budget._bytes_of(registry._sessions()[0]) == estimate(tmp_path / "one")


def test_loading_model_counts_with_its_memory_estimate(models: list[str]) -> None:
    with Registry(memory_bytes=room_for(1.5)) as registry:
        loading = Background(lambda: registry.open("never"))
        eventually(lambda: bool(loaded_models(registry)))
        with pytest.raises(Unavailable, match=r"one needs about 1.7 GB and sessions at work hold 1.7 GB"):
            registry.open("one")
        registry.close()
        assert isinstance(loading.ended().error, SessionDied)


def test_memory_budget_is_set_by_the_environment_or_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0 < default_budget() < machine_bytes()
    monkeypatch.setenv("WORKBENCH_MEMORY_GB", "1.5")
    assert Registry().memory_budget == 1.5 * (1 << 30)
    for value in ("0", "-1", "lots", "nan", "inf"):
        monkeypatch.setenv("WORKBENCH_MEMORY_GB", value)
        with pytest.raises(BadInput, match=f"WORKBENCH_MEMORY_GB is '{value}'; expected a number of gigabytes"):
            Registry()


def test_idle_sessions_are_unloaded_and_reload_on_use(models: list[str], registry: Registry) -> None:
    one, two = registry.open("one"), registry.open("two")
    assert registry.unload_idle(3600) == []
    with closing(one.stream("x", do="many")) as events:
        next(events)
        assert [each.model for each in registry.unload_idle(0)] == ["two"]
    assert two.pid is None and loaded_models(registry) == ["one"]
    [unloaded] = registry.unload_idle(0)
    assert (unloaded.model, unloaded.busy) == ("one", False) and unloaded.memory_bytes > 1 << 20
    assert registry.unload_idle(0) == []
    assert two.transcribe("x").text.endswith("/x")


def test_unload_by_name_skips_busy_sessions(models: list[str], registry: Registry) -> None:
    one = registry.open("one")
    registry.open("one", threads=1)
    with closing(one.stream("x", do="many")) as events:
        next(events)
        assert not registry.unload("one", "pytorch")
        assert [bool(each.memory_bytes) for each in registry.residents()] == [True, False]
    assert registry.unload("one", "pytorch") and registry.unload("unheard-of", "pytorch")
    assert loaded_models(registry) == []
