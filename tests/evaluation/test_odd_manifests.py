"""Manifests with unusual names, unclosed quotation marks or damage: rows are read or skipped with a reason."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import tracemalloc
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import soundfile

from tests.support.zip_files import unmarked_zip
from workbench.audio import read as audio
from workbench.core.errors import BadInput
from workbench.evaluation.manifests import Bad, read_manifest
from workbench.evaluation.manifests.reading import MAX_LINE_CHARACTERS
from workbench.evaluation.places import Recordings
from workbench.evaluation.rows import Utterance, as_line
from workbench.evaluation.store import Manifest, Run, read
from workbench.evaluation.writer import drafted, write_run


def sound() -> bytes:
    file = io.BytesIO()
    soundfile.write(file, np.random.default_rng(0).uniform(-0.5, 0.5, 1600), 16000, format="WAV")
    return file.getvalue()


def rows(path: Path) -> tuple[list[Utterance], list[Bad]]:
    all_rows = list(read_manifest(path).rows())
    return [each for each in all_rows if isinstance(each, Utterance)], [
        each for each in all_rows if isinstance(each, Bad)
    ]


def write(folder: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, "utf-8")


def write_zip(path: Path, members: dict[str, bytes | str], method: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def encrypt(path: Path) -> Path:
    """Marks the members of the zip as encrypted; returns its path."""
    content = bytearray(path.read_bytes())
    for mark, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = content.find(mark)
        while at >= 0:
            content[at + flags] |= 1
            at = content.find(mark, at + 1)
    path.write_bytes(content)
    return path


def test_file_names_with_spaces_are_preserved(tmp_path: Path) -> None:
    members: dict[str, bytes | str] = {" a.wav": sound(), " a.txt": "one", "./b.wav": sound(), "./b.txt": "two"}
    good, bad = rows(write_zip(tmp_path / "c.zip", members))
    assert [(each.id, each.audio, each.text) for each in good] == [(" a", " a.wav", "one"), ("b", "b.wav", "two")]
    recordings = Recordings(str(tmp_path / "c.zip"))
    assert [len(recordings.source(each)[0]) for each in good] == [1600, 1600]  # type: ignore[index]
    recordings.close()
    (tmp_path / "l.jsonl").write_text('{"audio": " a.wav", "text": " one "}\n')
    (tmp_path / "l.csv").write_text('id, audio ,text\nu1, a.wav ,one\nu2," a.wav", two\n')
    assert [(each.audio, each.text) for each in rows(tmp_path / "l.jsonl")[0]] == [(" a.wav", "one")]
    assert [(each.audio, each.text) for each in rows(tmp_path / "l.csv")[0]] == [("a.wav", "one"), (" a.wav", "two")]
    assert not bad


@pytest.mark.parametrize(
    "ending",
    ['u3,c.wav,"three"\nu4,d.wav,four\n', "u3,c.wav,three\nu4,d.wav,four\n", 'u3,c.wav,three\nu4,d.wav,four"\n'],
)
def test_unclosed_quotation_mark_skips_only_its_own_row(tmp_path: Path, ending: str) -> None:
    (tmp_path / "l.csv").write_text(f'id,audio,text\nu1,a.wav,"one\nstill one"\nu2,b.wav,"two\n{ending}')
    good, bad = rows(tmp_path / "l.csv")
    assert [(each.id, each.text) for each in good[:2]] == [("u1", "one\nstill one"), ("u3", "three")]
    assert good[2].id == "u4" and good[2].text.rstrip('"') == "four"
    assert [(each.where, each.reason.partition(";")[0]) for each in bad] == [
        ("l.csv, line 4", "a quotation mark in it is not closed")
    ]


def test_columns_of_other_toolkits_are_known_and_ambiguous_ones_refused(tmp_path: Path) -> None:
    (tmp_path / "funasr.jsonl").write_text('{"key": "u1", "source": "a.wav", "target": "one"}\n')
    (tmp_path / "wenet.jsonl").write_text('{"key": "u1", "wav": "a.wav", "txt": "one"}\n')
    (tmp_path / "speechbrain.csv").write_text("ID,wav,wrd\nu1,a.wav,one\n")
    for name in ("funasr.jsonl", "wenet.jsonl", "speechbrain.csv"):
        assert rows(tmp_path / name) == ([Utterance("u1", "a.wav", "one")], [])
    (tmp_path / "twice.csv").write_text("audio,text,text\na.wav,one,two\n")
    with pytest.raises(BadInput, match="has 2 columns named 'text'"):
        rows(tmp_path / "twice.csv")


def test_line_breaks_and_unclosed_quotation_marks_before_the_recording_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text(
        'text,audio\n"one\nstill one",a.wav\n"two,b.wav\nthree,c.wav\n"four,d.wav\nfive",e.wav\n'
    )
    good, bad = rows(tmp_path / "l.csv")
    assert [(each.audio, each.text) for each in good] == [
        ("a.wav", "one\nstill one"),
        ("c.wav", "three"),
        ("e.wav", 'five"'),
    ]
    assert [each.where for each in bad] == ["l.csv, line 4", "l.csv, line 6"]


def test_text_over_several_lines_may_stand_beside_a_name_with_a_comma(tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text('note,text,audio,speaker\n"a","one\ntwo","d/x,y.wav",""\n,three,z.wav,\n')
    good, bad = rows(tmp_path / "l.csv")
    assert [(each.audio, each.text) for each in good] == [("d/x,y.wav", "one\ntwo"), ("z.wav", "three")]
    assert not bad


def test_path_with_backslashes_is_a_path(tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text("audio,text\r\nclips\\a.wav,one\r\nclips/b\\c.wav,two\r\n")
    assert [each.audio for each in rows(tmp_path / "l.csv")[0]] == ["clips/a.wav", "clips/b\\c.wav"]
    (tmp_path / "l.jsonl").write_text('{"audio": {"path": "clips\\\\a.wav"}, "text": "one"}\n')
    assert [each.audio for each in rows(tmp_path / "l.jsonl")[0]] == ["clips/a.wav"]


def test_very_long_text_in_a_table_is_read_as_in_json(tmp_path: Path) -> None:
    text = ("word " * 40_000).strip()
    (tmp_path / "l.csv").write_text(f'id,audio,text\nu1,a.wav,"{text}"\nu2,a.wav,{text}\n')
    good, bad = rows(tmp_path / "l.csv")
    assert [each.text for each in good] == [text, text] and not bad


def test_unclosed_quotation_mark_in_a_long_list_skips_one_row(tmp_path: Path) -> None:
    lines = [f"u{number},a.wav,one\n" for number in range(3000)]
    lines[7] = 'u7,a.wav,"one\n'
    (tmp_path / "l.csv").write_text("id,audio,text\n" + "".join(lines))
    good, bad = rows(tmp_path / "l.csv")
    assert len(good) == 2999 and [each.where for each in bad] == ["l.csv, line 9"]


def test_nan_deep_nesting_and_surrogates_in_jsonl_are_handled(tmp_path: Path) -> None:
    def line(number: int, text: str) -> str:
        return f'{{"id": "u{number}", "audio": "a.wav", "text": {text}}}\n'

    deep = '"one", "take": ' + "[" * 700 + "]" * 700
    (tmp_path / "l.jsonl").write_text(line(1, "NaN") + line(2, deep) + line(3, '"one", "\\ud800": "\\ud800"'))
    good, bad = rows(tmp_path / "l.jsonl")
    assert [(each.id, dict(each.extra)) for each in good] == [("u3", {"?": "?"})]
    assert [each.reason.partition(";")[0] for each in bad] == [
        "its text is nan",
        "a column of it holds lists in lists deeper than 50 levels",
    ]
    assert good[0].to_line().encode()


def test_files_of_macos_are_no_recordings_and_endings_may_be_in_capitals(tmp_path: Path) -> None:
    attributes = b"\0\5\x16\7\0\2\0\0Mac OS X        " + bytes(40)
    members: dict[str, bytes | str] = {"c/a.WAV": sound(), "c/a.TXT": "one", "c/b-1.trans.txt": "b-1-0\ttwo three\n"}
    members |= {"c/b-1-0.wav": sound(), "c/._a.WAV": attributes, "__MACOSX/c/._a.TXT": attributes}
    path = write_zip(tmp_path / "c.zip", members)
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path / "plain")
    for corpus in (path, tmp_path / "plain"):
        good, bad = rows(corpus)
        assert [(each.id, each.text) for each in good] == [("c/a", "one"), ("c/b-1-0", "two three")] and not bad


def test_text_without_its_recording_is_named_in_librispeech(tmp_path: Path) -> None:
    (tmp_path / "8").mkdir()
    (tmp_path / "8" / "8-1.trans.txt").write_text("8-1-0 ONE\n8-1-1 TWO\n")
    (tmp_path / "8" / "8-1-0.flac").write_bytes(sound())
    good, bad = rows(tmp_path)
    assert [each.id for each in good] == ["8/8-1-0"]
    assert bad == [Bad("8/8-1-1", "there is no recording of this name, only its text")]


def test_folder_with_lists_and_no_transcripts_asks_for_a_list(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "c.zip", {"train/a.wav": sound(), "train/list.tsv": "audio\ttext\na.wav\tone\n"})
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path / "plain")
    for corpus, advice in ((path, "unpack it and give that list"), (tmp_path / "plain", "give that list")):
        with pytest.raises(BadInput, match=f"but the list train/list.tsv; {advice}$"):
            rows(corpus)
    write(tmp_path / "plain", {f"{name}.tsv": "" for name in ("clip_durations", "dev", "test")})
    with pytest.raises(
        BadInput, match=r"the lists clip_durations\.tsv, dev\.tsv, test\.tsv and train/list\.tsv; give one$"
    ):
        rows(tmp_path / "plain")
    write(tmp_path / "plain", {f"other/{number}.tsv": "" for number in range(20)})
    with pytest.raises(BadInput, match=r"other/17\.tsv and 12 more; give one$"):
        rows(tmp_path / "plain")


def test_labels_with_times_are_no_transcripts(tmp_path: Path) -> None:
    texts = {
        "htk.lab": "0 2700000 sil\n2700000 3500000 k\n",
        "audacity.txt": "0.000000\t1.250000\tone two\n",
        "digits.txt": "3 7 one\n",
        "lines.txt": "3 7 one\n8 1 two\n",
        "tabs.txt": "0.5\tis half\n",
    }
    write(tmp_path, texts)
    for name in texts:
        (tmp_path / name).with_suffix(".wav").write_bytes(sound())
    good, bad = rows(tmp_path)
    assert [each.id for each in good] == ["digits", "lines", "tabs"]
    expected = "has labels with times; expected only the words that are said"
    assert [each.reason for each in bad] == [f"{name} {expected}" for name in ("audacity.txt", "htk.lab")]


def test_damaged_or_encrypted_archive_members_are_skipped_or_refused(tmp_path: Path) -> None:
    members: dict[str, bytes | str] = {"a.wav": sound(), "a.txt": "one", "b.wav": sound(), "b.txt": "seven"}
    path = write_zip(tmp_path / "crc.zip", members)
    path.write_bytes(path.read_bytes().replace(b"seven", b"eleven"[:5]))
    good, bad = rows(path)
    assert [each.id for each in good] == ["a"] and [each.where for each in bad] == ["b.wav"]
    assert bad[0].reason.startswith("b.txt cannot be read (Bad CRC-32")
    with pytest.raises(
        BadInput, match=r"no row that can be used of 2; a\.wav: a\.txt cannot be read \(it needs a password\)"
    ):
        rows(encrypt(write_zip(tmp_path / "locked.zip", members)))
    recordings = Recordings(str(tmp_path / "locked.zip"))
    with pytest.raises(BadInput, match=r"a\.wav in .*locked\.zip needs a password"):
        recordings.source(Utterance("u", "a.wav", ""))
    recordings.close()


def test_corrupt_compressed_manifest_raises_an_error(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "c.tar.gz", "w:gz") as tar:
        for name in ("a.wav", "a.txt"):
            member = tarfile.TarInfo(name)
            member.size = len(sound())
            tar.addfile(member, io.BytesIO(sound()))
    line = as_line({"audio": "a.wav", "text": "one"}).encode()
    (tmp_path / "l.jsonl.gz").write_bytes(gzip.compress(json.dumps([*range(9999)]).encode() + line))
    for name in ("c.tar.gz", "l.jsonl.gz"):
        content = bytearray((tmp_path / name).read_bytes())
        content[60:90] = b"\xff" * 30
        (tmp_path / name).write_bytes(content)
        with pytest.raises(BadInput, match=r"cannot be read|not written in UTF-8"):
            rows(tmp_path / name)


def test_too_long_file_name_raises_an_error_for_its_row_only(tmp_path: Path) -> None:
    recordings, name = Recordings(str(tmp_path)), "x" * 300
    for place, duration in ((f"{name}.wav", 1.0), (f"{name}.zip/a.wav", None), (f"{name}.zip/a.wav", 1.0)):
        with pytest.raises(BadInput, match="File name too long"):
            recordings.source(Utterance("u", place, "", duration=duration))


def test_non_utf8_file_names_are_skipped_and_non_utf8_folders_are_accepted(tmp_path: Path) -> None:
    """A recording of such a name is skipped; a folder of such a name is a corpus like any other."""
    folder = tmp_path / os.fsdecode(b"corpus\xff")
    folder.mkdir()
    for stem in ("a", os.fsdecode(b"b\xff")):
        (folder / f"{stem}.wav").write_bytes(sound())
        (folder / f"{stem}.txt").write_text("one")
    manifest_reader = read_manifest(folder)
    with drafted(
        tmp_path, (row if isinstance(row, Utterance) else row.to_dict() for row in manifest_reader.rows())
    ) as draft:
        assert (draft.utterances, draft.skipped) == (1, 1)
        draft.accept()
    manifest = Manifest(manifest_reader.path, manifest_reader.root, manifest_reader.format, draft.digest, 1, 1)
    write_run(tmp_path, Run(manifest, {"name": "basic", "version": "1"}, (), {}))
    evaluation = read(tmp_path)
    assert evaluation.run.manifest.root == str(folder) and evaluation.skipped()[0]["where"] == "b\udcff.wav"
    [utterance] = evaluation.utterances()
    assert len(audio.read(cast(str, Recordings(str(folder)).source(utterance))).samples) == 1600


def test_texts_and_recordings_of_kaldi_without_a_partner_are_named(tmp_path: Path) -> None:
    write(tmp_path, {"wav.scp": "r1 a.wav\nr2 b.wav\n", "text": "r9 nine\nr1 one\nr1 uno\n"})
    good, bad = rows(tmp_path)
    assert [(each.id, each.text) for each in good] == [("r1", "one")]
    assert [each.where for each in bad] == ["wav.scp, line 2", "text, line 3", "text, line 1"]
    assert "has no text" in bad[0].reason and "a text on line 2" in bad[1].reason and "no 'r9'" in bad[2].reason
    write(tmp_path, {"segments": "u1 r1 0 1\n", "text": "u1 one\nu2 two\n"})
    good, bad = rows(tmp_path)
    assert [each.id for each in good] == ["u1"]
    assert [(each.where, each.reason) for each in bad] == [
        ("wav.scp, line 2", "segments has no segment of the recording 'r2'"),
        ("text, line 2", "segments has no 'u2', so only the text of this utterance is there"),
    ]


def test_lines_of_a_list_of_transcripts_that_fit_no_recording_are_named(tmp_path: Path) -> None:
    lists = {"x/transcripts.txt": "a one\nb.wav two\nc three\na four\n", "x/a.wav": "", "x/b.wav": ""}
    write(tmp_path, {**lists, "y/a.wav": "", "y/transcript-notes.txt": "Recorded in May.\n"})
    good, bad = rows(tmp_path)
    assert [(each.id, each.text) for each in good] == [("x/a", "one"), ("x/b", "two")]
    assert [(each.where, each.reason.partition(";")[0]) for each in bad] == [
        ("x/transcripts.txt, line 4", "the recording 'a' has another text already"),
        ("x/transcripts.txt, line 3", "there is no recording 'c', only its text"),
        ("y/transcript-notes.txt", "none of its 1 lines begins with the name of a recording"),
        ("y/a.wav", "there is no transcript beside it"),
    ]
    write(tmp_path, {"transcripts.txt": "a five\n"})
    reason = "several recordings are called 'a': x/a and y/a; expected one"
    assert Bad("transcripts.txt, line 1", reason) in rows(tmp_path)[1]


@pytest.mark.parametrize(
    "part, name", [("wav", "test/S08/BAC009S08W01"), ("wav/test", "S08/BAC009S08W01"), ("wav/test/S08", "BAC009S08W01")]
)
def test_part_of_aishell_has_the_list_beside_its_folder_of_recordings(tmp_path: Path, part: str, name: str) -> None:
    transcripts = {"transcript/aishell_transcript_v0.8.txt": "BAC009S07W01 我们 回 家\nBAC009S08W01 终于\n"}
    write(tmp_path, {**transcripts, f"{part}/{name}.wav": ""})
    assert rows(tmp_path / part) == ([Utterance(name, f"{name}.wav", "终于", speaker="S08")], [])


def test_list_of_transcripts_is_read_to_its_end_also_in_an_archive(tmp_path: Path) -> None:
    """A list of a large corpus is longer than any transcript of one recording."""
    lines = "".join(f"other{number} {'word ' * 200}\n" for number in range(5000)) + "a one\n"
    with tarfile.open(tmp_path / "c.tar", "w") as tar:
        for name, content in (("c/transcripts.txt", lines.encode()), ("c/wav/a.wav", b"")):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    good, bad = rows(tmp_path / "c.tar")
    assert [(each.audio, each.text) for each in good] == [("c/wav/a.wav", "one")] and len(bad) == 5000


def test_unmarked_names_in_a_zip_are_those_of_its_list(tmp_path: Path) -> None:
    """`zip` on Linux and the Finder of macOS write names in UTF-8, and do not say so."""
    unmarked_zip(tmp_path / "c.zip", {"录音é.wav": sound(), "录音é.txt": b"one"})
    write(tmp_path, {"list.csv": "audio,text\nc.zip/录音é.wav,one\n"})
    for manifest, name in (("c.zip", "录音é"), ("list.csv", "c.zip/录音é")):
        corpus = read_manifest(tmp_path / manifest)
        [row] = [each for each in corpus.rows() if isinstance(each, Utterance)]
        assert (row.id, row.text) == (name, "one")
        assert len(Recordings(corpus.root).source(row)[0]) == 1600


def test_channels_that_cancel_each_other_are_refused_in_segments_and_archives(tmp_path: Path) -> None:
    """Their average is silent, as if nothing were said."""
    left = np.random.default_rng(0).uniform(-0.5, 0.5, 1600)
    file = io.BytesIO()
    soundfile.write(file, np.stack([left, -left], axis=1), 16000, format="WAV")
    (tmp_path / "a.wav").write_bytes(file.getvalue())
    write_zip(tmp_path / "c.zip", {"a.wav": file.getvalue()})
    recordings = Recordings(str(tmp_path))
    for utterance in (Utterance("u", "a.wav", "", 0.05), Utterance("u", "c.zip/a.wav", "")):
        with pytest.raises(BadInput, match=r"the channels of a\.wav cancel each other"):
            recordings.source(utterance)
        assert len(recordings.source(replace(utterance, channel=1))[0]) > 0
    recordings.close()


@pytest.mark.parametrize("name", ["list.jsonl", "list.csv", "list.jsonl.gz"])
def test_line_without_an_end_is_not_read_to_its_end(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    with (gzip.open if name.endswith(".gz") else open)(file, "wb") as written:
        written.write(b"{" + b"a" * (3 * MAX_LINE_CHARACTERS))
    tracemalloc.start()
    with pytest.raises(BadInput, match="has a line of more than 8,388,608 characters"):
        list(read_manifest(file).rows())
    assert tracemalloc.get_traced_memory()[1] < 3 * MAX_LINE_CHARACTERS
    tracemalloc.stop()


def test_a_long_header_of_an_archive_is_not_read(tmp_path: Path) -> None:
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 1 << 30
    (tmp_path / "a.tar").write_bytes(header.tobuf(tarfile.USTAR_FORMAT) + bytes(2048))
    with pytest.raises(BadInput, match="a header has 1073741824 bytes; expected at most 1048576"):
        rows(tmp_path / "a.tar")


def test_a_folder_of_archives_is_refused_with_what_to_do(tmp_path: Path) -> None:
    """AISHELL-1 is downloaded with an archive for each speaker inside its archive."""
    write(tmp_path, {"wav/S0002.tar.gz": "", "transcript/aishell_transcript_v0.8.txt": "BAC009S0002W0122 one"})
    with pytest.raises(BadInput, match=r"holds no recordings, but the archive wav/S0002\.tar\.gz; unpack it, or give"):
        rows(tmp_path)
    write(tmp_path, {"wav/S0003.tar.gz": ""})
    with pytest.raises(BadInput, match=r"2 archives, such as wav/S0002\.tar\.gz; unpack them, or give one"):
        rows(tmp_path)
