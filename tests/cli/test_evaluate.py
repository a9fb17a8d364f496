"""What `workbench evaluate` says of recordings that a model has failed on, and its exit status then."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import Capture, run


@pytest.mark.parametrize(
    ("recordings", "status", "said"),
    [
        (("short.wav",), 0, []),
        (("short.wav", "bad.wav", "missing.wav"), 0, ["failed on 2 of 3 recordings; bad.wav is not a sound file"]),
        (("missing.wav",), 1, ["failed on 1 of 1 recording; there is no file missing.wav"]),
    ],
)
@pytest.mark.usefixtures("in_folder")
def test_failures_are_counted_and_a_model_with_nothing_else_is_1(
    capsys: Capture, folder: Path, tmp_path: Path, recordings: tuple[str, ...], status: int, said: list[str]
) -> None:
    manifest = folder / "list.csv"
    manifest.write_text("audio,text\n" + "".join(f"{name},one\n" for name in recordings))
    found, out, err = run(capsys, "evaluate", str(manifest), "-m", "sensevoice", "--out", str(tmp_path / "out"))
    assert found == status and out[-1].startswith("the report is ") and len(err) == len(said)
    assert all(sentence in line for line, sentence in zip(err, said, strict=True)), err
