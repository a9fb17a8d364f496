"""Mapping files: array names and layouts of other programs converted to the workbench's stages."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest

from workbench.core.errors import BadInput
from workbench.trace.mapping import Rule, StageMapping, read_mapping

X = np.arange(24.0).reshape(4, 6)


def mapping(folder: Path, text: str, name: str = "names.toml") -> StageMapping:
    (folder / name).write_text(text, encoding="utf-8")
    return read_mapping(folder / name)


def test_mapping_renames_arrays_and_renumbers_layers(tmp_path: Path) -> None:
    names_of_stages = mapping(
        tmp_path,
        """
        [meta]
        dtype = "float16"
        [stages]
        "encoder.output" = "enc_out"
        "encoder.layers.{n}" = { from = "blk.{n}.out", first = 1 }
        """,
    )
    assert names_of_stages.meta == {"dtype": "float16"}
    names = ["blk.123.out", "blk.10.out", "blk.2.out", "blk.1.out", "blk.0.out", "blk.x.out", "enc_out", "logits"]
    assert [(each.stage, each.source) for each in names_of_stages.stages(names)] == [
        ("encoder.output", "enc_out"),
        ("encoder.layers.0", "blk.1.out"),
        ("encoder.layers.1", "blk.2.out"),
        ("encoder.layers.9", "blk.10.out"),
        ("encoder.layers.122", "blk.123.out"),
        ("blk.0.out", "blk.0.out"),
        ("blk.x.out", "blk.x.out"),
        ("logits", "logits"),
    ]


def test_json_and_toml_mappings_give_equal_rules(tmp_path: Path) -> None:
    content = {"stages": {"logits": {"from": "ctc", "shape": [4, -1], "transpose": True, "rows": [0, -1]}}}
    toml = mapping(tmp_path, '[stages]\n"logits" = { from = "ctc", shape = [4, -1], transpose = true, rows = [0, -1] }')
    assert mapping(tmp_path, json.dumps(content), "names.json").rules == toml.rules
    assert mapping(tmp_path, json.dumps(content), "names.JSON").rules == toml.rules


@pytest.mark.parametrize(
    "rule, expected",
    [
        (Rule("a", "b"), X),
        (Rule("a", "b", shape=(6, 4)), X.reshape(6, 4)),
        (Rule("a", "b", shape=(-1,)), X.ravel()),
        (Rule("a", "b", transpose=True), X.T),
        (Rule("a", "b", shape=(2, 3, 4), axes=(2, 0, 1)), X.reshape(2, 3, 4).transpose(2, 0, 1)),
        (Rule("a", "b", shape=(1, 4, 6), squeeze=True), X),
        (Rule("a", "b", shape=(2, 4, 3), axes=(1, 0, 2), join=True), X.reshape(2, 4, 3).swapaxes(0, 1).reshape(4, 6)),
        (Rule("a", "b", join=True), X.ravel()),
        (Rule("a", "b", shape=(4, 1, 6), squeeze=True, join=True), X.ravel()),
        (Rule("a", "b", rows=(1, 3), columns=(0, -2)), X[1:3, :-2]),
        (Rule("a", "b", shape=(6, 4), transpose=True, rows=(0, 2)), X.reshape(6, 4).T[:2]),
        (Rule("a", "b", rows=(-1,), columns=(2,)), X[-1:, 2:]),
        (Rule("a", "b", scale=0.5), X / 2),
    ],
)
def test_layout_rules_are_applied_in_order(rule: Rule, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(rule.apply(X), expected)
    assert rule.cut is None, "the reference is compared whole"


@pytest.mark.parametrize(
    "rule",
    [
        Rule("a", "b", shape=(5, 5)),
        Rule("a", "b", axes=(0, 1, 2)),
        Rule("a", "b", axes=(0, 0)),
        Rule("a", "b", shape=(-1,), join=True),
    ],
)
def test_layout_rule_that_does_not_fit_the_array_is_refused(rule: Rule) -> None:
    with pytest.raises(BadInput, match=r"^the mapping of a does not fit b of shape \(4, 6\): "):
        rule.apply(X)


@pytest.mark.parametrize(
    "text, message",
    [
        ("[stages", "the mapping file names.toml is not TOML: "),
        ("", "names.toml needs a table [stages], of our names and theirs"),
        ("stages = 3", "names.toml needs a table [stages], of our names and theirs"),
        ("[stage]\na = 'b'", "names.toml has the unknown entry 'stage'; expected [meta] and [stages]"),
        ("[stages]\na = 3", "'a' in names.toml is 3; expected the name of an array, or a table with from"),
        ("[stages]\na = { form = 'b' }", "'a' in names.toml has the unknown key 'form'; known are from, first, shape"),
        ("[stages]\na = { rows = 3 }", "'a' in names.toml has rows = 3; expected [begin, end]"),
        ("[stages]\na = { rows = [1, 2, 3] }", "expected [begin, end]"),
        ("[stages]\na = { shape = [1.5] }", "expected a list of whole numbers"),
        ("[stages]\na = { axes = [] }", "'a' in names.toml has axes = []; expected a list of whole numbers"),
        ("[stages]\na = { transpose = 1 }", "expected true or false"),
        ("[stages]\na = { first = true }", "expected a whole number"),
        ("[stages]\na = []", "'a' in names.toml is []; expected the name of an array, or a table with from"),
        ("[stages]\na = ['b', 3]", "'a' in names.toml is 3; expected the name of an array, or a table with from"),
        ("[stages]\na = { reference_rows = [3, 3] }", "'a' in names.toml has reference_rows = [3, 3]; expected [begin"),
        ("[stages]\na = { reference_columns = [] }", "expected [begin, end] or [begin]"),
        ("[stages]\na = { scale = 'x' }", "expected a number"),
        ("[stages]\na = { scale = nan }", "'a' in names.toml has scale = nan; expected a number"),
        ("[stages]\na = { scale = 1" + "0" * 400 + " }", "expected a number"),
        ("[stages]\na = { scale = -1" + "0" * 400 + " }", "expected a number"),
        ("[stages]\na = { shape = [-5, 7] }", "expected a list of whole numbers, one of which may be -1"),
        ("[stages]\na = { shape = [-1, -1] }", "expected a list of whole numbers, one of which may be -1"),
        ("[stages]\na = { rows = [30, 3] }", "'a' in names.toml has rows = [30, 3]; expected [begin, end]"),
        ("[stages]\na = { columns = [0, 0] }", "'a' in names.toml has columns = [0, 0]; expected [begin, end]"),
        ("[stages]\na.b = 'c'", "'a' in names.toml has the unknown key 'b'; known are from, first, shape, axes, "),
        ("[stages]\na.b = 'c'", "prompt, and a stage's name with dots needs quotes"),
        ("[stages]\na.{n} = 'c'", "(at line 2, column 3); names of stages need quotes"),
        ("[stages]\n'' = 'c'", "names.toml has the name '' for a stage; expected letters, digits and dots"),
        ('[stages]\n"a\\u001b[31m" = "c"', "names.toml has the name 'a\\x1b[31m' for a stage"),
        ("[stages]\na = { from = 3 }", "'a' in names.toml comes from 3; expected a name"),
        ("[stages]\n'a.{n}' = 'b'", "expected a name, with {n}, {m} and {b} on both sides or on none"),
        ("[stages]\n'a' = 'b.{n}'", "expected a name, with {n}, {m} and {b} on both sides or on none"),
    ],
)
def test_invalid_mapping_raises_an_error_with_the_entry(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        mapping(tmp_path, text)
    assert message in str(caught.value) and "names.toml" in str(caught.value)


def test_unreadable_mapping_file_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"^the mapping file .* cannot be read: No such file or directory$"):
        read_mapping(tmp_path / "names.toml")
    with pytest.raises(BadInput, match=r"^names.toml is 1048577 bytes long; expected .* at most 1048576$"):
        mapping(tmp_path, "#" * (1 << 20) + "\n")
    with pytest.raises(BadInput, match=r"^the mapping file names.json is not JSON: "):
        mapping(tmp_path, "[" * 100_000, "names.json")
    with pytest.raises(
        BadInput, match=r"^the mapping file names.json has no tables; expected \[meta\] and \[stages\]$"
    ):
        mapping(tmp_path, "[]", "names.json")


def test_scaling_does_not_overflow() -> None:
    for dtype in (np.int8, np.uint8, np.float16, np.bool_):
        array = np.array([[0, 1], [1, 1]], dtype)
        np.testing.assert_array_equal(Rule("a", "b", scale=100_000).apply(array), 100_000.0 * array.astype(float))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Rule("a", "b", scale=1e300).apply(np.array([1e300, 0.0])).tolist() == [np.inf, 0.0]
    assert Rule("a", "b", scale=2).apply(np.array([1 + 2j], np.complex64)).tolist() == [2 + 4j]


def test_byte_order_marks_and_dates_are_accepted(tmp_path: Path) -> None:
    for name, text in (("m.toml", "[meta]\nday = 2026-11-22\n[stages]\na = 'b'"), ("m.json", '{"stages": {"a": "b"}}')):
        (tmp_path / name).write_text(text, encoding="utf-8-sig")
        assert read_mapping(tmp_path / name).rules == (Rule("a", "b"),)
    assert read_mapping(tmp_path / "m.toml").meta == {"day": "2026-11-22"}


def test_unknown_array_name_error_suggests_the_cause(tmp_path: Path) -> None:
    turned = mapping(tmp_path, "[stages]\nenc = 'encoder.output'")
    with pytest.raises(
        BadInput, match="while enc is: our name stands before the equals sign and theirs behind it, and"
    ):
        turned.stages(["enc"])
    for pattern in ("blk.*.out", "blk.{i}", r"blk\.(\d+)"):
        glob = mapping(tmp_path, f"[stages]\n'encoder.layers.0' = '{pattern}'")
        with pytest.raises(BadInput, match=r"names are literal, except \{n\}, \{m\} and \{b\}, which are any numbers"):
            glob.stages(["blk.0.out"])
    long = mapping(tmp_path, "[stages]\na = 'b'")
    with pytest.raises(BadInput) as caught:
        long.stages(["x" * 10_000])
    assert len(str(caught.value)) < 300
    for count, listing in ((8, "a0, a1, a2, a3, a4, a5, a6, a7"), (9, "a0, a1, a2, a3, a4, a5, a6, a7 ...")):
        with pytest.raises(BadInput) as caught:
            long.stages([f"a{number}" for number in range(count)])
        assert str(caught.value).endswith(f"; the arrays are {listing}")


def test_a_duplicate_name_in_json_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"^the mapping file m.json is not JSON: 'a' occurs twice"):
        mapping(tmp_path, '{"stages": {"a": "b", "a": "c"}}', "m.json")


def test_missing_or_doubly_mapped_names_are_refused(tmp_path: Path) -> None:
    names_of_stages = mapping(tmp_path, "[stages]\nlogits = 'ctc'")
    with pytest.raises(BadInput, match=r"^names.toml takes logits from ctc, which is not there; the arrays are a, b$"):
        names_of_stages.stages(["b", "a"])
    twice = mapping(tmp_path, "[stages]\n'x.{n}' = 'a.{n}'\n'x.1' = 'b'")
    with pytest.raises(BadInput, match=r"^names.toml names x.1 twice, for a.1 and b$"):
        twice.stages(["a.1", "b"])


def test_layer_stack_is_merged_from_several_arrays(tmp_path: Path) -> None:
    parts = "[{ from = 'e0.{n}' }, { from = 'e.{n}', first = -1, squeeze = true }, { from = 'tp.{n}', first = -3 }]"
    sources = mapping(tmp_path, f"[stages]\n'encoder.layers.{{n}}' = {parts}").stages(
        ["e0.0", "tp.0", "tp.1", "e.0", "e.1"]
    )
    assert {each.stage: each.source for each in sources} == {
        "encoder.layers.0": "e0.0",
        "encoder.layers.1": "e.0",
        "encoder.layers.2": "e.1",
        "encoder.layers.3": "tp.0",
        "encoder.layers.4": "tp.1",
    }
    overlapping = mapping(tmp_path, "[stages]\n'x.{n}' = ['a.{n}', { from = 'b.{n}', first = -1 }]")
    with pytest.raises(BadInput, match=r"^names.toml names x.1 twice, for a.1 and b.0$"):
        overlapping.stages(["a.0", "a.1", "b.0"])


def test_rows_rule_selects_one_recording_of_a_padded_batch(tmp_path: Path) -> None:
    batch = np.arange(3 * 40 * 512.0).reshape(3, 40, 512)
    [rule] = mapping(tmp_path, "[stages]\nx = { from = 'b', shape = [-1, 512], rows = [80, 115] }").rules
    np.testing.assert_array_equal(rule.apply(batch), batch[2, :35])
