"""The columns of a report: the rate that each recording is measured by."""

from __future__ import annotations

import pytest

from workbench.evaluation.report.columns import columns_of
from workbench.evaluation.report.exports import table_rows
from workbench.evaluation.rows import Result, Utterance, scores_of
from workbench.text.rates import score


@pytest.mark.parametrize(
    ("reference", "heard", "name"),
    [
        ("", ("你好", "hello there"), "MER"),
        ("", ("hello there", "你好"), "MER"),
        ("", ("你好", ""), "CER"),
        ("", ("", "你好"), "CER"),
        ("", ("", ""), "WER"),
        ("一二", ("一二", "one two"), "CER"),
    ],
)
def test_rate_of_a_recording_is_that_of_all_models(reference: str, heard: tuple[str, str], name: str) -> None:
    results = {
        model: [Result("u", model, text, scores=scores_of(score(reference, text)))]
        for model, text in zip(("a", "b"), heard, strict=True)
    }
    columns = columns_of([Utterance("u", "a.wav", reference)], results, "basic", "2")
    assert list(columns.names) == [name] and columns.rate == name
    assert [row["rate"] for row in table_rows(columns)] == [name, name]
