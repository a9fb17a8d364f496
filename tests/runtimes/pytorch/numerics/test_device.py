"""Preloading of device libraries by small operations."""

from __future__ import annotations

import threading

import pytest
import torch

from workbench.core.settings import Settings
from workbench.runtimes.pytorch.numerics import device
from workbench.runtimes.pytorch.numerics.device import load_libraries, prepare


def test_load_libraries_runs_each_operation_in_float32_and_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    for name in ("conv2d", "scaled_dot_product_attention", "linear"):
        operation = getattr(torch.nn.functional, name)

        def record(*args: object, name: str = name, operation: object = operation, **kwargs: object) -> object:
            result = operation(*args, **kwargs)  # type: ignore[operator]
            calls.append((name, result.dtype))
            return result

        monkeypatch.setattr(torch.nn.functional, name, record)
    load_libraries(torch.device("cpu"))
    assert calls == [(name, kind) for kind in (torch.float32, torch.bfloat16)
                   for name in ("conv2d", "scaled_dot_product_attention", "linear")]  # fmt: skip


def test_out_of_memory_while_preloading_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **kwargs: object) -> object:
        raise torch.cuda.OutOfMemoryError("out of memory")

    monkeypatch.setattr(torch.nn.functional, "conv2d", fail)
    load_libraries(torch.device("cpu"))


def test_libraries_are_preloaded_in_the_background_for_a_gpu_only(monkeypatch: pytest.MonkeyPatch) -> None:
    devices, done = [], threading.Event()

    def load(target: torch.device) -> None:
        devices.append(target)
        done.set()

    monkeypatch.setattr(device, "load_libraries", load)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    prepare(Settings(device="cpu"))
    prepare(Settings(device="cuda:1"))
    assert done.wait(60) and devices == [torch.device("cuda:1")]
