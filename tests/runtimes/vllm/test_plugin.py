"""vLLM finds our classes by the entry point of this package, without importing them."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.support import registered_classes, with_vllm

pytest.importorskip("vllm", reason="needs vLLM")


def test_the_entry_point_names_the_function() -> None:
    [point] = [entry for entry in entry_points(group="vllm.general_plugins") if entry.name == "speech_workbench"]
    assert point.value == "workbench.runtimes.vllm.plugin:register"


@pytest.mark.slow
def test_registered_model_classes_can_be_imported(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = with_vllm.start(registered_classes.__name__, [], log)
    try:
        assert process.wait(timeout=200) == 0, log.read_text()[-2000:]
    finally:
        process.kill()
        process.wait()
