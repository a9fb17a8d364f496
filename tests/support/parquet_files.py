"""Writes Parquet files with pyarrow; skips a test where it is not installed."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

# Not in the environment itself: with pyarrow, the page takes 35 MB more, as pandas imports it.
SITE = Path(sys.prefix) / "parquet"


def pyarrow_and_parquet() -> tuple[Any, Any]:
    """Returns the modules `pyarrow` and `pyarrow.parquet`; skips the test where they are not installed."""
    sys.path.append(str(SITE))
    try:
        return pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    finally:
        sys.path.remove(str(SITE))


def let_children_import_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets processes that the test starts import pyarrow, too."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(SITE)])))


def save(path: Path, rows: list[dict[str, Any]], rows_of_a_group: int = 2, **columns: str) -> Path:
    """Writes a Parquet file; `columns` are names of types of pyarrow, or `audio` for a struct of bytes and path."""
    pyarrow, parquet = pyarrow_and_parquet()
    audio = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    kinds = {name: audio if kind == "audio" else getattr(pyarrow, kind)() for name, kind in columns.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pyarrow.Table.from_pylist(rows, pyarrow.schema(list(kinds.items())))
    parquet.write_table(table, path, row_group_size=rows_of_a_group)
    return path
