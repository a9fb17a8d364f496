"""Tables of an evaluation's results: CSV, JSON lines and Parquet."""

from __future__ import annotations

import codecs
import csv
import json
import sys
from pathlib import Path

import pytest

from tests.support.made_evaluation import of_texts
from tests.support.parquet_files import pyarrow_and_parquet
from workbench.core.errors import BadInput, Unavailable
from workbench.evaluation.report.columns import Columns
from workbench.evaluation.report.exports import table_rows, write_table


def test_results_table_is_written_as_csv_and_jsonl(columns: Columns, tmp_path: Path) -> None:
    rows = list(table_rows(columns))
    assert len(rows) == 360 and rows[99]["error"] == "the session ended" and rows[99]["hits"] is None
    with write_table(columns, tmp_path / "table.csv").open(encoding="utf-8-sig", newline="") as file:
        csv_rows = list(csv.DictReader(file))
    assert [each["text"] for each in csv_rows] == [each["text"] for each in rows]
    lines = write_table(columns, tmp_path / "table.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == rows
    formula = write_table(of_texts([("一", "=1+1")]), tmp_path / "formula.csv").read_bytes()
    assert b"'=1+1" in formula and formula.startswith(codecs.BOM_UTF8)  # without it, spreadsheets misread the Chinese
    with pytest.raises(BadInput, match=r"no ending of a table; expected \.csv, \.jsonl, \.parquet"):
        write_table(columns, tmp_path / "table.xls")
    with pytest.raises(BadInput, match="cannot be written"):
        write_table(columns, tmp_path / "nowhere" / "table.csv")


def test_parquet_table_has_all_rows(columns: Columns, tmp_path: Path) -> None:
    _, parquet = pyarrow_and_parquet()
    assert parquet.read_table(write_table(columns, tmp_path / "table.parquet")).to_pylist() == list(table_rows(columns))


def test_without_pyarrow_the_error_names_the_command(
    columns: Columns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(Unavailable, match="pip install pyarrow"):
        write_table(columns, tmp_path / "table.parquet")
