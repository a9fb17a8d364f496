"""`workbench report`: the file, the sentences, the table, and errors for damaged result directories."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.evaluations import MODELS, make_evaluation
from workbench.cli.commands import main


def test_report_html_table_and_json_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evaluation = make_evaluation(tmp_path / "out", 30)
    table = tmp_path / "rows.csv"
    assert main(["report", str(evaluation.path), "--table", str(table)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{MODELS[0]}: WER ") and "Intervals are over" in lines[-1] and len(lines) == 4
    assert len(table.read_text(encoding="utf-8").splitlines()) == 61
    text = (evaluation.path / "report.html").read_text(encoding="utf-8")
    assert "Evaluation over list.csv" in text and "list.csv, line 7" in text and "digest of demo/sensevoice" in text
    assert "The sound is not here: there is no file" in text or 'id="worst"' not in text
    assert main(["report", str(evaluation.path), "--out", str(tmp_path / "other.html"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [each["model"] for each in report["models"]] == list(MODELS) and report["pairs"][0]["sentence"]
    assert (tmp_path / "other.html").is_file()


@pytest.mark.parametrize(
    "extra, sentence",
    [(["--out", "nowhere/r.html"], "could not be written"), (["--table", "a.xls"], "no ending of a table")],
)
def test_unwritable_output_paths_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], extra: list[str], sentence: str
) -> None:
    assert main(["report", str(make_evaluation(tmp_path / "out", 3).path), *extra]) == 2
    assert sentence in capsys.readouterr().err


def test_directory_without_results_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 2
    assert "holds no run.json" in capsys.readouterr().err
    (tmp_path / "list.csv").touch()
    assert main(["report", str(tmp_path / "list.csv")]) == 2
    assert "list.csv holds no run.json" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "damage", "sentence"),
    [
        ("utterances.jsonl", lambda path: path.write_bytes(path.read_bytes()[:-20]), "line 3 of .* is damaged; run"),
        (
            "utterances.jsonl",
            lambda path: path.write_bytes(path.read_bytes().partition(b"\n")[0]),
            "holds 1 of 3 recor",
        ),
        ("utterances.jsonl", Path.unlink, "cannot be read .No such file or directory.; run `workbench evaluate` with"),
        ("skipped.jsonl", Path.unlink, "skipped.jsonl cannot be read"),
        ("skipped.jsonl", lambda path: path.write_bytes(b"[1]\n"), "skipped.jsonl is damaged"),
        ("run.json", lambda path: path.write_text(path.read_text().replace('"version"', '"v"')), "is not whole"),
    ],
)
def test_damaged_result_directory_raises_one_line_error(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    damage: Callable[[Path], object],
    sentence: str,
) -> None:
    evaluation = make_evaluation(tmp_path / "out", 3)
    damage(evaluation.path / name)
    assert main(["report", str(evaluation.path)]) == 2
    assert re.search(sentence, capsys.readouterr().err)


def test_result_row_without_counts_is_skipped_as_damaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evaluation = make_evaluation(tmp_path / "out", 3, MODELS[:1])
    [shard] = (evaluation.path / "results").rglob("*.jsonl")
    first, *rest = shard.read_text(encoding="utf-8").splitlines(keepends=True)
    for damaged in (first.replace('"hits"', '"hit"'), first.replace('"measured": {', '"measured": [], "m": {')):
        shard.write_text("".join([damaged, *rest]), encoding="utf-8")
        assert main(["report", str(evaluation.path)]) == 0
        assert "2 recordings, 0 failed" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--out", "run.json"], ["--table", "utterances.jsonl"]])
def test_report_does_not_overwrite_result_files(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_evaluation(tmp_path / "out", 3).path
    content = (folder / words[1]).read_bytes()
    assert main(["report", str(folder), words[0], str(folder / words[1])]) == 2
    assert capsys.readouterr().err.startswith(f"workbench: {words[0]} names ")
    assert (folder / words[1]).read_bytes() == content
