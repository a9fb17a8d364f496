"""The merge of speech into text embeddings against a plain definition, token by token."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from workbench.embeddings.merge import Merged, PaddingSide, merge_speech, plan_merge

SPEECH = -200
WIDTH = 3


@dataclass(frozen=True)
class Case:
    """A batch to merge; values that must not be used are NaN."""

    ids: np.ndarray
    text: np.ndarray
    speech: np.ndarray
    lengths: np.ndarray
    present: np.ndarray | None
    side: PaddingSide

    def merge(self) -> Merged[np.ndarray]:
        return merge_speech(self.ids, self.text, self.speech, self.lengths, SPEECH, self.present, self.side)


def merge_by_definition(case: Case) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Embeddings, mask and positions by definition, each row token by token."""
    rows = []
    for number, tokens in enumerate(case.ids.tolist()):
        row: list[np.ndarray] = []
        frame_index = placeholder_count = 0
        for index, token in enumerate(tokens):
            if case.present is not None and not case.present[number, index]:
                continue
            if token != SPEECH:
                row.append(case.text[number, index])
            elif case.lengths.ndim == 1:  # the row's frames for each placeholder
                row.extend(case.speech[number, frame] for frame in range(case.lengths[number]))
            else:  # the row's frames split over the placeholders
                for _ in range(case.lengths[number, placeholder_count]):
                    row.append(case.speech[number, frame_index])
                    frame_index += 1
                placeholder_count += 1
        rows.append(row)
    width = max(map(len, rows))
    embeddings = np.zeros((len(rows), width, case.text.shape[2]), case.text.dtype)
    mask = np.zeros((len(rows), width), bool)
    positions = np.zeros((len(rows), width), np.int64)
    for number, row in enumerate(rows):
        begin = width - len(row) if case.side == "left" else 0
        for index, embedding in enumerate(row):
            embeddings[number, begin + index] = embedding
            mask[number, begin + index] = True
            positions[number, begin + index] = index
    return embeddings, mask, positions


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Up to four rows of up to eight tokens, with placeholders and pads anywhere and speech of any length."""
    batch, tokens, shared = draw(st.integers(1, 4)), draw(st.integers(0, 8)), draw(st.booleans())
    table = st.lists(
        st.lists(st.sampled_from([0, 5, 6, SPEECH]), min_size=tokens, max_size=tokens), min_size=batch, max_size=batch
    )
    ids = np.array(draw(table), dtype=np.int64).reshape(batch, tokens)
    present = None
    if draw(st.booleans()):
        marks = st.lists(st.booleans(), min_size=batch * tokens, max_size=batch * tokens)
        present = np.array(draw(marks), dtype=bool).reshape(batch, tokens)
    counts = ((ids == SPEECH) & (True if present is None else present)).sum(axis=1).tolist()
    lengths = np.zeros((batch, max(counts) + draw(st.integers(0, 2))) if shared else batch, dtype=np.int64)
    for number, count in enumerate(counts):
        if shared:
            lengths[number, :count] = draw(st.lists(st.integers(1, 4), min_size=count, max_size=count))
        elif count:
            lengths[number] = draw(st.integers(1, 4))
    used: np.ndarray = lengths.sum(axis=1) if shared else lengths
    values = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    text = values.standard_normal((batch, tokens, WIDTH)).astype(np.float32)
    text[ids == SPEECH] = np.nan
    if present is not None:
        text[~present] = np.nan
    speech = values.standard_normal((batch, int(used.max()) + draw(st.integers(0, 2)), WIDTH)).astype(np.float32)
    speech[np.arange(speech.shape[1])[None] >= used[:, None]] = np.nan
    return Case(ids, text, speech, lengths, present, draw(st.sampled_from(["left", "right"])))


@given(cases())
def test_merged_embeddings_match_the_definition(case: Case) -> None:
    merged = case.merge()
    embeddings, mask, positions = merge_by_definition(case)
    assert np.isfinite(merged.embeddings).all(), "values of pads and placeholders are not used"
    np.testing.assert_array_equal(merged.embeddings, embeddings)
    np.testing.assert_array_equal(merged.attention_mask, mask)
    np.testing.assert_array_equal(merged.positions, positions)
    np.testing.assert_array_equal(merged.lengths, mask.sum(axis=1))
    assert merged.embeddings.dtype == case.text.dtype


@given(cases())
def test_torch_merge_equals_the_numpy_merge(case: Case) -> None:
    expected = case.merge()
    text, speech = torch.from_numpy(case.text), torch.from_numpy(case.speech)
    merged = merge_speech(case.ids, text, speech, case.lengths, SPEECH, case.present, case.side)
    assert isinstance(merged.embeddings, torch.Tensor) and merged.embeddings.dtype == torch.float32
    np.testing.assert_array_equal(merged.embeddings.numpy(), expected.embeddings)
    np.testing.assert_array_equal(merged.attention_mask, expected.attention_mask)
    np.testing.assert_array_equal(merged.positions, expected.positions)


@given(cases())
def test_batch_row_merges_like_a_single_row(case: Case) -> None:
    merged = case.merge()
    for number in range(len(case.ids)):
        row_slice = slice(number, number + 1)
        present = None if case.present is None else case.present[row_slice]
        single = replace(
            case,
            ids=case.ids[row_slice],
            text=case.text[row_slice],
            speech=case.speech[row_slice],
            lengths=case.lengths[row_slice],
            present=present,
        ).merge()
        np.testing.assert_array_equal(
            merged.embeddings[number, merged.attention_mask[number]], single.embeddings[0, single.attention_mask[0]]
        )


@given(cases())
def test_merge_plan_without_embeddings_matches_the_merge(case: Case) -> None:
    plan = plan_merge(case.ids, case.lengths, SPEECH, case.present, case.side)
    merged = case.merge()
    np.testing.assert_array_equal(plan.attention_mask, merged.attention_mask)
    np.testing.assert_array_equal(plan.positions, merged.positions)
    table = np.concatenate([case.text, case.speech], axis=1)
    for number, position in zip(*np.nonzero(plan.attention_mask), strict=True):
        np.testing.assert_array_equal(table[number, plan.source[number, position]], merged.embeddings[number, position])


@pytest.mark.parametrize("side", ["left", "right"])
def test_merge_of_a_hand_worked_example(side: PaddingSide) -> None:
    ids = np.array([[1, SPEECH, 2], [3, 4, 0]])
    text = np.arange(1, 7, dtype=np.float32).reshape(2, 3, 1)
    speech = np.array([[[10], [11], [12]], [[20], [21], [22]]], dtype=np.float32)
    merged = merge_speech(ids, text, speech, np.array([2, 0]), SPEECH, np.array([[1, 1, 1], [1, 1, 0]]), side)
    second_row = {"left": [0, 0, 4, 5], "right": [4, 5, 0, 0]}[side]
    assert merged.embeddings[..., 0].tolist() == [[1, 10, 11, 3], second_row]
    assert merged.attention_mask.tolist() == [[True] * 4, [value > 0 for value in second_row]]
    assert merged.positions.tolist() == [[0, 1, 2, 3], {"left": [0, 0, 0, 1], "right": [0, 1, 0, 0]}[side]]


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_speech_embeddings_are_cast_to_the_text_dtype(kind: str) -> None:
    ids, lengths = np.array([[1, SPEECH]]), np.array([1])
    text, speech = np.ones((1, 2, 1), np.float16), np.full((1, 1, 1), 0.1, np.float32)
    embeddings: Any
    if kind == "numpy":
        embeddings = merge_speech(ids, text, speech, lengths, SPEECH).embeddings
    else:
        embeddings = merge_speech(
            ids, torch.from_numpy(text), torch.from_numpy(speech), lengths, SPEECH
        ).embeddings.numpy()
    assert embeddings.dtype == np.float16 and embeddings[0, 1, 0] == np.float16(0.1)


def test_gradients_reach_text_and_speech_embeddings() -> None:
    text, speech = torch.ones(1, 3, 2, requires_grad=True), torch.ones(1, 4, 2, requires_grad=True)
    merged = merge_speech(np.array([[1, SPEECH, 2]]), text, speech, np.array([2]), SPEECH)
    merged.embeddings.sum().backward()
    assert text.grad is not None and text.grad[0, :, 0].tolist() == [1, 0, 1]
    assert speech.grad is not None and speech.grad[0, :, 0].tolist() == [1, 1, 0, 0]


VALID = Case(
    ids=np.array([[1, SPEECH, 2], [1, 2, 3]]),
    text=np.zeros((2, 3, WIDTH), np.float32),
    speech=np.zeros((2, 4, WIDTH), np.float32),
    lengths=np.array([4, 0]),
    present=None,
    side="left",
)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"ids": np.array([1, SPEECH, 2])}, "ids has shape (3,); expected (batch, tokens)"),
        (
            {"text": np.zeros((2, 4, WIDTH), np.float32)},
            "text_embeddings has shape (2, 4, 3); expected (2, 3, width)",
        ),
        ({"text": np.zeros((2, 3), np.float32)}, "text_embeddings has shape (2, 3); expected (2, 3, width)"),
        (
            {"speech": np.zeros((1, 4, WIDTH), np.float32)},
            "speech_embeddings has shape (1, 4, 3); expected (2, frames, width)",
        ),
        ({"speech": np.zeros((2, 4, 5), np.float32)}, "speech is 5 wide and text 3; expected the same width"),
        ({"present": np.ones((2, 2), bool)}, "the attention mask has shape (2, 2); the ids have (2, 3)"),
        ({"side": "middle"}, "padding_side is 'middle'; expected left or right"),
        (
            {"lengths": np.array([4])},
            "speech_lengths has shape (1,) and type int64; expected whole numbers of shape (2,) or (2, placeholders)",
        ),
        (
            {"lengths": np.array([4.0, 0.0])},
            "speech_lengths has shape (2,) and type float64; expected whole numbers of shape (2,) or (2, placeholders)",
        ),
        ({"lengths": np.array([-1, 0])}, "speech_lengths holds -1; expected no negative number"),
        ({"lengths": np.array([5, 0])}, "row 0 needs 5 frames of speech, and there are 4"),
        (
            {"lengths": np.array([0, 0])},
            "row 0 has 1 placeholder and 0 chunks of speech (lengths [0]); expected one for each, or none of either",
        ),
        (
            {"lengths": np.array([1, 2])},
            "row 1 has 0 placeholders and 1 chunk of speech (lengths [2]); expected one for each, or none of either",
        ),
        (
            {"lengths": np.array([[1, 2], [0, 0]])},
            "row 0 has 1 placeholder and 2 chunks of speech (lengths [1, 2]); expected one for each",
        ),
        (
            {"lengths": np.array([[0, 2], [0, 0]])},
            "row 0 has speech lengths [0, 2]; expected zeros only behind its last placeholder",
        ),
    ],
)
def test_inconsistent_merge_inputs_raise_an_error(changes: dict[str, Any], sentence: str) -> None:
    assert VALID.merge().lengths.tolist() == [6, 3]
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        replace(VALID, **changes).merge()


def test_placeholder_at_a_padding_position_is_ignored() -> None:
    present = np.array([[True, False, True], [True, True, True]])
    merged = replace(VALID, present=present, lengths=np.array([0, 0])).merge()
    assert merged.lengths.tolist() == [2, 3]
