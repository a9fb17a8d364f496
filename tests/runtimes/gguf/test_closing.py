"""A closed session frees its memory, and repeated opening and closing does not increase it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tiny_checkpoints import tiny_sensevoice
from tests.support.tiny_gguf import tiny_gguf
from workbench.conversion import sensevoice, writer
from workbench.registry.sources import assets

ROOT = Path(__file__).resolve().parents[3]
CYCLES = 100
GROWTH = 4.0  # megabytes that a hundred cycles may add: the allocator's own


def megabytes(family: str, path: Path, times: int) -> list[tuple[float, float]]:
    """What a process held with each session open, and after it was closed."""
    command = [sys.executable, "-m", "tests.support.opens_and_closes", family, str(path), str(times)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [(float(opened), float(closed)) for opened, closed in map(str.split, done.stdout.splitlines())]


@pytest.mark.slow
@pytest.mark.parametrize("family", ["sensevoice", "causal_lm"])
def test_memory_does_not_grow_over_a_hundred_open_close_cycles(family: str, tmp_path: Path) -> None:
    if family == "causal_lm":
        tiny_gguf(path := tmp_path / "it.gguf")
    else:
        [path] = writer.write(
            sensevoice.plans(tiny_sensevoice(tmp_path / "it"), "workbench"), "f16", tmp_path / "i.gguf"
        )
    held = [closed for _, closed in megabytes(family, path, CYCLES)]
    assert held[-1] - held[CYCLES // 5] < GROWTH, held[:: CYCLES // 10]


def test_close_frees_the_memory_of_the_weights(tmp_path: Path) -> None:
    plans = sensevoice.plans(assets() / "demo-sensevoice", "workbench")
    [path] = writer.write(plans, "f32", tmp_path / "it.gguf")
    held = megabytes("sensevoice", path, 3)
    for opened, closed in held[1:]:  # the first loads the libraries, which stay
        assert opened - closed > 0.9 * path.stat().st_size / 1e6
