"""A trace dumped from the original `funasr` package is compared with the workbench's through a mapping file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.reference.checkpoints import EncoderSize, SenseVoiceSize, write_sensevoice
from tests.reference.original import require
from workbench.registry.sources import assets

pytestmark = pytest.mark.reference

HERE = Path(__file__).parent
DEEP = SenseVoiceSize(EncoderSize(width=64, heads=4, units=128), tp_blocks=20, vocabulary=800)  # as deep as published


def workbench(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "workbench", *map(str, words)], capture_output=True, text=True)


def test_funasr_dump_is_compared_through_a_mapping_file(tmp_path: Path) -> None:
    require()
    directory, dump, trace = write_sensevoice(tmp_path / "deep", DEEP), tmp_path / "theirs", tmp_path / "o.safetensors"
    sound, mapping = assets() / "samples" / "three_seven_one.wav", HERE / "dump_funasr.toml"
    subprocess.run([sys.executable, HERE / "dump_funasr.py", directory, sound, dump], check=True, capture_output=True)
    trace_process = workbench("trace", sound, "--model", directory, "--out", trace)
    assert trace_process.returncode == 0, trace_process.stderr
    comparison = workbench("compare", trace, dump, "--mapping", mapping)
    assert comparison.returncode == 0, comparison.stderr
    assert comparison.stdout.startswith("Within tolerance f32: 146 stages") and "The tokens agree" in comparison.stdout

    broken = dump / "model.encoder.tp_encoders.3.npy"
    np.save(broken, 1.01 * np.load(broken))
    comparison = workbench("compare", trace, dump, "--mapping", mapping)
    assert comparison.returncode == 1 and "encoder.layers.53" in comparison.stdout.splitlines()[0]
