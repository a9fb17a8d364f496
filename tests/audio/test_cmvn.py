"""CMVN: the published file, the decoy vectors of its first block, statistics, and damaged files."""

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.support.shared_data import shared
from workbench.audio.cmvn import Cmvn, read_am_mvn, read_cmvn_ark
from workbench.core.errors import BadInput

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


def test_am_mvn_vectors_are_found_by_tag_in_any_order(tmp_path: Path) -> None:
    cmvn = read_am_mvn(write(tmp_path, GOOD))
    assert cmvn.shift.tolist() == [-8.5, -9.25, -10.0]
    assert cmvn.scale.tolist() == [0.5, 0.25, 0.125]
    assert cmvn.shift.dtype == cmvn.scale.dtype == np.float32
    lines = GOOD.splitlines()
    swapped = "\n".join([lines[0], *lines[5:7], *lines[3:5], *lines[1:3], lines[7]])
    assert read_am_mvn(write(tmp_path, swapped)).shift.tolist() == cmvn.shift.tolist()


def test_am_mvn_without_line_ends_or_learning_rates_is_read(tmp_path: Path) -> None:
    text = GOOD.replace("\n", " ").replace("<LearnRateCoef> 0 ", "")
    assert read_am_mvn(write(tmp_path, text)).scale.tolist() == [0.5, 0.25, 0.125]


def test_cmvn_adds_the_shift_then_multiplies_by_the_scale() -> None:
    cmvn = Cmvn(np.array([-1, -2], dtype=np.float32), np.array([2, 0.5], dtype=np.float32))
    features = np.array([[1, 2], [2, 6]], dtype=np.float32)
    normalised = cmvn.apply(features)
    assert normalised.tolist() == [[0, 0], [2, 2]] and normalised.dtype == np.float32
    assert features.tolist() == [[1, 2], [2, 6]]
    with pytest.raises(BadInput, match="2 values does not fit features of width 3"):
        cmvn.apply(np.zeros((1, 3), dtype=np.float32))


def test_published_fsmn_vad_am_mvn_is_read() -> None:
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
        ("<Rescale> 3 3", f"<Rescale> {'1' * 5000} 3", "no complete vector in brackets after <Rescale>"),
        ("0.25", "0.25x", "not a number after <Rescale>"),
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
def test_errors_of_damaged_files_name_the_fault(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in GOOD
    path = write(tmp_path, GOOD.replace(old, new))
    with pytest.raises(BadInput) as caught:
        read_am_mvn(path)
    assert words in str(caught.value) and "am.mvn" in str(caught.value) and "\n" not in str(caught.value)


def test_binary_missing_or_directory_am_mvn_raises_an_error(tmp_path: Path) -> None:
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


# Kaldi statistics ----------------------------------------------------------------------------------------------------

SUMS = np.array([[20.0, -4.0, 2.0], [218.0, 10.0, 0.0]])  # of two frames: means 10 and -2, variances 9 and 1


def binary(sums: np.ndarray = SUMS, kind: str = "DM", key: str = "") -> bytes:
    header = f"{key}\0B{kind} ".encode() + struct.pack("<bibi", 4, sums.shape[0], 4, sums.shape[1])
    return header + sums.astype("<f8" if kind == "DM" else "<f4").tobytes()


def ark(folder: Path, content: bytes) -> Path:
    (folder / "cmvn.ark").write_bytes(content)
    return folder / "cmvn.ark"


@pytest.mark.parametrize(
    "content",
    [
        binary(),
        binary(kind="FM"),
        binary(key="global "),
        b" [\n  20 -4 2\n  218 10 0 ]\n",
        b"global  [\n  2e1 -4. 2\n  218 10 0 ]\n",
    ],
    ids=["double", "float", "with a key", "text", "text with a key"],
)
def test_kaldi_cmvn_statistics_are_read_in_every_matrix_format(tmp_path: Path, content: bytes) -> None:
    cmvn = read_cmvn_ark(ark(tmp_path, content))
    assert cmvn.shift.tolist() == [-10, 2] and cmvn.shift.dtype == np.float32
    np.testing.assert_allclose(cmvn.scale, [1 / 3, 1], rtol=1e-7)
    np.testing.assert_allclose(cmvn.apply(np.float32([[13, -3]])), [[1, -1]], rtol=1e-6)


@given(
    hnp.arrays(np.float64, st.tuples(st.integers(2, 30), st.integers(1, 6)), elements=st.floats(-30, 30)),
    st.sampled_from(["DM", "FM"]),
)
def test_normalised_features_have_mean_zero_and_variance_one(
    tmp_path_factory: pytest.TempPathFactory, frames: np.ndarray, kind: str
) -> None:
    sums = np.zeros((2, frames.shape[1] + 1))
    sums[0, :-1], sums[1, :-1], sums[0, -1] = frames.sum(axis=0), (frames**2).sum(axis=0), len(frames)
    cmvn = read_cmvn_ark(ark(tmp_path_factory.getbasetemp(), binary(sums, kind)))
    normalised = cmvn.apply(frames)
    wide = frames.std(axis=0) > 0.5  # the variance is a difference of large sums
    tolerance = 1e-4 if kind == "DM" else 2e-2
    np.testing.assert_allclose(normalised.mean(axis=0)[wide], 0, atol=tolerance)
    np.testing.assert_allclose(normalised.std(axis=0)[wide], 1, atol=tolerance)


def test_constant_feature_gets_the_minimum_variance(tmp_path: Path) -> None:
    cmvn = read_cmvn_ark(ark(tmp_path, binary(np.array([[6.0, 3.0], [12.0, 0.0]]))))
    assert cmvn.shift.tolist() == [-2] and cmvn.scale.tolist() == [pytest.approx(1e10)]


GOOD_ARK = binary()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "holds no Kaldi matrix"),
        (b"\xff\xfe\0\1" * 50, "holds no Kaldi matrix"),
        (b"[ 1 2 3", "holds no Kaldi matrix"),
        (GOOD_ARK[:4], "b'DM' where a Kaldi matrix of floats has FM or DM"),
        (GOOD_ARK.replace(b"DM ", b"CM "), "b'CM ' where a Kaldi matrix of floats has FM or DM"),
        (GOOD_ARK[:9], "rows and columns of its Kaldi matrix cannot be read"),
        (GOOD_ARK.replace(b"\4", b"\10"), "rows and columns of its Kaldi matrix cannot be read"),
        (GOOD_ARK[:-1], "2 rows and 3 columns and holds 47 bytes of values; expected 48"),
        (GOOD_ARK + b"\0", "holds 49 bytes of values; expected 48"),
        (GOOD_ARK.replace(b"DM ", b"FM "), "holds 48 bytes of values; expected 24"),
        (b"\0BDM " + struct.pack("<bibi", 4, -2, 4, -3) + bytes(48), "-2 rows and -3 columns"),
        (b"\0BDM " + struct.pack("<bibi", 4, 2**31 - 1, 4, 2**31 - 1), "holds 0 bytes"),
        (b"[ 1 2 3\n 4 5 ]", "rows of 3 values and rows of other lengths"),
        (b"[ 1 2 x\n 4 5 6 ]", "a value that is not a number"),
        (b"[ ]", "a matrix of shape (0, 0); CMVN statistics are (2, features + 1)"),
        (binary(np.ones((3, 4))), "a matrix of shape (3, 4)"),
        (binary(np.ones((2, 1))), "a matrix of shape (2, 1)"),
        (binary(SUMS * np.nan), "a value that is not finite"),
        (binary(SUMS * [1, 1, 0]), "sums are over 0 frames; expected at least 1"),
        (binary(SUMS * [1, 1, -1]), "sums are over -2 frames"),
        (binary(SUMS * [1e200, 1, 1]), "sums too large for the 2 frames"),
    ],
    ids=lambda value: value if isinstance(value, str) else "file",
)
def test_errors_of_damaged_statistics_name_the_fault(tmp_path: Path, content: bytes, words: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_cmvn_ark(ark(tmp_path, content))
    assert words in str(caught.value) and "cmvn.ark" in str(caught.value) and "\n" not in str(caught.value)


def test_missing_or_too_large_cmvn_statistics_raise_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        read_cmvn_ark(tmp_path / "cmvn.ark")
    with ark(tmp_path, b"").open("wb") as file:
        file.truncate(17 << 20)
    with pytest.raises(BadInput, match=r"^cmvn\.ark is far too large"):
        read_cmvn_ark(tmp_path / "cmvn.ark")


@given(st.binary(max_size=80))
def test_arbitrary_cmvn_ark_bytes_give_a_cmvn_or_a_one_line_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    sentence = ""
    try:
        read_cmvn_ark(ark(tmp_path_factory.getbasetemp(), b"\0BFM \4" + content))
    except BadInput as error:
        sentence = str(error)
    assert "\n" not in sentence
