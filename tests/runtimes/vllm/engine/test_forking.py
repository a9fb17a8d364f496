"""Forked engine processes: which engines are forked, and that they compute with all threads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from workbench.runtimes.vllm.engine.forking import INSPECTION_FUNCTION, METHOD, forked, inspecting_here

ROOT = Path(__file__).resolve().parents[4]
# The main thread computes in parallel before another thread forks: the child then lacks the helper threads.
FORKS = """
import multiprocessing, os, threading, torch
from workbench.runtimes.vllm.engine.environment import environment
from workbench.runtimes.vllm.engine.forking import single_threaded

def compute(answers):
    values = torch.arange(1 << 20, dtype=torch.float64)
    answers.put((float((values * 2 + 1).sum()), torch.get_num_threads(), len(os.listdir("/proc/self/task"))))

def fork():
    with environment(3), single_threaded():
        torch.arange(1 << 20).sum()
        child = multiprocessing.get_context("fork").Process(target=compute, args=(answers,))
        child.start()
    print(*answers.get(timeout=60))
    child.join()
    print(torch.get_num_threads(), child.exitcode)

answers = multiprocessing.get_context("fork").SimpleQueue()
answers.get = lambda timeout: answers._reader.recv() if answers._reader.poll(timeout) else ["it waits"]
torch.set_num_threads(2)
compute(answers)
print(*answers.get(timeout=60))
thread = threading.Thread(target=fork)
thread.start()
thread.join()
os._exit(0)
"""


def test_a_forked_child_computes_in_parallel() -> None:
    process = subprocess.run([sys.executable, "-u", "-c", FORKS], cwd=ROOT, capture_output=True, text=True, timeout=120)
    parent, child, ends = (line.split() for line in process.stdout.splitlines())
    assert parent[:2] == [str(float(1 << 40)), "2"]
    assert child[:2] == [str(float(1 << 40)), "3"], "the threads of $OMP_NUM_THREADS"
    assert int(child[2]) >= 3, "all of them have started"
    assert ends == ["2", "0"], "the parent computes as before"


# The parent has PyTorch's compiler already, which then no longer looks at the environment.
COMPILES = """
import multiprocessing, os, torch, torch._dynamo
from types import SimpleNamespace as Some
from workbench.runtimes.vllm.engine.environment import environment
from workbench.runtimes.vllm.engine.forking import forked

@torch.compile(backend=lambda graph, inputs: print("compiled", flush=True) or graph.forward)
def count(x):
    return (x >= 1).sum(-1)

config = Some(
    device_config=Some(device_type="cpu"),
    parallel_config=Some(distributed_executor_backend="uni"),
    model_config=Some(enforce_eager=True),
)
with environment(1, eager=True), forked(config):
    child = multiprocessing.get_context("fork").Process(target=lambda: print(count(torch.ones(2, 3)).tolist()))
    child.start()
    child.join()
print(count(torch.ones(2, 3)).tolist())
os._exit(0)
"""


def test_a_forked_child_compiles_nothing() -> None:
    process = subprocess.run(
        [sys.executable, "-u", "-c", COMPILES], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert process.stdout.splitlines() == ["[3, 3]", "compiled", "[3, 3]"], process.stderr


def config(device: str = "cpu", backend: str = "uni", eager: bool = True) -> Any:
    return SimpleNamespace(
        device_config=SimpleNamespace(device_type=device),
        parallel_config=SimpleNamespace(distributed_executor_backend=backend),
        model_config=SimpleNamespace(enforce_eager=eager),
    )


@pytest.mark.parametrize("previous", [None, "spawn"])
def test_fork_method_is_set_only_within_the_block(monkeypatch: pytest.MonkeyPatch, previous: str | None) -> None:
    monkeypatch.delenv(METHOD, raising=False)
    if previous:
        monkeypatch.setenv(METHOD, previous)
    with forked(config()):
        assert os.environ[METHOD] == "fork"
    assert os.environ.get(METHOD) == previous


@pytest.mark.parametrize("other_config", [config(device="cuda"), config(backend="mp"), config(eager=False)])
def test_gpu_multiprocess_and_compiled_engines_are_spawned(monkeypatch: pytest.MonkeyPatch, other_config: Any) -> None:
    monkeypatch.setenv(METHOD, "spawn")
    with forked(other_config):
        assert os.environ[METHOD] == "spawn"


def test_model_classes_are_inspected_in_this_process_only_within_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = pytest.importorskip("vllm.model_executor.models.registry")

    def elsewhere(inspect: Any) -> Any:
        raise AssertionError("another process would import vLLM")

    monkeypatch.setattr(registry, INSPECTION_FUNCTION, elsewhere)
    with inspecting_here():
        assert getattr(registry, INSPECTION_FUNCTION)(os.getpid) == os.getpid()
    assert getattr(registry, INSPECTION_FUNCTION) is elsewhere


def test_patched_function_is_still_called_by_vllm() -> None:
    """Otherwise every class would be inspected in another process again."""
    registry = pytest.importorskip("vllm.model_executor.models.registry")
    assert INSPECTION_FUNCTION in registry._LazyRegisteredModel.inspect_model_cls.__wrapped__.__code__.co_names
