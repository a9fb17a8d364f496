"""vLLM finds our classes by the entry point of this package, without importing them."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points

import pytest

pytest.importorskip("vllm", reason="needs vLLM")

CODE = """
import sys
from importlib import import_module
from vllm import ModelRegistry
from vllm.model_executor.models.config import MODELS_CONFIG_MAP
from workbench.runtimes.vllm.plugin import configurations, models, register
register()
register()
assert set(models()) <= set(ModelRegistry.get_supported_archs())
assert not [name for name in sys.modules if name.startswith("workbench.runtimes.vllm.models")]
assert configurations().keys() <= models().keys()
for name, place in configurations().items():
    assert f"{MODELS_CONFIG_MAP[name].__module__}:{MODELS_CONFIG_MAP[name].__name__}" == place
for name, place in models().items():
    module, _, found = place.partition(":")
    assert found == name and getattr(import_module(module), name).__name__ == name
"""


def test_the_entry_point_names_the_function() -> None:
    [point] = [each for each in entry_points(group="vllm.general_plugins") if each.name == "speech_workbench"]
    assert point.value == "workbench.runtimes.vllm.plugin:register"


@pytest.mark.slow
def test_classes_are_registered_by_name_and_are_there() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
