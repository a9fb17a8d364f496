"""CMVN: the published file, the trap of its first block, and every way a file can be damaged."""

from pathlib import Path

import numpy as np
import pytest

from tests.shared_data import shared
from workbench.audio.cmvn import Cmvn, read_am_mvn
from workbench.errors import BadInput

GOOD = """<Nnet>
<Splice> 3 3
[ 0 ]
<AddShift> 3 3
<LearnRateCoef> 0 [ -8.5 -9.25 -1e1 ]
<Rescale> 3 3
<LearnRateCoef> 0 [ 0.5 0.25 0.125 ]
</Nnet>
"""


def write(path: Path, text: str) -> Path:
    (path / "am.mvn").write_text(text)
    return path / "am.mvn"


def test_vectors_are_found_by_tag_not_by_place(tmp_path: Path) -> None:
    cmvn = read_am_mvn(write(tmp_path, GOOD))
    assert cmvn.shift.tolist() == [-8.5, -9.25, -10.0]
    assert cmvn.scale.tolist() == [0.5, 0.25, 0.125]
    assert cmvn.shift.dtype == cmvn.scale.dtype == np.float32
    lines = GOOD.splitlines()
    swapped = "\n".join([lines[0], *lines[5:7], *lines[3:5], *lines[1:3], lines[7]])
    assert read_am_mvn(write(tmp_path, swapped)).shift.tolist() == cmvn.shift.tolist()


def test_layout_without_line_ends_or_learning_rates(tmp_path: Path) -> None:
    text = GOOD.replace("\n", " ").replace("<LearnRateCoef> 0 ", "")
    assert read_am_mvn(write(tmp_path, text)).scale.tolist() == [0.5, 0.25, 0.125]


def test_applied_as_shift_then_scale() -> None:
    cmvn = Cmvn(np.array([-1, -2], dtype=np.float32), np.array([2, 0.5], dtype=np.float32))
    features = np.array([[1, 2], [2, 6]], dtype=np.float32)
    normalised = cmvn.apply(features)
    assert normalised.tolist() == [[0, 0], [2, 2]] and normalised.dtype == np.float32
    assert features.tolist() == [[1, 2], [2, 6]]
    with pytest.raises(BadInput, match="2 values does not fit features of width 3"):
        cmvn.apply(np.zeros((1, 3), dtype=np.float32))


def test_the_published_file() -> None:
    cmvn = read_am_mvn(shared("fsmn-vad/am.mvn"))
    assert cmvn.width == 400
    assert -16 < cmvn.shift.min() < cmvn.shift.max() < -8
    assert 0.14 < cmvn.scale.min() < cmvn.scale.max() < 0.16
    np.testing.assert_array_equal(cmvn.shift, np.tile(cmvn.shift[:80], 5))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("<AddShift> 3 3", "<Other> 3 3", "has no <AddShift>"),
        ("<Rescale>", "", "has no <Rescale>"),
        ("-1e1 ]", "-1e1", "no complete vector in brackets after <AddShift>"),
        ("0.5 0.25 0.125 ]", "0.5 0.2", "no complete vector in brackets after <Rescale>"),
        ("-9.25 ", "", "states <AddShift> 3 3 and holds 2 values; expected 3"),
        ("<Rescale> 3 3", "<Rescale> 3 4", "states <Rescale> 3 4"),
        ("0.25", "0.25x", "no number after <Rescale>"),
        ("0.25", "nan", "not finite after <Rescale>"),
        ("-9.25", "1e99", "not finite after <AddShift>"),
        ("0.25", "0", "scales feature 1 by 0 in <Rescale>"),
        ("0.25", "-0.25", "scales feature 1 by -0.25"),
        (
            "<Rescale> 3 3\n<LearnRateCoef> 0 [ 0.5",
            "<Rescale> 2 2\n<LearnRateCoef> 0 [",
            "3 values after <AddShift> and 2",
        ),
        (GOOD, "", "has no <AddShift>"),
        (GOOD, "[ 0 ] [ 1 2 3 ] [ 1 2 3 ]", "has no <AddShift>"),
    ],
)
def test_damaged_files_say_what_is_wrong(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in GOOD
    path = write(tmp_path, GOOD.replace(old, new))
    with pytest.raises(BadInput) as caught:
        read_am_mvn(path)
    assert words in str(caught.value) and "am.mvn" in str(caught.value) and "\n" not in str(caught.value)


def test_files_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "am.mvn").write_bytes(b"\xff\xfe\0\1" * 50)
    with pytest.raises(BadInput, match="it is not text"):
        read_am_mvn(tmp_path / "am.mvn")
    with pytest.raises(BadInput, match="cannot be read"):
        read_am_mvn(tmp_path / "missing.mvn")
    with pytest.raises(BadInput, match="cannot be read"):
        read_am_mvn(tmp_path)


def test_unusable_vectors_are_refused() -> None:
    one, two = np.ones(1, dtype=np.float32), np.ones(2, dtype=np.float32)
    for shift, scale in ((one, two), (two, -two), (two * np.nan, two), (two[np.newaxis], two[np.newaxis])):
        with pytest.raises(BadInput):
            Cmvn(shift, scale)
