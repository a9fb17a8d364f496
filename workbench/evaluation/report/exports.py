"""The results as a table for other programs: a row for each recording and model, as CSV, JSON lines or Parquet."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from workbench.core.errors import BadInput
from workbench.evaluation.report.columns import Columns
from workbench.evaluation.rows import COUNTED
from workbench.formats.parquet_files import parquet_library
from workbench.text.exports import SPREADSHEET_ENCODING, spreadsheet_cell


def table_rows(columns: Columns) -> Iterator[dict[str, Any]]:
    """Yields a row of plain values for each recording and model that has a result; times are seconds."""
    for place, model in enumerate(columns.models):
        transcripts, failed = columns.texts[model], columns.failures[model]
        for row, each in enumerate(columns.utterances):
            if transcripts[row] is None:
                continue
            yield {
                "id": each.id,
                "model": model,
                "audio": each.audio,
                "offset": each.offset,
                "seconds": _known(columns.seconds[row]),
                "language": each.language,
                "speaker": each.speaker,
                "noise": each.noise,
                "reference": each.text,
                "text": transcripts[row],
                "error": failed.get(row),
                "rate": columns.names[row],
                **_counts(columns, "primary", "", row, place),
                **_counts(columns, "words", "word_", row, place),
                **_counts(columns, "chars", "character_", row, place),
                "normaliser": columns.normaliser,
                "compute_seconds": _known(columns.compute[row, place]),
                "cpu_seconds": _known(columns.cpu[row, place]),
            }


def _counts(columns: Columns, kind: str, before: str, row: int, place: int) -> dict[str, int | None]:
    counts = columns.counts[kind][row, place]
    return {f"{before}{name}": None if math.isnan(value) else int(value) for name, value in zip(COUNTED, counts)}


def _known(value: float) -> float | None:
    return round(float(value), 6) if math.isfinite(value) else None


def write_table(columns: Columns, path: str | Path) -> Path:
    """Writes all rows to a file, whose ending decides the format: .csv, .jsonl or .parquet.

    Raises `BadInput` for another ending or a file that cannot be written, and `Unavailable` for Parquet without
    pyarrow.
    """
    path = Path(path)
    write = TABLES.get(path.suffix.lower())
    if write is None:
        raise BadInput(f"{path.name} has no ending of a table; expected {', '.join(TABLES)}")
    try:
        write(columns, path)
    except OSError as error:
        raise BadInput(f"the table cannot be written to {path}: {error.strerror or error}") from error
    return path


def _csv(columns: Columns, path: Path) -> None:
    with path.open("w", encoding=SPREADSHEET_ENCODING, errors="backslashreplace", newline="") as file:
        writer = None
        for row in table_rows(columns):
            if writer is None:
                writer = csv.DictWriter(file, list(row))
                writer.writeheader()
            writer.writerow(
                {name: spreadsheet_cell(value) if isinstance(value, str) else value for name, value in row.items()}
            )


def _json(columns: Columns, path: Path) -> None:
    with path.open("w", encoding="utf-8", errors="backslashreplace") as file:
        for row in table_rows(columns):
            file.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")


def _parquet(columns: Columns, path: Path) -> None:
    pyarrow, parquet = parquet_library()
    rows = list(table_rows(columns))
    schema = pyarrow.schema([(name, getattr(pyarrow, kind)()) for name, kind in _kinds().items()])
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema), path)


def _kinds() -> dict[str, str]:
    texts = ("id", "model", "audio", "language", "speaker", "noise", "reference", "text", "error", "rate", "normaliser")
    numbers = ("offset", "seconds", "compute_seconds", "cpu_seconds")
    counts = [f"{before}{name}" for before in ("", "word_", "character_") for name in COUNTED]
    return dict.fromkeys(texts, "string") | dict.fromkeys(numbers, "float64") | dict.fromkeys(counts, "int32")


TABLES: Mapping[str, Callable[[Columns, Path], None]] = {".csv": _csv, ".jsonl": _json, ".parquet": _parquet}
"""What writes a table, by the ending of its file."""
