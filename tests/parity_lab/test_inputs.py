"""The inputs of a run over several inputs: files, texts, folders and lists, and the dumps for each input."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.core.errors import BadInput
from workbench.core.sides import Side
from workbench.parity_lab.inputs import Input, is_several, read_inputs, with_dump


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.wav", "a.FLAC", "notes.md", "sub"):
        path = tmp_path / name
        path.mkdir() if name == "sub" else path.write_bytes(b"")
    return tmp_path


def test_folder_input_gives_its_recordings(folder: Path) -> None:
    assert is_several([str(folder)], reads_text=False) and not is_several([str(folder / "b.wav")], reads_text=False)
    inputs = read_inputs([str(folder), "other/c.mp3"], reads_text=False)
    assert [each.name for each in inputs] == ["a", "b", "c"] and inputs[2].source == "other/c.mp3"


def test_list_file_gives_recordings_relative_to_its_folder(folder: Path) -> None:
    (folder / "list.txt").write_text("b.wav\n\nsub/x.wav\n")
    (folder / "list.jsonl").write_text('{"audio": "b.wav"}\n{"audio": "sub/b.wav", "name": "other"}\n')
    assert is_several([str(folder / "list.txt")], reads_text=False)
    [first, second] = read_inputs([str(folder / "list.txt")], reads_text=False)
    assert first == Input("b", str(folder / "b.wav")) and second.name == "x"
    assert [each.name for each in read_inputs([str(folder / "list.jsonl")], reads_text=False)] == ["b", "other"]


def test_list_file_of_windows_gives_the_same_recordings(folder: Path) -> None:
    (folder / "list.txt").write_bytes(b"\xef\xbb\xbfb.wav\r\nsub/x.wav\r\n")
    inputs = read_inputs([str(folder / "list.txt")], reads_text=False)
    assert [each.source for each in inputs] == [str(folder / "b.wav"), str(folder / "sub" / "x.wav")]


def test_texts_without_a_name_are_numbered(folder: Path) -> None:
    (folder / "list.jsonl").write_text('{"text": "Count.", "name": "count"}\n{"text": "Add."}\n')
    inputs = read_inputs(["Say three.", str(folder / "list.jsonl")], reads_text=True)
    assert inputs == [Input("text-1", "Say three."), Input("count", "Count."), Input("text-3", "Add.")]
    assert not is_several([str(folder)], reads_text=True), "a text may be the name of a folder"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("not json", "line 1 of list.jsonl is not JSON"),
        ('{"path": "b.wav"}', "line 1 of list.jsonl names no input"),
        ('{"audio": 3}', "line 1 of list.jsonl names no input"),
        ("[]", "line 1 of list.jsonl names no input"),
        ("\n", "there is no input in"),
        ('{"audio": "b.wav"}\n{"audio": "sub/b.wav"}', "two inputs have the name 'b'"),
    ],
)
def test_invalid_input_list_is_refused(folder: Path, content: str, message: str) -> None:
    (folder / "list.jsonl").write_text(content)
    with pytest.raises(BadInput, match=message):
        read_inputs([str(folder / "list.jsonl")], reads_text=False)


def test_dump_of_an_input_is_found_by_its_name(folder: Path) -> None:
    (folder / "a").mkdir()
    (folder / "b.npz").write_bytes(b"")
    side = Side("dumps/", path=folder)
    assert with_dump(side, "a").path == folder / "a" and with_dump(side, "b").path == folder / "b.npz"
    assert with_dump(side, "a").name == "dumps/" and with_dump(Side("gguf", "gguf"), "a") == Side("gguf", "gguf")
    with pytest.raises(BadInput, match="has no dump of the input c; expected a folder or file c for each input"):
        with_dump(side, "c")
