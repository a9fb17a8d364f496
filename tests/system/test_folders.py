"""Files below a folder: symbolic links are followed, and loops of links end."""

from __future__ import annotations

import shutil
from pathlib import Path

from workbench.evaluation.manifests import read_manifest
from workbench.evaluation.rows import Utterance
from workbench.registry.sources import assets
from workbench.system.folders import files_below


def test_files_of_linked_folders_are_found(tmp_path: Path) -> None:
    """A link to a folder elsewhere, a link to a file, and the same folder under two names."""
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "deep").mkdir(parents=True)
    (elsewhere / "deep" / "b.wav").write_bytes(b"b")
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "a.wav").symlink_to(elsewhere / "deep" / "b.wav")
    (folder / "one").symlink_to(elsewhere)
    (folder / "two").symlink_to(elsewhere)
    (folder / "gone.wav").symlink_to(elsewhere / "missing.wav")
    expected = [folder / "a.wav", folder / "one/deep/b.wav", folder / "two/deep/b.wav"]
    assert files_below(folder) == expected


def test_links_to_parent_folders_do_not_loop(tmp_path: Path) -> None:
    """Three links that lead back: to the folder itself, to its parent, and to each other."""
    folder = tmp_path / "corpus"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "a.wav").write_bytes(b"a")
    (folder / "deep" / "back").symlink_to(folder)
    (folder / "deep" / "itself").symlink_to(folder / "deep")
    (folder / "loop").symlink_to(folder / "deep" / "loop")
    (folder / "deep" / "loop").symlink_to(folder / "loop")
    assert files_below(folder) == [folder / "deep" / "a.wav"]


def test_corpus_with_linked_folders_is_read_completely(tmp_path: Path) -> None:
    """A folder of recordings holds one speaker as a folder and one as a link."""
    for place in (tmp_path / "corpus" / "here", tmp_path / "elsewhere"):
        place.mkdir(parents=True)
        shutil.copy(assets() / "samples" / "long_digits.wav", place / "a.wav")
        (place / "a.txt").write_text("one", encoding="utf-8")
    (tmp_path / "corpus" / "there").symlink_to(tmp_path / "elsewhere")
    rows = list(read_manifest(tmp_path / "corpus").rows())
    assert [row.id for row in rows if isinstance(row, Utterance)] == ["here/a", "there/a"]
    assert len(rows) == 2
