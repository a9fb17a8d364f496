"""A trace dumped from the original `funasr` package is compared with ours through a mapping file."""

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
    directory, theirs, ours = write_sensevoice(tmp_path / "deep", DEEP), tmp_path / "theirs", tmp_path / "o.safetensors"
    sound, mapping = assets() / "samples" / "three_seven_one.wav", HERE / "dump_funasr.toml"
    subprocess.run([sys.executable, HERE / "dump_funasr.py", directory, sound, theirs], check=True, capture_output=True)
    traced = workbench("trace", sound, "--model", directory, "--out", ours)
    assert traced.returncode == 0, traced.stderr
    compared = workbench("compare", ours, theirs, "--mapping", mapping)
    assert compared.returncode == 0, compared.stderr
    assert compared.stdout.startswith("Within tolerance f32: 146 stages") and "The tokens agree" in compared.stdout

    broken = theirs / "model.encoder.tp_encoders.3.npy"
    np.save(broken, 1.01 * np.load(broken))
    compared = workbench("compare", ours, theirs, "--mapping", mapping)
    assert compared.returncode == 1 and "encoder.layers.53" in compared.stdout.splitlines()[0]
