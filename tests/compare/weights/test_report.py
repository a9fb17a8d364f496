"""The sentence on a weight file: differences with one cause are reported together."""

from __future__ import annotations

import json

from workbench.compare.weights.report import WeightReport
from workbench.compare.weights.tensor import WeightDifference

PARTS = ("attn_q.weight", "attn_k.weight", "ffn_up.weight")


def holds(tensor: str, other: str) -> WeightDifference:
    return WeightDifference(tensor, "other tensor", f"holds {other}", other)


def sentence(*differences: WeightDifference, keys: tuple[str, ...] = (), compared: int = 40) -> str:
    return WeightReport("a.gguf", compared, differences, keys).sentence


def test_file_without_differences_is_reported_as_equal() -> None:
    assert sentence() == "a.gguf has the checkpoint's weights: 40 tensors, to within rounding."


def test_exchanged_tensors_or_layers_are_reported_as_one_fault() -> None:
    assert sentence(holds("q", "k"), holds("k", "q")) == "In a.gguf, q and k are exchanged."
    assert sentence(holds("q", "k")) == "In a.gguf, q holds k."
    layers = [holds(f"blk.{a}.{part}", f"blk.{b}.{part}") for part in PARTS for a, b in ((3, 4), (4, 3))]
    assert sentence(*layers) == (
        "In a.gguf, layers 3 and 4 are exchanged (blk.3.attn_q.weight holds blk.4.attn_q.weight and 2 more)."
    )
    names = [holds(f"blk.{n}.{a}", f"blk.{n}.{b}") for n in range(3) for a, b in (("gate", "up"), ("up", "gate"))]
    assert (
        sentence(*names) == "In a.gguf, blk.N.gate and blk.N.up are exchanged (blk.0.gate holds blk.0.up and 2 more)."
    )


def test_tensors_with_the_same_difference_are_grouped() -> None:
    layers = [holds(f"blk.3.{part}", f"blk.4.{part}") for part in PARTS]
    assert sentence(*layers) == (
        "In a.gguf, 3 tensors of layer 3 are those of layer 4 (blk.3.attn_q.weight holds blk.4.attn_q.weight, ...)."
    )
    scaled = [WeightDifference(f"blk.{n}.norm.weight", "factor", "is 2 times the checkpoint's") for n in range(3)]
    assert sentence(*scaled) == (
        "In a.gguf, 3 tensors blk.N.norm.weight differ alike: blk.0.norm.weight is 2 times the checkpoint's."
    )


def test_metadata_keys_come_first_and_further_differences_are_counted() -> None:
    differences = [WeightDifference(name, "values", "differs") for name in "abcde"]
    assert sentence(*differences, keys=("base is 1, the checkpoint's 2",)) == (
        "In a.gguf, base is 1, the checkpoint's 2; a differs; b differs; c differs; and 2 more differences."
    )


def test_file_of_another_checkpoint_is_reported_as_such() -> None:
    differences = [WeightDifference(str(n), "values", "differs") for n in range(30)]
    assert sentence(*differences).startswith("a.gguf has other weights than the checkpoint: 30 of 40 tensors differ")


def test_weight_report_survives_a_json_round_trip() -> None:
    report = WeightReport("a.gguf", 3, (holds("q", "k"),), ("base is 1",))
    assert WeightReport.from_dict(json.loads(json.dumps(report.to_dict()))) == report
