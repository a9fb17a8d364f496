"""The choice of small checkpoint files that are stored inside a GGUF file."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.conversion import files
from workbench.conversion.files import LANGUAGE_FILES, embedded_files, funasr_files, small_files
from workbench.core.errors import BadInput


def test_weights_and_readme_are_not_stored_in_the_gguf_file(tmp_path: Path) -> None:
    names = ("config.json", "tokenizer.json", "vocab.json", "merges.txt", "chat_template.jinja", "tokenizer.model")
    for name in names:
        (tmp_path / name).write_text(name)
    for name in ("model.safetensors", "README.md", "model.safetensors.index.json", "pytorch_model.bin", "LICENSE"):
        (tmp_path / name).write_text(name)
    (tmp_path / "config.json.d").mkdir()
    stored = small_files(tmp_path, LANGUAGE_FILES, "inside")
    assert set(stored) == {f"inside/{name}" for name in names}


def test_files_outside_the_checkpoint_directory_are_refused(tmp_path: Path) -> None:
    directory = tmp_path / "it"
    directory.mkdir()
    (directory / "config.yaml").touch()
    assert set(funasr_files(directory, None, directory / "x" / "y.mvn")) == {"config.yaml", "x/y.mvn"}
    with pytest.raises(BadInput, match=r"of it names .*am\.mvn, which is outside the directory"):
        funasr_files(directory, tmp_path / "am.mvn")


def test_file_contents_are_stored_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    (tmp_path / "empty").touch()
    values = embedded_files("it", {"a/binary": tmp_path / "binary", "empty": tmp_path / "empty", "made": b"text"})
    assert values == {
        "workbench.version": 1,
        "workbench.family": "it",
        "workbench.quantization": "",
        "workbench.files": ["a/binary", "made"],
        "workbench.file.0": bytes(range(256)),
        "workbench.file.1": "text",
    }
    monkeypatch.setattr(files, "MAX_FILE_BYTES", 255)
    with pytest.raises(BadInput, match="is 0 MB long, which is too much"):
        embedded_files("it", {"binary": tmp_path / "binary"})
    with pytest.raises(BadInput, match="cannot be read"):
        embedded_files("it", {"missing": tmp_path / "missing"})
