"""The CMVN of GGUF files: valid vectors, FunASR's unusable ones, and a file named in the configuration."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.support.gguf_files import random_cmvn
from workbench.audio.cmvn import Cmvn, read_am_mvn
from workbench.core.errors import BadInput
from workbench.formats.gguf_file import GgufFile, read_gguf
from workbench.runtimes.gguf.networks.cmvn import am_mvn, read_cmvn


def file_with_vectors(
    path: Path, shift: np.ndarray | None, scale: np.ndarray | None, architecture: str = "sensevoice-small"
) -> GgufFile:
    writer = GGUFWriter(path, architecture)
    for name, values in (("cmvn.shift", shift), ("cmvn.scale", scale)):
        if values is not None:
            writer.add_tensor(name, values.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return read_gguf(path)


@pytest.mark.parametrize("architecture", ["sensevoice-small", "paraformer", "fsmn-vad"])
def test_valid_cmvn_vectors_are_read(tmp_path: Path, architecture: str) -> None:
    expected = random_cmvn(560)
    cmvn, note = read_cmvn(file_with_vectors(tmp_path / "it.gguf", expected.shift, expected.scale, architecture))
    assert cmvn is not None and note is None
    np.testing.assert_array_equal(cmvn.shift, expected.shift)
    np.testing.assert_array_equal(cmvn.scale, expected.scale)


def test_a_file_without_vectors_has_no_cmvn(tmp_path: Path) -> None:
    assert read_cmvn(file_with_vectors(tmp_path / "it.gguf", None, None)) == (None, None)


@pytest.mark.parametrize(
    ("shift", "scale"),
    [
        (np.zeros(1), np.full(560, -9.0)),  # the script writes these
        (np.full(560, -9.0), np.full(560, -9.0)),
        (np.zeros(560), np.zeros(560)),
        (np.zeros(560), np.full(560, np.nan)),
    ],
)
def test_unusable_cmvn_vectors_of_sensevoice_are_ignored_with_a_note(
    tmp_path: Path, shift: np.ndarray, scale: np.ndarray
) -> None:
    cmvn, note = read_cmvn(file_with_vectors(tmp_path / "it.gguf", shift, scale))
    assert cmvn is None
    assert note is not None and note.startswith("it.gguf carries no usable CMVN") and "not normalised" in note
    with pytest.raises(BadInput, match=r"tensors cmvn.shift and cmvn.scale in p.gguf cannot be used: CMVN"):
        read_cmvn(file_with_vectors(tmp_path / "p.gguf", shift, scale, "paraformer"))


def test_incomplete_cmvn_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"it.gguf has no tensor cmvn.scale"):
        read_cmvn(file_with_vectors(tmp_path / "it.gguf", np.zeros(560), None))
    with pytest.raises(BadInput, match=r"cannot be used: CMVN shift and scale are two equally long vectors"):
        read_cmvn(file_with_vectors(tmp_path / "it.gguf", np.zeros(80), np.ones(560)))


def test_cmvn_file_named_in_the_configuration_is_used(tmp_path: Path) -> None:
    file = file_with_vectors(tmp_path / "it.gguf", np.zeros(1), np.full(4, -9.0))
    expected = random_cmvn(4)
    (tmp_path / "am.mvn").write_text(am_mvn(expected))
    cmvn, note = read_cmvn(file, tmp_path / "am.mvn")
    assert cmvn is not None and note is None
    np.testing.assert_array_equal(cmvn.scale, expected.scale)
    (tmp_path / "cmvn.ark").write_text("[ 0 2\n 8 0 ]")  # mean 0 and variance 4 over two frames
    cmvn, note = read_cmvn(file, tmp_path / "cmvn.ark")
    assert cmvn is not None and note is None
    assert (cmvn.shift.tolist(), cmvn.scale.tolist()) == ([0.0], [0.5])


FINITE = st.floats(-(2.0**100), 2.0**100, width=32)


@given(
    shift=arrays(np.float32, 7, elements=FINITE),
    scale=arrays(np.float32, 7, elements=st.floats(2.0**-100, 2.0**100, width=32)),
)
def test_written_cmvn_vectors_read_back_bit_exact(
    tmp_path_factory: pytest.TempPathFactory, shift: np.ndarray, scale: np.ndarray
) -> None:
    path = tmp_path_factory.getbasetemp() / "written.mvn"
    path.write_text(am_mvn(Cmvn(shift, scale)))
    cmvn = read_am_mvn(path)
    np.testing.assert_array_equal(cmvn.shift, shift)
    np.testing.assert_array_equal(cmvn.scale, scale)
