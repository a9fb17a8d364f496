"""`workbench evaluate`: messages and exit status when a model fails on recordings."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import Capture, run
from tests.support.parquet_files import let_children_import_pyarrow, save
from workbench import evaluation
from workbench.core.progress import OnProgress


@pytest.mark.parametrize(
    ("recordings", "status", "messages"),
    [
        (("short.wav",), 0, []),
        (("short.wav", "bad.wav", "missing.wav"), 0, ["failed on 2 of 3 recordings; bad.wav is not a sound file"]),
        (("missing.wav",), 1, ["failed on 1 of 1 recording; there is no file missing.wav"]),
    ],
)
@pytest.mark.usefixtures("in_folder")
def test_failed_recordings_are_counted_and_exit_1_if_all_failed(
    capsys: Capture, folder: Path, tmp_path: Path, recordings: tuple[str, ...], status: int, messages: list[str]
) -> None:
    manifest = folder / "list.csv"
    manifest.write_text("audio,text\n" + "".join(f"{name},one\n" for name in recordings))
    exit_status, out, err = run(capsys, "evaluate", str(manifest), "-m", "sensevoice", "--out", str(tmp_path / "out"))
    assert exit_status == status and out[-1].startswith("the report is ") and len(err) == len(messages)
    assert all(sentence in line for line, sentence in zip(err, messages, strict=True)), err


@pytest.mark.usefixtures("in_folder")
def test_table_of_mixed_scripts_has_the_rate_that_the_differences_are_about(
    capsys: Capture, folder: Path, tmp_path: Path
) -> None:
    manifest = tmp_path / "list.csv"
    manifest.write_text(f"audio,text\n{folder / 'short.wav'},打开 app\n", encoding="utf-8")
    command = ("evaluate", str(manifest), "-m", "sensevoice", "--out", str(tmp_path / "out"))
    _, out, _ = run(capsys, *command)
    assert out[0].split()[3:6] == ["MER", "WER", "CER"]
    report = json.loads(run(capsys, *command, "--json")[1][0])["report"]
    shown = pytest.approx(100 * report["models"][0]["rate"]["value"], abs=0.005)
    assert report["rate"] == "MER" and float(out[1].split()[3]) == shown
    assert run(capsys, "report", str(tmp_path / "out"))[1][0].partition(": ")[2].startswith("MER ")


@pytest.mark.usefixtures("in_folder")
def test_what_a_library_prints_does_not_get_into_the_json(
    capsys: Capture, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loud(*arguments: Any, **options: Any) -> evaluation.Outcome:
        sys.stdout.write("(raylet) The node has been marked dead\n")
        return evaluation.run(*arguments, **options)

    monkeypatch.setattr("workbench.cli.evaluate.run", loud)
    (tmp_path / "list.csv").write_text(f"audio,text\n{folder / 'short.wav'},one\n")
    command = ("evaluate", str(tmp_path / "list.csv"), "-m", "sensevoice", "--out", str(tmp_path / "out"), "--json")
    _, out, err = run(capsys, *command)
    assert json.loads("\n".join(out))["computed"] == 1 and err == ["(raylet) The node has been marked dead"]


@pytest.mark.usefixtures("in_folder")
def test_errors_of_an_earlier_run_are_named_with_the_flag_that_retries_them(
    capsys: Capture, folder: Path, tmp_path: Path
) -> None:
    manifest = tmp_path / "list.csv"
    manifest.write_text("audio,text\nlater.wav,one\n")
    command = ("evaluate", str(manifest), "-m", "sensevoice", "--out", str(tmp_path / "out"))
    assert len(run(capsys, *command)[2]) == 1
    shutil.copyfile(folder / "short.wav", tmp_path / "later.wav")
    status, _, err = run(capsys, *command)
    assert status == 1 and "there is no file later.wav" in err[0] and "--retry-failed computes" in err[1]
    assert run(capsys, *command, "--retry-failed")[0] == 0


def test_transcripts_of_other_programs_stand_beside_each_other(capsys: Capture, tmp_path: Path) -> None:
    manifest, out = tmp_path / "list.csv", tmp_path / "out"
    manifest.write_text("audio,text\na.wav,one two\nb.wav,three\n")
    (tmp_path / "hyp.trn").write_text("one too (a)\nthree (b)\n")
    (tmp_path / "text").write_text("a one two\nb three\nc four\n")
    files = [f"--transcripts=first={tmp_path / 'hyp.trn'}", f"--transcripts=second={tmp_path / 'text'}"]
    status, printed, err = run(capsys, "evaluate", str(manifest), *files, "--out", str(out))
    assert status == 0 and [line.split()[:4] for line in printed[1:3]] == [
        ["first", "2", "0", "33.33"], ["second", "2", "0", "0.00"],
    ]  # fmt: skip
    assert err == [
        "workbench: second: 1 transcript of text belongs to no recording of the corpus, such as 'c' (text, line 3)"
    ]


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["hyp.trn"], "--transcripts 'hyp.trn' is not NAME=FILE; expected for example whisper=hyp.trn"),
        (["=hyp.trn"], "--transcripts '=hyp.trn' is not NAME=FILE"),
        (["a=x.trn", "a=y.trn"], "--transcripts names 'a' twice; expected each program once"),
        (["a=missing.trn"], "missing.trn cannot be read: No such file or directory"),
    ],
)
def test_faulty_flags_for_transcripts_are_refused(
    capsys: Capture, tmp_path: Path, flags: list[str], sentence: str
) -> None:
    (tmp_path / "list.csv").write_text("audio,text\na.wav,one\n")
    given = [f"--transcripts={each}" for each in flags]
    status, _, err = run(capsys, "evaluate", str(tmp_path / "list.csv"), *given, "--out", str(tmp_path / "out"))
    assert status == 2 and len(err) == 1 and sentence in err[0] and not (tmp_path / "out").exists()


@pytest.mark.usefixtures("in_folder")
def test_the_column_with_the_text_is_chosen(capsys: Capture, folder: Path, tmp_path: Path) -> None:
    manifest = tmp_path / "list.csv"
    manifest.write_text(f"audio,text,raw\n{folder / 'short.wav'},one,One.\n")
    out = tmp_path / "out"
    status, _, _ = run(capsys, "evaluate", str(manifest), "-m", "sensevoice", "--text-column", "raw", "--out", str(out))
    assert status == 0 and json.loads((out / "utterances.jsonl").read_text())["text"] == "One."


@pytest.mark.usefixtures("in_folder")
def test_a_split_of_parquet_files_is_continued(
    capsys: Capture, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_children_import_pyarrow(monkeypatch)
    sound = (folder / "short.wav").read_bytes()
    for split in ("test", "train"):
        rows = [{"audio": {"bytes": sound, "path": f"{n}.wav"}, "sentence": "one", "speaker": "ann"} for n in range(3)]
        kinds = {"audio": "audio", "sentence": "string", "speaker": "string"}
        save(tmp_path / f"data/{split}-00000-of-00001.parquet", rows, **kinds)
    command = ("evaluate", str(tmp_path / "data"), "-m", "sensevoice", "--out", str(tmp_path / "out"))
    status, _, err = run(capsys, *command)
    assert status == 2 and "holds the splits test and train; choose one with --split" in err[0]
    for limit, count in (("1", 1), ("3", 2)):
        status, out, err = run(capsys, *command, "--split", "test", "--limit", limit)
        assert (status, err) == (0, []) and any(line.startswith(f"{count} result") for line in out)
    status, _, err = run(capsys, *command, "--split", "dev")
    assert status == 2 and "none called 'dev'" in err[0]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.usefixtures("in_folder")
def test_signal_stops_an_evaluation_with_the_usual_exit_status(
    capsys: Capture,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    status: int,
) -> None:
    def stop_at_once(*_: object, on_progress: OnProgress, **__: object) -> None:
        signal.raise_signal(number)
        on_progress(0.5, "computing")

    monkeypatch.setattr("workbench.system.endings._ended", threading.Event())
    monkeypatch.setattr("workbench.cli.evaluate.run", stop_at_once)
    exit_status, _, err = run(capsys, "evaluate", "list.csv", "-m", "sensevoice", "--out", str(tmp_path / "out"))
    assert exit_status == status and err[-1].startswith("workbench: stopped; ")
