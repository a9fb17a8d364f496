"""The names in zip archives of programs that mark their encoding and of programs that do not."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from tests.support.zip_files import unmarked_zip
from workbench.formats.zip_names import named_members


@pytest.mark.parametrize(
    ("name", "encoding", "system", "expected"),
    [
        ("录音/é.wav", "utf-8", 3, "录音/é.wav"),
        ("é.wav", "cp437", 0, "é.wav"),
        ("wavs\\a.wav", "utf-8", 0, "wavs/a.wav"),
        ("wavs\\a.wav", "utf-8", 3, "wavs\\a.wav"),
        ("录音（1）/a.wav", "gbk", 0, "录音（1）/a.wav"),
        ("íóä.wav", "cp437", 0, "íóä.wav"),
        ("íó.wav", "cp437", 0, "íó.wav"),
        ("録音.wav", "shift_jis", 0, "録音.wav"),
        ("テスト（1）\\ソ能表.wav", "cp932", 0, "テスト（1）/ソ能表.wav"),
        ("001_朝.wav", "cp932", 0, "001_朝.wav"),
        ("音.wav", "cp932", 0, "音.wav"),
        ("schön.wav", "cp437", 0, "schön.wav"),
        ("école gâteau.wav", "cp437", 0, "école gâteau.wav"),
        ("Ärger Öl über Ääkköset.wav", "cp437", 0, "Ärger Öl über Ääkköset.wav"),
        ("朱镕基.wav", "gbk", 0, "朱镕基.wav"),
    ],
)
def test_unmarked_names_are_in_the_encoding_that_they_fit(
    tmp_path: Path, name: str, encoding: str, system: int, expected: str
) -> None:
    with zipfile.ZipFile(unmarked_zip(tmp_path / "a.zip", {name: b"content"}, encoding, system)) as archive:
        for _ in range(2):  # also if somebody asked before
            [member] = named_members(archive)
            assert member.filename == expected and archive.read(member) == b"content"


def test_marked_names_stay_and_folders_are_left_out(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("wavs/", b"")
        archive.writestr("wavs/┬╝é.wav", b"")
        assert [each.filename for each in named_members(archive)] == ["wavs/┬╝é.wav"]


def test_names_of_one_archive_share_their_encoding(tmp_path: Path) -> None:
    """The bytes of some names in Shift-JIS are Chinese text too."""
    names = ["ﾃｽ/一.wav", "ひらがな/会議.wav", "a.wav"]
    with zipfile.ZipFile(unmarked_zip(tmp_path / "a.zip", dict.fromkeys(names, b""), "cp932", 0)) as archive:
        assert [each.filename for each in named_members(archive)] == names
