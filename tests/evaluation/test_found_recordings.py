"""Where the recordings of a corpus lie, which part of one an utterance is, and how it is named."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.support.manifest_files import CUT, cut, rows, write
from workbench.core.errors import BadInput, Unavailable
from workbench.evaluation.manifests import read_manifest
from workbench.evaluation.manifests.corpus import relative_to
from workbench.evaluation.places import Recordings
from workbench.evaluation.rows import Utterance


def sound(frequency: float = 440.0, seconds: float = 2.0, channels: int = 1, form: str = "WAV") -> bytes:
    times = np.arange(round(8000 * seconds)) / 8000
    columns = [np.sin(2 * np.pi * frequency * (n + 1) * times) * 0.5 for n in range(channels)]
    file = io.BytesIO()
    soundfile.write(file, np.stack(columns, axis=1), 8000, format=form)
    return file.getvalue()


def pack_corpus(folder: Path) -> Path:
    """Writes one corpus as a folder, a .zip and a .tar.gz; returns the folder that holds them."""
    files = {"x/a.wav": sound(), "x/a.txt": b"one"}
    write(folder / "plain", dict(files))
    with zipfile.ZipFile(folder / "c.zip", "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    with tarfile.open(folder / "c.tar.gz", "w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(f"./{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return folder


def test_recordings_are_read_from_folders_archives_and_urls(tmp_path: Path) -> None:
    import fsspec

    pack_corpus(tmp_path)
    for name in ("plain", "c.zip", "c.tar.gz"):
        manifest = read_manifest(tmp_path / name)
        [utterance] = manifest.rows()
        assert isinstance(utterance, Utterance) and (utterance.id, utterance.audio) == ("x/a", "x/a.wav")
        source = Recordings(manifest.root).source(utterance)
        assert source == str(tmp_path / "plain/x/a.wav") if name == "plain" else len(source[0]) == 16000
    with fsspec.open("memory://corpus/a.flac", "wb") as file:
        file.write(sound(form="FLAC"))
    with fsspec.open("memory://corpus/list.csv", "w") as file:
        file.write("audio,text,offset,duration\na.flac,one,0.5,1\nmemory://corpus/none.flac,two,,\n")
    manifest = read_manifest("memory://corpus/list.csv")
    present, missing = manifest.rows()
    recordings = Recordings(manifest.root)
    samples, rate = recordings.source(present)  # type: ignore[misc, arg-type]
    assert (len(samples), rate) == (8000, 8000)
    with pytest.raises(BadInput, match=r"there is nothing at memory://corpus/none\.flac"):
        recordings.source(missing)  # type: ignore[arg-type]
    with pytest.raises((BadInput, Unavailable), match=r"nosuch://x/a\.wav"):
        Recordings("").source(Utterance("u", "nosuch://x/a.wav", ""))


def test_recording_segments_and_channels_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(sound(channels=2))
    full, _ = soundfile.read(tmp_path / "a.wav", dtype="float32")
    recordings = Recordings(str(tmp_path))
    channel, _ = recordings.source(Utterance("u", "a.wav", "", 0.25, 0.5, 1))  # type: ignore[misc]
    np.testing.assert_array_equal(channel, full[2000:6000, 1])
    mean, _ = recordings.source(Utterance("u", "a.wav", "", 1.5))  # type: ignore[misc]
    np.testing.assert_allclose(mean, full[12000:].mean(axis=1))
    for utterance, reason in (
        (Utterance("u", "a.wav", "", 2.5), "is 2.00 s long, but a segment from 2.5 s"),
        (Utterance("u", "a.wav", "", 1.0, 2.0), "a segment up to 3 s is requested"),
        (Utterance("u", "a.wav", "", 0.0, 1.0, 2), "has 2 channels, but channel 2 is requested; expected 0 to 1"),
        (Utterance("u", "none.wav", "", 1.0), "there is no file none.wav"),
        (Utterance("u", "none.zip/a.wav", ""), "there is no archive"),
    ):
        with pytest.raises(BadInput, match=reason):
            recordings.source(utterance)
    pack_corpus(tmp_path)
    with pytest.raises(BadInput, match=r"has no member x/b\.wav"):
        recordings.source(Utterance("u", "c.zip/x/b.wav", ""))
    for broken in (b"", b"no sound at all"):
        (tmp_path / "broken.wav").write_bytes(broken)
        with pytest.raises(BadInput, match=r"broken\.wav"):
            recordings.source(Utterance("u", "broken.wav", "", 0.5))


def test_lhotse_cut_of_a_multichannel_recording_keeps_its_channel(tmp_path: Path) -> None:
    """lhotse stores the numbers of a recording's channels, not their count."""
    stereo = {**CUT["recording"], "channel_ids": [0, 1], "sources": [{"type": "file", "source": "r.wav"}]}
    write(tmp_path, {"cuts.jsonl": cut(channel=1, recording=stereo) + "\n" + cut(id="c2")})
    utterances = [row for row in rows(tmp_path / "cuts.jsonl") if isinstance(row, Utterance)]
    assert [row.channel for row in utterances] == [1, None]


def test_unicode_line_separators_do_not_end_kaldi_lines(tmp_path: Path) -> None:
    """Only line feeds and carriage returns end lines."""
    files = {"wav.scp": "a a.wav\r\nb b.wav\rc c.wav\n", "text": "a three\u2028seven\x85one\nb two\nc four\n"}
    utterances = [row for row in rows(write(tmp_path, files)) if isinstance(row, Utterance)]
    assert [(row.id, row.text.split()) for row in utterances] == [
        ("a", ["three", "seven", "one"]),
        ("b", ["two"]),
        ("c", ["four"]),
    ]


@pytest.mark.parametrize(
    "audio, root, expected",
    [
        ("/data/a.wav", "/data", "a.wav"),
        ("/data/a.wav", "/data/", "a.wav"),
        ("/database/a.wav", "/data", "/database/a.wav"),
        ("b/../c/./a.wav", "", "c/a.wav"),
        ("s3://bucket//b/../a.wav", "", "s3://bucket//b/../a.wav"),  # names of objects, not paths
        ("zip://a.wav::b/../c.zip", "", "zip://a.wav::b/../c.zip"),
        ("c.zip::b/../a.wav", "", "c.zip::b/../a.wav"),
        ("s3://bucket/set/a.wav", "s3://bucket/set", "a.wav"),
    ],
)
def test_a_recording_is_named_relative_to_its_corpus(audio: str, root: str, expected: str) -> None:
    assert relative_to(audio, root) == expected


def test_a_recording_without_an_id_is_named_by_its_path(tmp_path: Path) -> None:
    list_ = "audio,text\nsub/b.wav,one\ns3://bucket/c.wav,two\nd,three\n"
    all_rows = rows(write(tmp_path, {"list.csv": list_}) / "list.csv")
    assert [each.id for each in all_rows if isinstance(each, Utterance)] == ["sub/b", "s3://bucket/c.wav", "d"]
