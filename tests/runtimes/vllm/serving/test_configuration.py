"""Changes to vLLM's configuration for a SpeechLM before the engine starts."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm", reason="needs vLLM")

from workbench.registry.sources import assets
from workbench.runtimes.vllm.serving.configuration import AUTOMATIC, SCHEDULER, WORKER, SpeechLmConfiguration
from workbench.runtimes.vllm.streams.stream_request import width

DEMO = assets() / "demo-speechlm"


def configured(worker: str, most: int, directory: Path = DEMO) -> Any:
    found = SimpleNamespace(
        model_config=SimpleNamespace(model=str(directory), max_logprobs=most),
        parallel_config=SimpleNamespace(worker_cls=worker),
        scheduler_config=SimpleNamespace(scheduler_cls=None, async_scheduling=None),
    )
    SpeechLmConfiguration.verify_and_update_config(found)
    return found


@pytest.mark.usefixtures("own")
def test_configuration_sets_worker_scheduler_and_max_logprobs() -> None:
    streams = json.loads((DEMO / "config.json").read_text())["num_stream"]
    least = width(SimpleNamespace(streams=streams), evidence=True)  # type: ignore[arg-type]
    assert configured(AUTOMATIC, 20).parallel_config.worker_cls == WORKER
    scheduling = configured(AUTOMATIC, 20).scheduler_config
    assert scheduling.scheduler_cls == SCHEDULER and scheduling.async_scheduling is False
    assert configured(AUTOMATIC, 20).model_config.max_logprobs == least > 20
    assert [configured(WORKER, most).model_config.max_logprobs for most in (-1, 10_000)] == [-1, 10_000]
    assert configured("another.Worker", 20).parallel_config.worker_cls == "another.Worker", "the user's own"
