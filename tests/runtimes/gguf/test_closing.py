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
GROWTH = 4.0  # megabytes that a hundred cycles may add: memory that the allocator reserves


def megabytes(family: str, path: Path, times: int) -> list[tuple[float, float]]:
    """The memory of a process with each session open and after it is closed, in megabytes."""
    command = [sys.executable, "-m", "tests.support.opens_and_closes", family, str(path), str(times)]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [
        (float(while_open), float(after_closing))
        for while_open, after_closing in map(str.split, process.stdout.splitlines())
    ]


@pytest.mark.slow
@pytest.mark.parametrize("family", ["sensevoice", "causal_lm"])
def test_memory_does_not_grow_over_a_hundred_open_close_cycles(family: str, tmp_path: Path) -> None:
    if family == "causal_lm":
        tiny_gguf(path := tmp_path / "it.gguf")
    else:
        [path] = writer.write(
            sensevoice.plans(tiny_sensevoice(tmp_path / "it"), "workbench"), "f16", tmp_path / "i.gguf"
        )
    after_closing = [closed for _, closed in megabytes(family, path, CYCLES)]
    assert after_closing[-1] - after_closing[CYCLES // 5] < GROWTH, after_closing[:: CYCLES // 10]


def test_close_frees_the_memory_of_the_weights(tmp_path: Path) -> None:
    plans = sensevoice.plans(assets() / "demo-sensevoice", "workbench")
    [path] = writer.write(plans, "f32", tmp_path / "it.gguf")
    cycles = megabytes("sensevoice", path, 3)
    for while_open, after_closing in cycles[1:]:  # the first cycle loads the libraries, which remain loaded
        assert while_open - after_closing > 0.9 * path.stat().st_size / 1e6
