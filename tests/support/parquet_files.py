"""Writes Parquet files with pyarrow; skips a test where it is not installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


def save(path: Path, rows: list[dict[str, Any]], rows_of_a_group: int = 2, **columns: str) -> Path:
    """Writes a Parquet file; `columns` are names of types of pyarrow, or `audio` for a struct of bytes and path."""
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    audio = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    kinds = {name: audio if kind == "audio" else getattr(pyarrow, kind)() for name, kind in columns.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pyarrow.Table.from_pylist(rows, pyarrow.schema(list(kinds.items())))
    parquet.write_table(table, path, row_group_size=rows_of_a_group)
    return path
