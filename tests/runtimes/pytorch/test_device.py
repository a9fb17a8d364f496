"""Preloading of device libraries by small operations."""

from __future__ import annotations

import threading

import pytest
import torch

from workbench.core.settings import Settings
from workbench.runtimes.pytorch import device
from workbench.runtimes.pytorch.device import load_libraries, prepare


def test_load_libraries_runs_each_operation_in_float32_and_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_out_of_memory_while_preloading_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **kwargs: object) -> object:
        raise torch.cuda.OutOfMemoryError("out of memory")

    monkeypatch.setattr(torch.nn.functional, "conv2d", full)
    load_libraries(torch.device("cpu"))


def test_libraries_are_preloaded_in_the_background_for_a_gpu_only(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, done = [], threading.Event()

    def load(where: torch.device) -> None:
        loaded.append(where)
        done.set()

    monkeypatch.setattr(device, "load_libraries", load)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    prepare(Settings(device="cpu"))
    prepare(Settings(device="cuda:1"))
    assert done.wait(60) and loaded == [torch.device("cuda:1")]
