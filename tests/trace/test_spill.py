"""Arrays spilled to temporary files: unchanged values, bounded memory, and no files left behind."""

from __future__ import annotations

import errno
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.processes import ROOT
from workbench.core.errors import Unavailable
from workbench.trace.recorder import Recorder
from workbench.trace.spill import SMALL_BYTES, Spill, release
from workbench.trace.trace import StageFilter, Trace

MEGABYTE = 1 << 20


@pytest.fixture(autouse=True)
def tempdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files."""
    folder = tmp_path / "tempdir"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def in_a_file(array: np.ndarray) -> bool:
    return array.base is not None


@given(
    sizes=st.lists(st.integers(0, 3 * SMALL_BYTES), max_size=8),
    limit=st.integers(0, 8 * SMALL_BYTES),
    kind=st.sampled_from([np.float32, np.float64, np.int64, np.uint8, np.complex64]),
)
def test_arrays_are_returned_unchanged_with_memory_below_the_limit(sizes: list[int], limit: int, kind: type) -> None:
    spill, rng = Spill(limit), np.random.default_rng(0)
    arrays = {
        f"{n}": rng.integers(0, 100, size // np.dtype(kind).itemsize).astype(kind) for n, size in enumerate(sizes)
    }
    for name, array in arrays.items():
        spill.put(name, array)
    assert list(spill.arrays) == list(arrays)
    for name, array in arrays.items():
        stored = spill.arrays[name]
        assert stored is array or in_a_file(stored)
        np.testing.assert_array_equal(stored, array)
    large = [each for each in spill.arrays.values() if each.nbytes >= SMALL_BYTES and not in_a_file(each)]
    assert sum(each.nbytes for each in large) <= limit


def test_arrays_beyond_the_limit_are_in_an_unnamed_file(tempdir: Path) -> None:
    spill = Spill(MEGABYTE)
    tracemalloc.start()
    for number in range(40):
        spill.put(f"{number}", np.full((512, 512), number, np.float32))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * MEGABYTE
    assert [float(array[-1, -1]) for array in spill.arrays.values()] == list(range(40))
    assert not list(tempdir.iterdir())
    with pytest.raises(ValueError, match="read-only"):
        spill.arrays["30"][0, 0] = 1


def test_views_and_texts_are_returned_unchanged() -> None:
    spill, array = Spill(0), np.arange(512 * 512, dtype=np.float32).reshape(512, 512)
    spill.put("a", array[::2].T)
    spill.put("text", np.array("seven" * SMALL_BYTES))
    np.testing.assert_array_equal(spill.arrays["a"], array[::2].T)
    assert str(spill.arrays["text"]) == "seven" * SMALL_BYTES


@pytest.mark.parametrize("limit", [0, MEGABYTE])
def test_reserved_array_is_zero_until_filled(limit: int) -> None:
    spill = Spill(limit)
    rows = spill.allocate("a", (300, 256), np.float32)
    assert rows.shape == (300, 256) and rows.dtype == np.float32 and not rows.any() and in_a_file(rows) == (limit == 0)
    rows[100:] = 7
    release(rows)
    assert spill.arrays["a"][:100].sum() == 0 and spill.arrays["a"][100:].min() == 7
    spill.clear()
    assert not spill.arrays and rows[299, 255] == 7, "who still has an array may read it"


def test_arrays_outlive_their_spill_and_can_be_pickled() -> None:
    spill = Spill(0)
    spill.put("a", np.arange(100_000))
    array = spill.arrays["a"]
    del spill
    assert array[99_999] == 99_999
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(array)), np.arange(100_000))


def test_full_disk_raises_one_line_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(
        Unavailable, match=r"^there is no room for 1 MB of temporary files \(No space left on device\); "
    ):
        Spill(0).put("a", np.zeros(125_000))


def test_recorder_spills_to_a_file_without_changing_the_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {f"encoder.layers.{n}": np.full((256, 256), n, np.float32) for n in range(8)}

    def recorded() -> Trace:
        recorder = Recorder(StageFilter("*"))
        for stage, value in values.items():
            assert recorder.put(stage, value) is value
        return Trace(recorder.stages, {})

    in_memory = recorded()
    monkeypatch.setattr("workbench.trace.spill.MEMORY_BYTES", 3 * 256 * 256 * 4)
    spilled = recorded()
    assert [in_a_file(array) for array in spilled.values()] == [False] * 3 + [True] * 5
    assert (
        in_memory.save(tmp_path / "a.safetensors").read_bytes() == spilled.save(tmp_path / "b.safetensors").read_bytes()
    )


def test_killed_process_leaves_no_temporary_file(tempdir: Path) -> None:
    code = f"""
        import signal, sys, tempfile
        tempfile.tempdir = {str(tempdir)!r}
        import numpy as np
        from workbench.trace.spill import Spill
        kept = Spill(0)
        kept.put("a", np.ones(1_000_000))
        print(kept.arrays["a"].sum(), flush=True)
        signal.pause()
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout and process.stdout.readline() == b"1000000.0\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert not list(tempdir.iterdir())
