"""The libraries of a device are loaded by small operations, which work on every device that there is."""

from __future__ import annotations

import threading

import pytest
import torch

from workbench.core.settings import Settings
from workbench.runtimes.pytorch import device
from workbench.runtimes.pytorch.device import load_libraries, prepare


def test_the_operations_that_load_libraries_run(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []
    for name in ("conv2d", "scaled_dot_product_attention", "linear"):
        operation = getattr(torch.nn.functional, name)

        def counted(*args: object, name: str = name, operation: object = operation, **kwargs: object) -> object:
            found = operation(*args, **kwargs)  # type: ignore[operator]
            ran.append((name, found.dtype))
            return found

        monkeypatch.setattr(torch.nn.functional, name, counted)
    load_libraries(torch.device("cpu"))
    assert ran == [(name, kind) for kind in (torch.float32, torch.bfloat16)
                   for name in ("conv2d", "scaled_dot_product_attention", "linear")]  # fmt: skip


def test_a_gpu_without_memory_is_left_to_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **kwargs: object) -> object:
        raise torch.cuda.OutOfMemoryError("out of memory")

    monkeypatch.setattr(torch.nn.functional, "conv2d", full)
    load_libraries(torch.device("cpu"))


def test_libraries_are_loaded_beside_the_session_on_a_gpu_only(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, done = [], threading.Event()

    def load(where: torch.device) -> None:
        loaded.append(where)
        done.set()

    monkeypatch.setattr(device, "load_libraries", load)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    prepare(Settings(device="cpu"))
    prepare(Settings(device="cuda:1"))
    assert done.wait(60) and loaded == [torch.device("cuda:1")]
