"""GGUF files are written in chunks of rows, completely or not at all, and no partial file remains."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections import namedtuple
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.conversion.reading import Read, stored_as
from workbench.conversion import writer
from workbench.conversion.plan import Plan, PlannedTensor
from workbench.conversion.writer import write
from workbench.core.errors import BadInput, Unavailable
from workbench.formats.gguf_file import read_gguf
from workbench.formats.quantization import TYPES, Kind

SHAPE = (9, 96)
VALUES = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)


def plan_of(
    values: np.ndarray = VALUES, before: Callable[[int], None] = lambda first: None, **settings: object
) -> Plan:
    """Returns a plan of one matrix; it calls `before` with the first row of each chunk before reading the chunk."""

    def rows(first: int, last: int) -> np.ndarray:
        before(first)
        return values[first:last]

    tensor = PlannedTensor("it.weight", values.shape, Kind.MATRIX, rows)
    return Plan("made-up", {}, [tensor], **settings)  # type: ignore[arg-type]


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rows at a time."""
    monkeypatch.setattr(writer, "CHUNK_VALUES", 2 * SHAPE[1] + 1)


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("name", TYPES)
def test_writing_in_chunks_equals_quantising_the_whole_tensor(name: str, tmp_path: Path) -> None:
    first_rows: list[int] = []
    progress: list[tuple[float, str]] = []
    (path,) = write(
        [plan_of(before=first_rows.append)], name, tmp_path / "it.gguf", lambda *each: progress.append(each)
    )
    read = Read(path)
    assert first_rows == [0, 2, 4, 6, 8]
    assert read.types == {"it.weight": name}
    np.testing.assert_array_equal(
        read.stored["it.weight"].view(np.uint8), stored_as(VALUES, name).view(np.uint8).reshape(9, -1)
    )
    assert [fraction for fraction, _ in progress] == sorted(fraction for fraction, _ in progress) and len(progress) == 5
    assert 0.9 < progress[-1][0] <= 1.0 and f"writing {name}" in progress[0][1]
    assert [each.name for each in tmp_path.iterdir()] == ["it.gguf"]
    assert path.stat().st_mode & 0o777 == 0o666 & ~current_mask()


def current_mask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, RuntimeError])
def test_interrupted_writing_leaves_no_new_file(error: type[BaseException], tmp_path: Path) -> None:
    out = tmp_path / "it.gguf"
    out.write_bytes(b"what was there")
    listings: list[list[str]] = []

    def interrupt(first: int) -> None:
        if first == 4:
            listings.append(sorted(path.name for path in tmp_path.iterdir()))
            raise error

    with pytest.raises(error):
        write([plan_of(), plan_of(before=interrupt, suffix="-second")], "f32", out)
    assert len(listings[0]) == 3  # both are being written under other names
    assert [path.name for path in tmp_path.iterdir()] == ["it.gguf"]
    assert out.read_bytes() == b"what was there"


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_non_finite_values_are_refused(name: str, value: float, tmp_path: Path) -> None:
    values = VALUES.copy()
    values[8, 95] = value
    with pytest.raises(BadInput, match=r"it\.weight holds values that are not finite"):
        write([plan_of(values)], name, tmp_path / "it.gguf")
    assert not list(tmp_path.iterdir())


def test_values_beyond_float16_are_refused_for_types_with_float16_scales(tmp_path: Path) -> None:
    values = VALUES.copy()
    values[3, 3] = -70000.0
    for name in TYPES:
        if name in ("f32", "bf16"):
            write([plan_of(values)], name, tmp_path / "it.gguf")
        else:
            with pytest.raises(BadInput, match=f"70000, which is beyond {name}"):
                write([plan_of(values)], name, tmp_path / "it.gguf")


def test_values_beyond_bfloat16_are_refused_for_bf16(tmp_path: Path) -> None:
    values = VALUES.copy()
    values[3, 3] = np.finfo(np.float32).max
    write([plan_of(values)], "f32", tmp_path / "it.gguf")
    for name in ("bf16", "q8_0"):
        with pytest.raises(BadInput, match=rf"3.40282e\+38, which is beyond {name}; convert to f32 instead"):
            write([plan_of(values)], name, tmp_path / "it.gguf")
    values[3, 3] = largest = 255 * 2.0**120
    (path,) = write([plan_of(values)], "bf16", tmp_path / "it.gguf")
    assert read_gguf(path).array("it.weight")[3, 3] == largest


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", TYPES)
def test_numbers_without_reciprocal_become_zero_in_types_with_scales(name: str, tmp_path: Path) -> None:
    values = 1e-41 * VALUES
    (path,) = write([plan_of(values)], name, tmp_path / "it.gguf")
    found = read_gguf(path).array("it.weight")
    np.testing.assert_array_equal(found, values if name == "f32" else 0)


@pytest.mark.parametrize("value", [1 << 32, -1, 1e39, float("inf")])
def test_numbers_of_keys_that_gguf_cannot_hold_are_refused(value: float, tmp_path: Path) -> None:
    plan = replace(plan_of(), values={"it.context_length": value})
    with pytest.raises(BadInput, match=r"the file's key it\.context_length would be .*; expected a number from"):
        write([plan], "f32", tmp_path / "it.gguf")
    assert not list(tmp_path.iterdir())


def test_link_stays_a_link_to_the_new_file(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    link, target = tmp_path / "it.gguf", tmp_path / "disk" / "target.gguf"
    link.symlink_to(target)
    for content in (None, b"an older file"):
        if content is not None:
            target.write_bytes(content)
        assert write([plan_of()], "f32", link) == [link]
        assert link.is_symlink() and target.read_bytes().startswith(b"GGUF")
    assert [path.name for path in (tmp_path / "disk").iterdir()] == ["target.gguf"]


def test_invalid_output_paths_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    for out, words in (
        (tmp_path / "missing" / "it.gguf", "there is no folder"),
        (tmp_path / "file" / "it.gguf", "there is no folder"),
        (tmp_path / "folder", "is a directory"),
        (tmp_path / ("x" * 300), "could not be written: File name too long"),
    ):
        with pytest.raises(BadInput, match=words):
            write([plan_of()], "f32", out)
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    with pytest.raises(BadInput, match="cannot be written to"):
        write([plan_of()], "f32", tmp_path / "it.gguf")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_full_disk_raises_an_error_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9 - 1000, 1000))
        with pytest.raises(Unavailable, match=r"has 0 MB left and it\.gguf needs 0 MB; make room there"):
            write([plan_of()], "f32", tmp_path / "it.gguf")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Unavailable, match="the disk is full"):
        write([plan_of()], "f32", tmp_path / "it.gguf")
    assert not list(tmp_path.iterdir())


LARGE = """
import sys
from pathlib import Path
import torch
from workbench.conversion.plan import Plan
from workbench.conversion.tensors import plan_tensors
from workbench.conversion.writer import write
from workbench.system.memory import peak_resident_bytes
from workbench.runtimes.pytorch.checkpoints.weights import read_state_dict

path = Path(sys.argv[1])
tensors = read_state_dict(path)
plan = Plan("made-up", {}, plan_tensors(tensors, path))
before = peak_resident_bytes()
write([plan], sys.argv[2], path.with_name("it.gguf"))
print(peak_resident_bytes() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which pages are mapped")
@pytest.mark.parametrize("name", ["f32", "q8_0"])
def test_peak_memory_is_far_below_the_largest_tensor(name: str, tmp_path: Path) -> None:
    import torch

    path = tmp_path / "model.pt"
    torch.save({"it.weight": torch.full((50_000, 2048), 0.5)}, path)  # 410 MB
    process = subprocess.run([sys.executable, "-c", LARGE, str(path), name], capture_output=True, text=True, check=True)
    path.unlink()
    (tmp_path / "it.gguf").unlink()
    assert int(process.stdout) < 80e6, f"grew by {int(process.stdout) / 1e6:.0f} MB"
