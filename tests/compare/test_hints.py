"""Hints on differing shapes, checked on the values, and on the rows or channels where values differ."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from workbench.compare import compare, judge
from workbench.compare.hints import explain_shape, where_it_differs
from workbench.compare.measures import measure
from workbench.trace.mapping import read_mapping
from workbench.trace.read import read_trace
from workbench.trace.trace import Trace

X = np.random.default_rng(3).standard_normal((6, 4)).astype(np.float32)


@pytest.mark.parametrize(
    "candidate, sentence",
    [
        (X.T, "the shapes are 6×4 and 4×6: the candidate is transposed; after this change they differ by 0 %"),
        (X[None], "the candidate has a dimension of 1 more, such as a batch; after this change they differ by 0 %"),
        (np.vstack([X, X[:1]]), "the candidate has 1 row more at the end; after this change"),
        (np.vstack([X[:1] + 9, X]), "the candidate has 1 row more at the beginning; after this change"),
        (np.vstack([X, 0 * X[:2]]), "the candidate has 2 rows more of zeros, padding, at the end; after this change"),
        (
            np.vstack([0 * X[:2], X, 0 * X[:1]]),
            "3 rows more of zeros, padding, 2 of them at the beginning and 1 at the",
        ),
        (
            np.vstack([X[:1] + 9, X, X[:1]]),
            "the candidate has 2 rows more, 1 of them at the beginning and 1 at the end",
        ),
        (0.8 * X[1:], "the shapes are 6×4 and 5×4: 6 and 5 along axis 0"),
        (X[1:], "the reference has 1 row more at the beginning; after this change"),
        (np.hstack([X, 0 * X]), "the candidate has 4 columns more of zeros, padding, at the end; after this change"),
        (
            X.reshape(4, 6) * 1.001,
            "the same number of values is laid out in another shape; after this change they diff",
        ),
        (X.T + 9, "as if the candidate is transposed, but after this change the numbers differ too"),
        (
            X[None] + 9,
            "the candidate has a dimension of 1 more, such as a batch; squeeze = true in a mapping file makes this "
            "change; the numbers then differ by 7.6e+02 %",
        ),
        (np.ones((5, 3)), "the shapes are 6×4 and 5×3: 6 and 5 along axis 0, 4 and 3 along axis 1"),
        (np.ones((2, 5, 3)), "the reference has 2 dimensions, the candidate 3"),
        (np.array(1.0), "the shapes are 6×4 and a scalar"),
        (np.ones((0, 4)), "the shapes are 6×4 and 0×4"),
        (X.T[None], "one has a dimension of 1 more, and is transposed; after"),
        (X.T, "; transpose = true in a mapping file makes this change"),
        (X[:, None], "; squeeze = true in a mapping file makes this change"),
        (X.reshape(3, 8), "; shape = [6, 4] in a mapping file makes this change"),
        (np.vstack([X, 0 * X[:2]]), "; rows = [0, 6] in a mapping file makes this change"),
        (
            np.stack([0 * X, X]),
            "the reference is item 1 of the candidate's batch of 2; after this change they differ by 0 %; "
            "shape = [-1, 4] with rows = [6, 12] in a mapping file makes this change",
        ),
        (
            np.pad(np.stack([X, 0 * X], axis=1), ((0, 3), (0, 0), (0, 0))),
            "item 0 of the candidate's batch of 2, without its last 3 rows; after this change they differ by 0 %; "
            "shape = [9, -1] with columns = [0, 4] and rows = [0, 6] in a mapping file makes this change",
        ),
        (np.vstack([X, X[:1]]), "; if they are padding, rows = [0, 6] in a mapping file makes this change"),
        (np.vstack([X[:1] + 9, X]), "; if they are padding, rows = [1, 7] in a mapping file makes this change"),
        (
            np.pad(np.stack([X, X + 9]), ((0, 0), (3, 0), (0, 0))),
            "item 0 of the candidate's batch of 2, without its first 3 rows; after this change they differ by 0 %; "
            "shape = [-1, 4] with rows = [3, 9]",
        ),
        (
            np.stack([X + 9, X]).swapaxes(1, 2),
            "item 1 of the candidate's batch of 2, which is channels × frames; after this change they differ by 0 %; "
            "shape = [-1, 6], transpose = true with columns = [4, 8] in a mapping file",
        ),
        (
            np.pad(X, ((0, 3), (0, 0))).T[None],
            "the candidate is transposed, and has 3 columns more at the end; after this change they differ by 0 %; "
            "transpose = true with squeeze = true and rows = [0, 6]",
        ),
    ],
)
def test_different_shape_is_explained(candidate: np.ndarray, sentence: str) -> None:
    assert sentence in explain_shape(X, candidate)[0]


def test_rules_of_hints_make_their_change(tmp_path: Path) -> None:
    """A rule that a hint names gives a comparison without differences."""
    padded = np.pad(X, ((0, 3), (0, 0)))
    layouts = [
        X.T,
        X.T[None],
        X[:, None],
        X.reshape(3, 8),
        padded,
        np.stack([0 * padded, padded]),
        np.stack([X, 0 * X], axis=1),
        np.pad(X, ((3, 0), (0, 0))),
        np.pad(X, ((0, 0), (0, 2))),
        np.pad(np.stack([X + 9, X]), ((0, 0), (3, 0), (0, 0))),
        np.stack([X + 9, X]).swapaxes(1, 2),
        np.stack([9 + padded, padded]).swapaxes(1, 2),
        padded.T,
        padded.T[None],
    ]
    for candidate in layouts:
        rule = re.search(r"%; (.*) in a mapping file makes this change", explain_shape(X, candidate)[0])
        assert rule is not None
        changes = re.sub(" (?:with|and) ", ", ", rule[1])
        (tmp_path / "names.toml").write_text(f'[stages]\n"encoder.output" = {{ from = "x", {changes} }}\n')
        np.savez(tmp_path / "dump.npz", x=candidate)
        changed = read_trace(tmp_path / "dump.npz", read_mapping(tmp_path / "names.toml"))
        np.testing.assert_array_equal(changed["encoder.output"], X)


def test_items_of_a_batch_of_one_dimension_are_found() -> None:
    weights = np.array([0.1, 0.7, 0.2], np.float32)
    batch = np.array([[0.5, 0.5, 0, 0], [0.1, 0.7, 0.2, 0]], np.float32)
    sentence, rule = explain_shape(weights, batch)
    assert rule == "shape = [-1] with rows = [4, 7]"
    assert "item 1 of the candidate's batch of 2, without its last 1 row; after" in sentence
    assert explain_shape(weights, np.append(weights, [0, 0]))[1] == "rows = [0, 3]"


def test_axes_in_another_order_are_named_with_the_rule(tmp_path: Path) -> None:
    heads = np.random.default_rng(4).standard_normal((6, 2, 5)).astype(np.float32)
    for axes, rule in (
        ((1, 0, 2), "axes = [1, 0, 2]"),
        ((2, 0, 1), "axes = [1, 2, 0]"),
    ):
        assert explain_shape(heads, heads.transpose(axes))[1] == rule
    batch = heads.swapaxes(0, 1)[None]
    sentence, rule = explain_shape(heads, batch)
    assert rule == "axes = [2, 1, 3, 0] with squeeze = true" and "the candidate's axes are in another order" in sentence
    (tmp_path / "names.toml").write_text('[stages]\n"x" = { axes = [2, 1, 3, 0], squeeze = true }\n')
    np.savez(tmp_path / "dump.npz", x=batch)
    np.testing.assert_array_equal(read_trace(tmp_path / "dump.npz", read_mapping(tmp_path / "names.toml"))["x"], heads)
    assert "but after this change the numbers differ too" in explain_shape(heads, batch + 9)[0]


@pytest.mark.parametrize(
    "axes, padding, rule",
    [
        ((1, 0, 2), 0, "axes = [1, 0, 2], join = true"),
        ((1, 2, 0), 0, "axes = [2, 0, 1], join = true"),
        ((0, 2, 1), 0, "axes = [0, 2, 1], join = true"),
        ((1, 0, 2), 3, "axes = [1, 0, 2], join = true, rows = [0, 6]"),
    ],
)
@pytest.mark.parametrize("is_batch", [False, True])
def test_rule_that_joins_heads_is_named_and_does_it(
    axes: tuple[int, ...], padding: int, rule: str, is_batch: bool, tmp_path: Path
) -> None:
    joined = np.random.default_rng(4).standard_normal((6, 10)).astype(np.float32)
    heads = np.pad(joined, ((0, padding), (0, 0))).reshape(-1, 2, 5).transpose(axes)
    candidate = heads[None] if is_batch else heads
    sentence, named = explain_shape(joined, candidate)
    assert is_batch or named.replace(" with ", ", ").replace(" and ", ", ") == rule
    assert "2 heads" in sentence and "are not joined" in sentence and "they differ by 0 %" in sentence
    keys = named.replace(" with ", ", ").replace(" and ", ", ")
    (tmp_path / "names.toml").write_text(f'[stages]\n"x" = {{ {keys} }}\n')
    np.savez(tmp_path / "dump.npz", x=candidate)
    np.testing.assert_array_equal(read_trace(tmp_path / "dump.npz", read_mapping(tmp_path / "names.toml"))["x"], joined)


def test_padded_rows_behind_heads_are_named_with_the_rule() -> None:
    rows = np.random.default_rng(5).standard_normal((6, 2, 5)).astype(np.float32)
    padded = np.pad(rows, ((0, 3), (0, 0), (0, 0))).swapaxes(0, 1)
    assert explain_shape(rows, padded)[1] == "axes = [1, 0, 2] with rows = [0, 6]"


def test_verdict_names_the_rules_for_all_layouts() -> None:
    names = [f"encoder.layers.{n}" for n in range(5)]
    reference = {**dict.fromkeys(names, X), "logits": X + 1}
    candidate = {**dict.fromkeys(names, X[:, None]), "encoder.layers.0": X.T, "logits": (X + 1)[None]}
    sentence = judge(compare(Trace(reference, {}), Trace(candidate, {}))).sentence
    assert "transpose = true in a mapping file makes this change. Rules for other stages: squeeze = true" in sentence
    assert "squeeze = true (encoder.layers.1, encoder.layers.2 and 3 more)." in sentence


def test_rules_for_other_layouts_follow_a_fault_of_the_numbers() -> None:
    names = [f"encoder.layers.{n}" for n in range(4)]
    batch = np.stack([0 * X, X])
    candidate = {"frontend.features": 2 * X, **dict.fromkeys(names, batch), "encoder.layers.2": batch + 9}
    reference = {"frontend.features": X, **dict.fromkeys(names, X)}
    sentence = judge(compare(Trace(reference, {}), Trace(candidate, {}))).sentence
    assert sentence.startswith("frontend.features is the first stage beyond tolerance f32: relative L2 1, ")
    # The numbers of layer 2 show no layout, but its shapes are those of the other layers.
    assert (
        "Rules for other stages: shape = [-1, 4] with rows = [6, 12] (encoder.layers.0, encoder.layers.1 and 2 mo"
        in (sentence)
    )


def test_rule_for_a_batch_keeps_the_only_row_of_a_step() -> None:
    assert explain_shape(X[:1], X[None, :1])[1] == "shape = [1, 4]"
    assert explain_shape(X[:1], 9 - X[None, :1])[1] == "shape = [1, 4]"


def test_same_values_in_another_shape_do_not_hide_the_simpler_rule() -> None:
    values = np.random.default_rng(1).standard_normal((35, 39)).astype(np.float32)
    for factor in np.linspace(0.6, 1.4, 9, dtype=np.float32):
        assert explain_shape(values, factor * values[None])[1] == "squeeze = true"


def test_tokens_of_a_batch_are_a_layout() -> None:
    """Their rule is named as that of the other stages, and no token counts as different."""
    ids = np.array([3, 7, 2])
    reference = Trace({"encoder.output": X, "tokens": ids}, {})
    batch = {"encoder.output": np.stack([X + 9, X]), "tokens": np.array([[5, 5, 5, 2], [3, 7, 2, -1]])}
    comparison = compare(reference, Trace(batch, {}))
    assert comparison.tokens_agree is None
    sentence = judge(comparison).sentence
    assert "shape = [-1] with rows = [4, 7] (tokens)" in sentence and "differ from place" not in sentence
    batch["tokens"][1, 0] = 4
    assert "The tokens differ from place 0 on" in judge(compare(reference, Trace(batch, {}))).sentence


def test_drifting_rows_are_not_explained_by_a_missing_one() -> None:
    """The rows of a slow sound resemble themselves a row later."""
    frames = np.arange(60)[:, None] * 0.003 + np.arange(8)
    drifting = np.arange(59)[:, None] * 0.00305 + np.arange(8)
    assert explain_shape(np.sin(3 * frames), np.sin(3 * drifting + 0.03))[0].endswith("60 and 59 along axis 0")


@pytest.mark.parametrize(
    ("rows", "columns", "sentence"),
    [
        (slice(17, 18), slice(None), "these values are in row 17 of 60; the other values agree"),
        (slice(3, 5), slice(0, 2), "these values are in rows 3, 4 of 60; the other values agree"),
        (slice(None), slice(4, 5), "these values are in channel 4 of 30; the other values agree"),
        (slice(20, None), slice(None), "all rows from 20 on have such values; the other values agree"),
        (slice(0, None, 2), slice(0, None, 3), "the first of these values is in row 0 of 60; the other values agree"),
        (slice(None), slice(None), None),
    ],
)
def test_the_place_of_nan_is_reported(rows: slice, columns: slice, sentence: str | None) -> None:
    broken = TALL.copy()
    broken[rows, columns] = np.nan
    trace, candidate = (Trace({"encoder.output": each}, {}) for each in (TALL, broken))
    assert compare(trace, candidate).stages[0].hint == sentence
    broken[:] = np.where(np.isnan(broken), np.inf, 2 * TALL)
    hint = compare(trace, Trace({"encoder.output": broken}, {})).stages[0].hint
    assert hint == (sentence and sentence.replace("the other values agree", "other values differ too"))


TALL = np.random.default_rng(6).standard_normal((60, 30)).astype(np.float32)


def with_zeros(rows: object, columns: object) -> np.ndarray:
    changed = TALL.copy()
    changed[rows, columns] = 0
    return changed


@pytest.mark.parametrize(
    "candidate, sentence",
    [
        (with_zeros(slice(0, 1), slice(None)), "only row 0 of 60 differs"),
        (with_zeros(slice(0, 4), slice(None)), "only rows 0 to 3 of 60 differ"),
        (with_zeros(slice(40, 60), slice(None)), "only rows 40 to 59 of 60 differ"),
        (with_zeros(slice(20, 60), slice(None)), "the first 20 of 60 rows agree, and all rows from 20 on differ"),
        (with_zeros(slice(1, 60), slice(None)), None),
        (
            with_zeros(slice(20, 59), slice(None)),
            "the first 20 of 60 rows agree, and nearly all rows from 20 on differ",
        ),
        (with_zeros(slice(20, 55), slice(None)), None),
        (TALL + np.linspace(0, 1, 60)[:, None] ** 3 * TALL[::-1], None),
        (with_zeros(slice(0, 40, 2), slice(None)), None),
        (with_zeros(slice(None), slice(7, 8)), "only channel 7 of 30 differs"),
        (with_zeros(slice(0, 30), slice(0, 20)), None),
    ],
)
def test_the_place_of_the_difference_is_reported(candidate: np.ndarray, sentence: str | None) -> None:
    hint = where_it_differs(measure(TALL, candidate))
    assert hint is None if sentence is None else hint is not None and hint.startswith(sentence)


@pytest.mark.parametrize(
    "changed, sentence",
    [
        (with_zeros(slice(58, 60), slice(None)), "rows 58, 59 of 60 differ most, and the others differ too"),
        (with_zeros(slice(None), slice(7, 8)), "channel 7 of 30 differs most, and the others differ too"),
        (with_zeros(slice(20, 60), slice(None)), None),
    ],
)
def test_places_are_the_only_ones_if_the_others_are_within_the_limit(changed: np.ndarray, sentence: str | None) -> None:
    assert where_it_differs(measure(TALL, 1.0005 * changed), limit=1e-4) == sentence
    hint = where_it_differs(measure(TALL, changed), limit=1e-4)
    assert hint is not None and hint.startswith(("only ", "the first 20 of 60 rows agree"))


def test_places_of_attention_weights_are_heads_and_keys() -> None:
    weights = np.random.default_rng(5).random((30, 20, 12))
    one_head, one_key = weights.copy(), weights.copy()
    one_head[7] *= weights[8]
    one_key[:, :, 3] *= weights[:, :, 4]
    for changed, sentence in ((one_head, "Only head 7 of 30 differs."), (one_key, "Only key 3 of 12 differs.")):
        traces = (Trace({"encoder.layers.0.attention.weights": each}, {}) for each in (weights, changed))
        assert sentence in judge(compare(*traces)).sentence


@pytest.mark.parametrize(
    ("candidate", "sentence"),
    [
        (np.round(TALL * 25).astype(np.int8), "The candidate holds whole numbers (int8): times 0.04"),
        (np.round(TALL * 256).astype(np.int32), "mapping file makes this change"),
        (np.round(TALL * 25 + 40).astype(np.uint8), "whole numbers (uint8), such as quantised values before scale"),
    ],
)
def test_whole_numbers_are_quantised_values_without_their_scale(candidate: np.ndarray, sentence: str) -> None:
    traces = (Trace({"encoder.output": each}, {}) for each in (TALL, candidate))
    assert sentence in judge(compare(*traces)).sentence


def test_places_that_are_nearly_side_by_side_are_a_range() -> None:
    sound = np.random.default_rng(7).standard_normal(2000)
    faded = sound.copy()
    faded[1700:] *= 0.5 + 0.5 * (np.arange(300) % 4 > 2)
    traces = (Trace({"codec.audio": each}, {}) for each in (sound, faded))
    assert "Only samples 1700 to 1998 of 2000 differ." in judge(compare(*traces)).sentence


def test_place_of_the_smallest_difference_is_reported() -> None:
    reference = np.zeros((4, 5))
    reference[0, 0] = 2.0**-1040
    assert where_it_differs(measure(reference, 2 * reference), limit=1e-4) == "only row 0 of 4 differs"


def test_scattered_or_absent_differences_have_no_reported_place() -> None:
    other = np.random.default_rng(9).standard_normal(X.shape)
    gap = X.copy()
    gap[0, 0] = np.nan
    for candidate in (other, X, gap):
        assert where_it_differs(measure(X, candidate)) is None
