"""One open session and one scene for each demo model on each runtime, shared by all tests of pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from workbench.registry.registry import Registry
from workbench.visualise.scene import Scene

SAMPLE = Path("assets/samples/three_seven_one.wav").resolve()
PROMPT = "Count from two to six."
SceneOf = Callable[..., Scene]


@pytest.fixture(scope="package")
def registry() -> Iterator[Registry]:
    with Registry(isolate=False) as found:
        yield found


@pytest.fixture(scope="package")
def scene_of(registry: Registry) -> Iterator[SceneOf]:
    """Returns the scene of a demo model on a runtime; `fresh` ones have computed nothing yet."""
    sessions: dict[tuple[str, str], Any] = {}
    scenes: dict[tuple[str, str], Scene] = {}

    def scene(model: str, runtime: str = "pytorch", fresh: bool = False) -> Scene:
        key = model, runtime
        card = registry.card(model)
        if key not in sessions:
            more = {"quantization": "f32"} if runtime == "gguf" else {}
            sessions[key] = registry.open(model, runtime, **more)
        source = PROMPT if model == "demo/qwen3" else SAMPLE
        made = Scene(sessions[key], card, source, {}, registry)
        return made if fresh else scenes.setdefault(key, made)

    yield scene
    for session in sessions.values():
        session.close()
