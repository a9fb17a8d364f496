"""Partial stages of a trace: the reference is cut to the same rows and columns before comparison."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workbench.compare import compare, judge, noise_or_bug
from workbench.core.errors import BadInput
from workbench.trace.cuts import Cut, cut_like, cuts_of
from workbench.trace.mapping import read_mapping
from workbench.trace.read import read_trace
from workbench.trace.trace import Trace

X = np.arange(24.0).reshape(4, 6)


def read(folder: Path, stages: dict[str, np.ndarray], rule: str) -> Trace:
    path = Trace(stages, {}).save(folder / "port.safetensors")
    (folder / "names.toml").write_text(f"[stages]\nlogits = {{ {rule} }}", encoding="utf-8")
    return read_trace(path, read_mapping(folder / "names.toml"))


@pytest.mark.parametrize(
    "rule, expected, description",
    [
        ("reference_rows = [-1]", X[-1:], "rows from -1 on"),
        ("reference_rows = [1, 3]", X[1:3], "rows 1 to 3"),
        ("reference_columns = [0, -2]", X[:, :-2], "columns 0 to -2"),
        ("reference_rows = [0, 2], reference_columns = [3]", X[:2, 3:], "rows 0 to 2 and columns from 3 on"),
    ],
)
def test_reference_is_cut_to_the_rows_and_columns_of_the_candidate(
    tmp_path: Path, rule: str, expected: np.ndarray, description: str
) -> None:
    port = read(tmp_path, {"logits": expected, "a": X}, rule)
    reference = Trace({"a": X, "logits": X}, {"dtype": "float32"})
    cut = pickle.loads(pickle.dumps(cut_like(reference, port)))
    np.testing.assert_array_equal(cut["logits"], expected)
    np.testing.assert_array_equal(cut["a"], X)
    assert list(cut) == ["a", "logits"] and cut.meta == reference.meta and str(cuts_of(port)["logits"]) == description
    comparison = compare(reference, port)
    assert judge(comparison).sentence.startswith("Identical: 2 stages")
    assert (
        f"compared with a part of the reference, as the candidate has no more: logits ({description})"
        in comparison.warnings
    )


def test_rows_are_cut_from_candidate_and_reference(tmp_path: Path) -> None:
    port = read(tmp_path, {"theirs": X + 0.5}, "from = 'theirs', rows = [-1], reference_rows = [-1]")
    comparison = compare(Trace({"logits": X}, {}), port)["logits"]
    assert comparison.shapes == ((1, 6), (1, 6)) and comparison.numbers and comparison.numbers.max_abs == 0.5


def test_float64_is_cut_like_the_reference(tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    exact = draw.standard_normal((7, 9))
    reference = Trace({"a": exact.astype(np.float32), "logits": exact.astype(np.float32)}, {"dtype": "float32"})
    truth = Trace({"a": exact, "logits": exact}, {"dtype": "float64"})
    port = read(tmp_path, {"logits": reference["logits"][-1:] * np.float32(1.001)}, "reference_rows = [-1]")
    assert noise_or_bug(reference, port, truth).first_bug
    port = read(tmp_path, {"logits": reference["logits"][-1:] * np.float32(1 + 2e-7)}, "reference_rows = [-1]")
    assert noise_or_bug(reference, port, truth).first_bug is None


def test_part_of_another_size_than_mapped_is_a_shape_mismatch(tmp_path: Path) -> None:
    port = read(tmp_path, {"logits": X[:2]}, "reference_rows = [-1]")
    assert compare(Trace({"logits": X}, {}), port)["logits"].mismatch


def test_cut_leaves_scalars_and_missing_stages_unchanged(tmp_path: Path) -> None:
    assert Cut((0, 1), (0, 1)).apply(np.array(3.0)) == 3.0
    reference = Trace({"a": X}, {})
    assert cut_like(reference, Trace({}, {"cuts": {"logits": {"rows": [-1]}}})) is reference


def test_invalid_cuts_error_names_the_file(tmp_path: Path) -> None:
    trace = read_trace(Trace({"a": X}, {"cuts": 3}).save(tmp_path / "port.safetensors"))
    with pytest.raises(
        BadInput, match=r"^the metadata of port\.safetensors have cuts = 3; expected a table of stages$"
    ):
        cuts_of(trace)


@pytest.mark.parametrize("cuts", [[1], {"logits": 3}, {"logits": {}}, {"logits": {"rows": "x"}}, {"a": {"depth": [1]}}])
def test_invalid_cuts_metadata_are_refused(cuts: Any) -> None:
    with pytest.raises(BadInput, match="the metadata of a trace"):
        cuts_of(Trace({}, {"cuts": cuts}))
