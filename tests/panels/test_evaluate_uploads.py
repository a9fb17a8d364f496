"""What visitors upload to the Evaluate tab: manifests, recordings and archives."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import tarfile
import zipfile
from pathlib import Path

import pytest

from panels.evaluate import corpus
from panels.evaluate.corpus import check_upload, uploaded_corpus
from panels.widgets.recording_actions import first_fault_html
from tests.support.fake_panels import tone
from tests.support.parquet_files import save
from tests.support.zip_files import unmarked_zip
from workbench.core.errors import BadInput
from workbench.evaluation.manifests import read_manifest
from workbench.evaluation.manifests.corpus import is_list
from workbench.evaluation.rows import Utterance


def test_uploaded_manifest_cannot_name_files_outside_the_upload(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(b"")
    for number, place in enumerate(
        (
            "/etc/passwd",
            "../a.wav",
            "wavs/../../a.wav",
            "s3://bucket/a.wav",
            "file:///a.wav",
            "zip::a.wav",
            r"C:\a\b.wav",
        )
    ):
        manifest = tmp_path / f"list{number}.csv"
        manifest.write_text(f"audio,text\n{place},one\n")
        with pytest.raises(BadInput, match="uploaded with the manifest"):
            uploaded_corpus([str(manifest)], tmp_path / f"corpus{number}")
    with pytest.raises(BadInput, match=r"there are 2 manifests: list0\.csv, list1\.csv"):
        uploaded_corpus([str(tmp_path / f"list{number}.csv") for number in range(2)], tmp_path / "two")
    for name, content in (("notes.csv", "no column\nof a corpus\n"), ("list.jsonl", ""), ("sound.tsv", "RIFF")):
        file = tmp_path / name
        file.write_text(content)
        with pytest.raises(BadInput, match=rf"\b{name}") as caught:
            uploaded_corpus([str(file)], tmp_path / f"of-{name}")
        assert str(tmp_path) not in str(caught.value)
    broken = tmp_path / "broken.zip"
    broken.write_bytes(b"PK no archive")
    with pytest.raises(BadInput, match="cannot be unpacked"):
        uploaded_corpus([str(broken)], tmp_path / "unpacked")


def test_names_in_an_uploaded_archive_are_those_of_its_author(tmp_path: Path) -> None:
    names = ["录音é.wav", "12:30|1.wav"]
    rows = "".join(f"{name},one\n" for name in names)
    members = {
        "list.csv": f"audio,text\n{rows}".encode(),
        **dict.fromkeys(names, tone(tmp_path / "a.wav").read_bytes()),
    }
    archive = unmarked_zip(tmp_path / "c.zip", members)
    manifest = uploaded_corpus([str(archive)], tmp_path / "corpus")
    assert [(manifest.parent / row.audio).is_file() for row in read_manifest(manifest).rows()] == [True, True]
    with zipfile.ZipFile(tmp_path / "long.zip", "w") as long:
        long.writestr("x" * 300 + ".wav", b"")
    with pytest.raises(BadInput, match=r"^long\.zip cannot be unpacked: File name too long$"):
        uploaded_corpus([str(tmp_path / "long.zip")], tmp_path / "of-long")


def test_wrong_upload_is_reported_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "fine.txt").write_text("one two")
    (tmp_path / "wide.stm").write_text("fine 1 ann 0 0.5 one two", encoding="utf-16")
    (tmp_path / "texts.gz").write_bytes(gzip.compress(b"one two"))
    names = ("fine.txt", "wide.stm", "texts.gz")
    valid_files = [str(tone(tmp_path / "fine.wav")), *(str(tmp_path / name) for name in names)]
    for name, sentence in (
        ("paper.wav", "paper.wav is not a sound file that can be read: it is a PDF document"),
        ("packed.zip", "packed.zip cannot be unpacked"),
        ("list.csv", "list.csv is a PDF"),
        ("paper.pdf", "paper.pdf is a PDF document; expected recordings"),
        ("paper.txt", "paper.txt is a PDF document; expected recordings"),
    ):
        file = tmp_path / name
        file.write_bytes(b"%PDF-1.7\n")
        fault = first_fault_html(check_upload, [*valid_files, str(file)])
        assert sentence in fault and str(tmp_path) not in fault
    assert first_fault_html(check_upload, valid_files) == ""


def test_recordings_with_text_files_need_no_manifest(tmp_path: Path) -> None:
    recording = Path(tone(tmp_path / "a.wav", 1.0))
    (tmp_path / "a.txt").write_text("one two")
    corpus = uploaded_corpus([str(recording), str(tmp_path / "a.txt")], tmp_path / "corpus")
    [row] = read_manifest(corpus).rows()
    assert isinstance(row, Utterance) and row.text == "one two"


def test_the_highest_list_or_kaldi_directory_of_an_upload_is_its_manifest(tmp_path: Path) -> None:
    sound = Path(tone(tmp_path / "a.wav", 1.0)).read_bytes()
    nemo = json.dumps({"audio_filepath": "a.wav", "text": "one two"})
    for number, (files, manifest) in enumerate(
        [
            ({"a.wav": sound, "train_manifest.json": nemo}, "train_manifest.json"),
            ({"c/a.wav": sound, "c/wav.scp": "u1 a.wav\n", "c/text": "u1 one two\n"}, "c"),
            ({"c/a.wav": sound, "c/l.csv": "audio,text\nx\\a.wav,one two\n", "c/about.json": "{}"}, "c/l.csv"),
            ({"a.wav": sound, "a.txt": "one two", "a.json": "{}"}, ""),
        ]
    ):
        with zipfile.ZipFile(tmp_path / f"{number}.zip", "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        found = uploaded_corpus([str(tmp_path / f"{number}.zip")], tmp_path / f"corpus{number}")
        assert found == tmp_path / f"corpus{number}" / manifest
        assert [each.text for each in read_manifest(found).rows() if isinstance(each, Utterance)] == ["one two"]
    with zipfile.ZipFile(tmp_path / "two.zip", "w") as archive:
        for split in ("train", "test"):
            archive.writestr(f"{split}/metadata.csv", "file_name,text\na.wav,one\n")
    with pytest.raises(BadInput, match=r"2 manifests: test/metadata\.csv, train/metadata\.csv; expected one"):
        uploaded_corpus([str(tmp_path / "two.zip")], tmp_path / "splits")


def test_recordings_of_one_name_in_two_archives_are_refused(tmp_path: Path) -> None:
    sounds = [tone(tmp_path / f"{seconds}.wav", seconds).read_bytes() for seconds in (0.5, 1.0)]
    for number, sound in enumerate([*sounds, sounds[0]]):
        with zipfile.ZipFile(tmp_path / f"{number}.zip", "w") as archive:
            for name, content in (("wavs/a.wav", sound), ("wavs/a.txt", "one"), ("README.txt", str(number))):
                archive.writestr(name, content)
    with pytest.raises(BadInput, match=r"^1\.zip and another uploaded file hold different wavs/a\.wav; rename one$"):
        uploaded_corpus([str(tmp_path / f"{number}.zip") for number in (0, 1)], tmp_path / "different")
    two = [str(tmp_path / f"{number}.zip") for number in (0, 2)]
    same = uploaded_corpus(two, tmp_path / "same")
    assert [each.text for each in read_manifest(same).rows() if isinstance(each, Utterance)] == ["one"]


def test_archives_of_one_upload_share_the_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("panels.evaluate.corpus.MAX_UNPACKED", 3000)
    for name in ("a", "b"):
        with zipfile.ZipFile(tmp_path / f"{name}.zip", "w") as archive:
            archive.writestr(f"{name}.txt", "x" * 2000)
    with pytest.raises(BadInput, match=r"^b\.zip is too large; .* in all archives together$"):
        uploaded_corpus([str(tmp_path / "a.zip"), str(tmp_path / "b.zip")], tmp_path / "corpus")


def test_archives_that_are_not_unpacked_share_the_room_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A .tar, and an archive inside an archive, are read where they are."""
    monkeypatch.setattr("panels.evaluate.corpus.MAX_UNPACKED", 3000)
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as tar:
        for name, size in (("a.wav", 2000), ("a.txt", 2000)):
            member = tarfile.TarInfo(name)
            member.size = size
            tar.addfile(member, io.BytesIO(b"x" * size))
    with zipfile.ZipFile(tmp_path / "inner.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.wav", b"x" * 4000)
    with zipfile.ZipFile(tmp_path / "outer.zip", "w") as archive:
        archive.write(tmp_path / "inner.zip", "inner.zip")
    for name, too_large in (("a.tar.gz", "a.tar.gz"), ("outer.zip", "inner.zip")):
        with pytest.raises(BadInput, match=rf"^{too_large} is too large; .* in all archives together$"):
            uploaded_corpus([str(tmp_path / name)], tmp_path / f"corpus-of-{name}")
    (tmp_path / "b.tar.gz").write_bytes(b"no archive")
    with pytest.raises(BadInput, match=r"^b\.tar\.gz cannot be read "):
        uploaded_corpus([str(tmp_path / "b.tar.gz")], tmp_path / "broken")


def test_files_of_macos_beside_an_uploaded_list_are_no_lists(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "c.zip", "w") as archive:
        archive.writestr("list.csv", "audio,text\na.wav,one two\n")
        archive.writestr("._list.csv", b"\0\5\x16\7\0\2\0\0")
    assert uploaded_corpus([str(tmp_path / "c.zip")], tmp_path / "corpus").name == "list.csv"


def test_corpora_are_uploaded_as_they_are_downloaded(tmp_path: Path) -> None:
    sound = tone(tmp_path / "tone.wav", 1.0).read_bytes()
    ljspeech = tmp_path / "upload" / "metadata.csv"
    ljspeech.parent.mkdir()
    ljspeech.write_text("a|one 2|one two\n")
    (tmp_path / "a.wav").write_bytes(sound)
    assert first_fault_html(check_upload, [str(ljspeech), str(tmp_path / "a.wav")]) == ""
    archives: list[list[str]] = [[str(ljspeech), str(tmp_path / "a.wav")]]
    for number, files in enumerate(
        (
            {"LJ/metadata.csv": "a|one 2|one two\n", "LJ/wavs/a.wav": sound},
            {"t/stm/a.stm": "a 1 ann 0 0.5 one two\n", "t/sph/a.wav": sound},
            {"dev/wav.scp": "a\twav/a.wav\n", "dev/trans.txt": "a\tone two\n", "dev/wav/a.wav": sound},
        )
    ):
        with zipfile.ZipFile(tmp_path / f"{number}.zip", "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        archives.append([str(tmp_path / f"{number}.zip")])
    for number, upload in enumerate(archives):
        found = read_manifest(uploaded_corpus(upload, tmp_path / f"corpus{number}"))
        assert [each.text for each in found.rows() if isinstance(each, Utterance)] == ["one two"]


def test_lists_of_transcripts_of_one_name_in_two_archives_are_refused(tmp_path: Path) -> None:
    for number in (0, 1):
        with zipfile.ZipFile(tmp_path / f"{number}.zip", "w") as archive:
            archive.writestr("content.txt", f"a{number}.wav\t大 da4\n")
    with pytest.raises(BadInput, match=r"^1\.zip and another uploaded file hold different content\.txt; rename one$"):
        uploaded_corpus([str(tmp_path / f"{number}.zip") for number in (0, 1)], tmp_path / "corpus")


def test_an_uploaded_parquet_file_names_no_file_of_the_server(tmp_path: Path) -> None:
    sound = tone(tmp_path / "tone.wav", 1.0).read_bytes()
    kinds = {"audio": "audio", "text": "string"}
    fine = save(tmp_path / "a.parquet", [{"audio": {"bytes": sound, "path": "/etc/a.wav"}, "text": "one"}], **kinds)
    assert first_fault_html(check_upload, [str(fine)]) == ""
    corpus = uploaded_corpus([str(fine)], tmp_path / "corpus")
    [row] = read_manifest(corpus).rows()
    assert isinstance(row, Utterance) and row.audio == "a.parquet/0/a.wav"
    for number, path in enumerate(("/etc/passwd", "../a.wav", "s3://bucket/a.wav")):
        outside = save(tmp_path / f"{number}.parquet", [{"audio": {"path": path}, "text": "one"}], **kinds)
        with pytest.raises(BadInput, match="expected a file that is uploaded with the manifest"):
            uploaded_corpus([str(outside)], tmp_path / f"outside{number}")
    (tmp_path / "b.parquet").write_bytes(fine.read_bytes()[:-20])
    with pytest.raises(BadInput, match=r"^b\.parquet cannot be read as a Parquet file"):
        uploaded_corpus([str(tmp_path / "b.parquet")], tmp_path / "broken")
    assert "b.parquet cannot be read" in first_fault_html(check_upload, [str(tmp_path / "b.parquet")])
    with pytest.raises(BadInput, match=r"^what was uploaded holds the splits a and b; choose one"):
        uploaded_corpus([str(fine), str(tmp_path / "b.parquet")], tmp_path / "splits")


@pytest.mark.parametrize("name", ["list.jsonl.gz", "list.csv.gz", "list.tar.gz", "list.tar.xz"])
def test_packed_upload_that_unpacks_into_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(corpus, "LARGEST_PACKED", 1 << 20)
    file = tmp_path / name
    with (lzma.open if name.endswith(".xz") else gzip.open)(file, "wb") as packed:
        packed.write(b"audio,text\n" * (1 << 18))
    with pytest.raises(BadInput, match=rf"^{name} unpacks into more than 1 MB"):
        uploaded_corpus([str(file)], tmp_path / "corpus")
    if is_list(name):
        assert "unpacks into more" in first_fault_html(check_upload, [str(file)])


def test_only_the_first_rows_of_a_list_are_read_before_the_run(tmp_path: Path) -> None:
    file = tmp_path / "list.jsonl"
    file.write_text("{}\n" * (corpus.MAX_ROWS - 1))
    assert "no row that can be used" in first_fault_html(check_upload, [str(file)])
    file.write_text("{}\n" * 100 * corpus.MAX_ROWS)
    assert not first_fault_html(check_upload, [str(file)])
