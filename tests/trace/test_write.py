"""Writing trace files: compatibility with the safetensors package, bounded memory, and no partial files left."""

from __future__ import annotations

import os
import pickle
import tracemalloc
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from safetensors import safe_open

from workbench.compare import read_trace
from workbench.core.errors import BadInput
from workbench.trace.write import discard_partial, trace_place, write_trace

TYPES = (np.float32, np.float64, np.float16, np.int64, np.int16, np.uint8, np.bool_)


@given(
    arrays=st.dictionaries(
        st.text("abc.", min_size=1, max_size=6),
        st.sampled_from(TYPES).flatmap(
            lambda kind: npst.arrays(kind, npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
        ),
        max_size=6,
    ),
    note=st.text(max_size=20),
)
def test_safetensors_package_reads_every_written_array(
    tmp_path_factory: pytest.TempPathFactory, arrays: dict[str, np.ndarray], note: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    write_trace(path, {**arrays, "text": np.array("七 one")}, {"note": note})
    with safe_open(str(path), framework="numpy") as file:
        assert set(file.keys()) == {*arrays, "text"}
        for name, array in arrays.items():
            stored = file.get_tensor(name)
            assert (stored.dtype, stored.shape, stored.tobytes()) == (array.dtype, array.shape, array.tobytes())
        assert file.get_tensor("text").tobytes().decode() == "七 one"
    trace = read_trace(path)
    assert list(trace) == [*arrays, "text"] and trace.meta == {"note": note}
    assert all(trace[name].flags.aligned for name in arrays)


class Counted(Mapping[str, np.ndarray]):
    """Arrays of a megabyte each, created on access."""

    def __getitem__(self, name: str) -> np.ndarray:
        return np.full(1 << 18, int(name), np.float32)

    def __iter__(self) -> Iterator[str]:
        return map(str, range(40))

    def __len__(self) -> int:
        return 40


def test_writing_holds_one_array_in_memory_at_a_time(tmp_path: Path) -> None:
    tracemalloc.start()
    path = write_trace(tmp_path / "t.safetensors", Counted(), {})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20
    assert [float(array[-1]) for array in read_trace(path).values()] == list(range(40))


class Failing(Counted):
    def __getitem__(self, name: str) -> np.ndarray:
        if name == "7":
            raise RuntimeError("gone")
        return super().__getitem__(name)


def test_failed_write_leaves_no_partial_file_and_keeps_the_older_file(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.safetensors", {"a": np.ones(3)}, {"is": "older"})
    with pytest.raises(RuntimeError, match="gone"):
        write_trace(path, Failing(), {})
    with pytest.raises(BadInput, match="stage b holds object"):
        write_trace(path, {"b": np.array([None])}, {})
    assert [each.name for each in tmp_path.iterdir()] == ["t.safetensors"]
    assert read_trace(path).meta == {"is": "older"}
    write_trace(path, {"a": np.zeros(3)}, {"is": "newer"})
    assert read_trace(path).meta == {"is": "newer"}


def test_partial_file_of_a_killed_writer_is_removed(tmp_path: Path) -> None:
    (tmp_path / "t.safetensors.partial").write_text("half")
    discard_partial(tmp_path / "t.safetensors")
    discard_partial(tmp_path / "none" / "t.safetensors")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("t.npz", "expected a name that ends in .safetensors"),
        ("", "it is a folder"),
        ("none/t.safetensors", "there is no folder"),
    ],
)
def test_trace_path_needs_the_safetensors_suffix_and_an_existing_folder(
    tmp_path: Path, name: str, sentence: str
) -> None:
    with pytest.raises(BadInput, match=sentence):
        trace_place(tmp_path / name)
    assert trace_place(tmp_path / "t.SafeTensors") == tmp_path / "t.SafeTensors"


def test_a_stored_trace_is_pickled_as_its_path(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.safetensors", {"a": np.ones(100_000)}, {"model": "m"})
    pickled = pickle.dumps(read_trace(path))
    assert len(pickled) < 1000
    loaded = pickle.loads(pickled)
    assert loaded.meta == {"model": "m"} and loaded["a"].sum() == 100_000


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real.safetensors", tmp_path / "link.safetensors"
    link.symlink_to(real)
    for value in (1.0, 2.0):
        write_trace(link, {"a": np.full(3, value)}, {})
        assert link.is_symlink() and (read_trace(real)["a"] == value).all()
    assert sorted(tmp_path.iterdir()) == [link, real]


def test_named_pipe_is_not_overwritten(tmp_path: Path) -> None:
    place = tmp_path / "pipe.safetensors"
    os.mkfifo(place)
    with pytest.raises(BadInput, match="it is a device or a pipe"):
        write_trace(place, {"a": np.zeros(2, np.float32)}, {})
    assert place.is_fifo()
