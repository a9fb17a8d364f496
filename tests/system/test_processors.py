"""The threads of a computation: one for a small model, all processors for a large one; how they wait on a server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.runtimes.gguf.graphs.test_weights import random_array, write_matrix
from workbench.core.errors import BadInput
from workbench.core.settings import SessionSpec, Settings
from workbench.formats.weight_files import file_bytes, weight_files
from workbench.isolation.loader import open_alone, open_here
from workbench.prepared.kinds import session_environment
from workbench.registry.sources import assets
from workbench.runtimes.gguf.graphs.graph_runner import GraphRunner
from workbench.system import processors
from workbench.system.processors import (
    DYNAMIC,
    LEVELS,
    LIMIT,
    SMALL_BYTES,
    SPINS,
    THREADS,
    WAITING,
    available_processors,
    default_threads,
    may_lack_threads,
    share_processors,
)


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with three processors."""
    monkeypatch.setattr(processors, "CONTROL_GROUP", Path("nowhere"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2}, raising=False)


def test_a_small_model_has_one_thread(three: None) -> None:
    assert default_threads(SMALL_BYTES) == 1 and default_threads(SMALL_BYTES + 1) == 3


def test_ggml_runs_a_small_model_with_one_thread_and_several_lanes(three: None, tmp_path: Path) -> None:
    small = GraphRunner(write_matrix(tmp_path, "F32", random_array(48, 64)))
    assert small.lane.threads == 1 and small.lanes == 3
    small.close()


def test_ggml_computes_a_large_model_on_all_processors(
    three: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processors, "SMALL_BYTES", 0)
    large = GraphRunner(write_matrix(tmp_path, "F32", random_array(48, 64)))
    assert large.lane.threads == 3
    large.close()


@pytest.mark.parametrize(("named", "small", "expected"), [(None, SMALL_BYTES, 1), (None, 0, 3), (2, SMALL_BYTES, 2)])
def test_pytorch_worker_process_sets_the_thread_count_for_its_model(
    three: None, monkeypatch: pytest.MonkeyPatch, named: int | None, small: int, expected: int
) -> None:
    monkeypatch.setattr(processors, "SMALL_BYTES", small)
    told: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", told.append)  # vLLM in this process may have replaced it
    spec = SessionSpec("it", "sensevoice", "pytorch", assets() / "demo-sensevoice", Settings(threads=named))
    open_alone(spec).close()
    assert told == [expected]


def test_weight_files_are_found_in_a_checkpoint_and_one_folder_below(tmp_path: Path) -> None:
    (tmp_path / "llm" / "deeper").mkdir(parents=True)
    for name in ("model.pt", "llm/a.safetensors", "llm/deeper/b.safetensors", "config.yaml"):
        (tmp_path / name).write_bytes(bytes(10))
    np.save(tmp_path / "stage.npy", np.zeros(3))
    assert {path.name for path in weight_files(tmp_path)} == {"model.pt", "a.safetensors"}
    assert file_bytes(tmp_path) == 20 and file_bytes(tmp_path / "model.pt") == 10 and file_bytes(tmp_path / "no") == 0


@pytest.mark.parametrize("chosen", [{"OMP_WAIT_POLICY": "ACTIVE"}, {"GOMP_SPINCOUNT": "7"}])
def test_threads_wait_as_the_user_says(chosen: dict[str, str]) -> None:
    environment = dict(chosen)
    share_processors(environment)
    assert environment == chosen


def test_threads_of_a_server_sleep_while_they_wait() -> None:
    program = (
        "from workbench.prepared.kinds import session_environment\n"
        "from workbench.serving.admission.limits import LOCAL\n"
        "from workbench.serving.start import prepare_process\n"
        "prepare_process(LOCAL)\n"
        "for parallel in (False, True): print(session_environment(parallel)['GOMP_SPINCOUNT'])\n"
    )
    environment = {name: value for name, value in os.environ.items() if name not in WAITING}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [SPINS, SPINS]


@pytest.mark.parametrize(
    ("limit", "expected"), [("1", 1), ("2", 2), (" 2 ", 2), ("7", 3), ("0", 3), ("-1", 3), ("two", 3), ("", 3)]
)
def test_default_number_of_threads_is_at_most_the_limit_of_openmp(
    three: None, monkeypatch: pytest.MonkeyPatch, limit: str, expected: int
) -> None:
    monkeypatch.setenv(LIMIT, limit)
    assert available_processors() == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu.max": "200000 100000\n"}, 2),
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "1600000 100000\n"}, 3),
        ({"cpu.max": "max 100000\n"}, 3),
        ({"cpu.max": "\n"}, 3),
        ({"cpu/cpu.cfs_quota_us": "100000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3),
        ({}, 3),
    ],
)
def test_default_number_of_threads_is_at_most_the_share_of_the_container(
    three: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, files: dict[str, str], expected: int
) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    monkeypatch.setattr(processors, "CONTROL_GROUP", tmp_path)
    assert available_processors() == expected


def test_more_threads_than_the_limit_of_openmp_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT, "2")
    spec = SessionSpec("it", "sensevoice", "pytorch", assets() / "demo-sensevoice", Settings(threads=3))
    with pytest.raises(
        BadInput, match=r"threads is 3, and OMP_THREAD_LIMIT in the environment is 2; expected at most 2"
    ):
        open_here(spec)


def test_sessions_start_all_their_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ((DYNAMIC, "TRUE"), (LEVELS, "0"), (LIMIT, "2")):
        monkeypatch.setenv(name, value)
    environment = session_environment(parallel=False)
    assert DYNAMIC not in environment and LEVELS not in environment and environment[LIMIT] == "2"
    monkeypatch.setenv(LEVELS, "2")
    assert session_environment(parallel=False)[LEVELS] == "2"


@pytest.mark.parametrize(
    ("number", "limit", "expected"),
    [(None, "2", "2"), ("3", "2", "2"), ("1", "2", "1"), ("2,1", "2", "2,1"), ("3,1", "2", "2"), ("x", "7", "3")]
    + [(None, "", None), ("9", "", "9")],
)
def test_sessions_start_no_more_threads_by_default_than_the_limit_of_openmp(
    three: None, monkeypatch: pytest.MonkeyPatch, number: str | None, limit: str, expected: str | None
) -> None:
    monkeypatch.setenv(LIMIT, limit)
    monkeypatch.delenv(THREADS, raising=False)
    if number is not None:
        monkeypatch.setenv(THREADS, number)
    assert session_environment(parallel=True).get(THREADS) == expected


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [(DYNAMIC, "true", False), (DYNAMIC, "False", True), (LEVELS, "0", False), (LEVELS, "1", True)]
    + [(LIMIT, "1", False), (LIMIT, "2", True), ("UNRELATED", "0", True)],
)
def test_environments_in_which_openmp_may_start_fewer_threads_are_known(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, expected: bool
) -> None:
    for each in (DYNAMIC, LEVELS, LIMIT):
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setenv(name, value)
    assert may_lack_threads(2) is not expected and not may_lack_threads(1)


@pytest.mark.parametrize("variable", ["OMP_DYNAMIC=true", "OMP_MAX_ACTIVE_LEVELS=0", "OMP_THREAD_LIMIT=1"])
def test_linear_layers_are_right_where_openmp_starts_fewer_threads(variable: str) -> None:
    program = (
        "import torch\n"
        "from workbench.runtimes.pytorch.checkpoints.finalise_weights import finalise_weights\n"
        "torch.set_num_threads(8)\n"
        "network = torch.nn.Sequential(torch.nn.Linear(560, 512))\n"
        "x, exact = torch.randn(300, 560), network.double().requires_grad_(False)[0]\n"
        "expected = exact(x.double())\n"
        "network = network.float()\n"
        "finalise_weights(network, torch.device('cpu'))\n"
        "print((network(x) - expected).abs().max().item() < 1e-3)\n"
    )
    environment = {**os.environ, **dict([variable.split("=")])}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"]
