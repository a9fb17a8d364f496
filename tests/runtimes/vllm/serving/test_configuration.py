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


def changed_configuration(worker: str, max_logprobs: int, directory: Path = DEMO) -> Any:
    configuration = SimpleNamespace(
        model_config=SimpleNamespace(model=str(directory), max_logprobs=max_logprobs),
        parallel_config=SimpleNamespace(worker_cls=worker),
        scheduler_config=SimpleNamespace(scheduler_cls=None, async_scheduling=None),
    )
    SpeechLmConfiguration.verify_and_update_config(configuration)
    return configuration


@pytest.mark.usefixtures("original_calls")
def test_configuration_sets_worker_scheduler_and_max_logprobs() -> None:
    streams = json.loads((DEMO / "config.json").read_text())["num_stream"]
    minimum = width(SimpleNamespace(streams=streams), evidence=True)  # type: ignore[arg-type]
    assert changed_configuration(AUTOMATIC, 20).parallel_config.worker_cls == WORKER
    scheduling = changed_configuration(AUTOMATIC, 20).scheduler_config
    assert scheduling.scheduler_cls == SCHEDULER and scheduling.async_scheduling is False
    assert changed_configuration(AUTOMATIC, 20).model_config.max_logprobs == minimum > 20
    assert [changed_configuration(WORKER, max_logprobs).model_config.max_logprobs for max_logprobs in (-1, 10_000)] == [
        -1,
        10_000,
    ]
    assert changed_configuration("another.Worker", 20).parallel_config.worker_cls == "another.Worker", (
        "a worker class set by the user stays"
    )
