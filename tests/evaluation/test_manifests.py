"""Every kind of manifest, valid and broken: the rows that are read, and one-line errors for invalid ones."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.manifest_files import CUT, cut, rows, write
from workbench.core.errors import BadInput
from workbench.evaluation.manifests import Bad, read_manifest
from workbench.evaluation.rows import Utterance

AISHELL: dict[str, str | bytes] = {
    "transcript/aishell_transcript_v0.8.txt": "BAC009S07W01 我们 回 家\nBAC009S08W01 终于\n",
    "wav/dev/S07/BAC009S07W01.wav": "",
    "wav/test/S08/BAC009S08W01.wav": "",
}
VALID: dict[str, tuple[dict[str, str | bytes], str, str, list[Utterance]]] = {
    "csv": (
        {"list.csv": '\ufeffid,audio,text,speaker,take\nu1,a.wav,"one, two",7,3\n\nu2,/x/b.wav,,,\n'},
        "list.csv",
        "csv",
        [
            Utterance("u1", "a.wav", "one, two", speaker="7", extra={"take": "3"}),
            Utterance("u2", "/x/b.wav", ""),
        ],
    ),
    "semicolons": ({"l.csv": "audio;text\na.wav;ja, nein\n"}, "l.csv", "csv", [Utterance("a", "a.wav", "ja, nein")]),
    "common voice": (
        {"test.tsv": 'client_id\tpath\tsentence\tlocale\nx9\tc.mp3\tsay "hi\tde\n'},
        "test.tsv",
        "tsv",
        [Utterance("clips/c", "clips/c.mp3", 'say "hi', language="de", speaker="x9")],
    ),
    "nemo": (
        {
            "m.json": '{"audio_filepath": "a.wav", "duration": 2.5, "text": "one", "offset": 1}\n'
            '{"audio_filepath": "a.wav", "duration": 2, "text": 2, "offset": 1, "pnc": true}\n'
        },
        "m.json",
        "jsonl",
        [
            Utterance("a#1", "a.wav", "one", 1.0, 2.5),
            Utterance("a#1 (2)", "a.wav", "2", 1.0, 2.0, extra={"pnc": True}),
        ],
    ),
    "hugging face": (
        {"metadata.csv": "file_name,transcription\nx/a.wav,one\n", "x/a.wav": ""},
        "",
        "csv",
        [Utterance("x/a", "x/a.wav", "one")],
    ),
    "hugging face's objects": (
        {"metadata.jsonl": '{"audio": {"path": "a.wav"}, "text": "one", "noise": "street"}\n'},
        "",
        "jsonl",
        [Utterance("a", "a.wav", "one", noise="street")],
    ),
    "kaldi": (
        {
            "wav.scp": "r1 a.wav\nr2 sox b.wav -t wav - |\n",
            "segments": "u1 r1 0.5 1.75\nu2 r2 0 1\nu3 r1 2 -1\n",
            "text": "u1 one two\nu2 three\nu3 four\n",
            "utt2spk": "u1 ann\nu3 bob\n",
        },
        "",
        "kaldi",
        [
            Utterance("u1", "a.wav", "one two", 0.5, 1.25, speaker="ann"),
            Utterance("u3", "a.wav", "four", 2.0, speaker="bob"),
        ],
    ),
    "kaldi with channels": (
        {"wav.scp": "r1 a.wav\n", "segments": "u1 r1 0 2 1\nu2 r1 0 2 left\n", "text": "u1 one\nu2 two\n"},
        "",
        "kaldi",
        [Utterance("u1", "a.wav", "one", 0.0, 2.0, 1)],
    ),
    "kaldi with commands that unpack a file": (
        {
            "wav.scp": "u1 flac -c -d -s x/a.flac |\nu2 flac -cd b.flac|\nu3 flac -cd c.flac | sox - -t wav - |\n"
            "u4 flac -cd $(id) |\nu5 flac -d -c -s --skip=5 d.flac |\n",
            "text": "".join(f"u{number} one\n" for number in range(1, 6)),
        },
        "",
        "kaldi",
        [Utterance("u1", "x/a.flac", "one"), Utterance("u2", "b.flac", "one")],
    ),
    "times of segments": (
        {"l.tsv": "file_path\tstart_time\tend_time\ttext\na.wav\t1.5\t4\tone\n"},
        "l.tsv",
        "tsv",
        [Utterance("a#1.5", "a.wav", "one", 1.5, 2.5)],
    ),
    "a data frame with gaps": (
        {"l.csv": "wav_filename,transcript,channel\na.wav,one,1.0\nb.wav,two,\nc.wav,three,0.5\n"},
        "l.csv",
        "csv",
        [Utterance("a", "a.wav", "one", channel=1), Utterance("b", "b.wav", "two")],
    ),
    "timit": (
        {
            "TEST/DR1/FAKS0/SA1.WAV": "",
            "TEST/DR1/FAKS0/SA1.TXT": "0 63488 She had 2 suits.\n",
            "TEST/DR1/FAKS0/SA1.PHN": "0 9640 h#\n",
            "digits.wav": "",
            "digits.txt": "0 5 one",
        },
        "",
        "folder",
        [
            Utterance("TEST/DR1/FAKS0/SA1", "TEST/DR1/FAKS0/SA1.WAV", "She had 2 suits.", speaker="FAKS0"),
            Utterance("digits", "digits.wav", "0 5 one"),
        ],
    ),
    "lhotse": (
        {"cuts.jsonl.gz": gzip.compress(cut().encode() + b"\n")},
        "cuts.jsonl.gz",
        "lhotse",
        [Utterance("c1", "r.wav", "one two", 1.0, 2.0, None, "en", "ann")],
    ),
    "librispeech": (
        {"8/1/8-1.trans.txt": "8-1-0 ONE TWO\n", "8/1/8-1-0.flac": "", "8/1/8-1-1.flac": ""},
        "",
        "folder",
        [Utterance("8/1/8-1-0", "8/1/8-1-0.flac", "ONE TWO", speaker="8")],
    ),
    "mls": (
        {
            "transcripts.txt": "5_6_07\twe go home\n5_6_08\tat last\n",
            "segments.txt": "5_6_07\thttp://host/a.mp3\t0\t1\n",
            "audio/5/6/5_6_07.opus": "",
            "audio/5/6/5_6_08.flac": "",
        },
        "",
        "folder",
        [
            Utterance("audio/5/6/5_6_07", "audio/5/6/5_6_07.opus", "we go home", speaker="5"),
            Utterance("audio/5/6/5_6_08", "audio/5/6/5_6_08.flac", "at last", speaker="5"),
        ],
    ),
    "aishell": (
        AISHELL,
        "",
        "folder",
        [
            Utterance("wav/dev/S07/BAC009S07W01", "wav/dev/S07/BAC009S07W01.wav", "我们 回 家", speaker="S07"),
            Utterance("wav/test/S08/BAC009S08W01", "wav/test/S08/BAC009S08W01.wav", "终于", speaker="S08"),
        ],
    ),
    "wenet": (
        {"data.list": '{"key": "u1", "wav": "/data/a.wav", "txt": "one two"}\n'},
        "data.list",
        "jsonl",
        [Utterance("u1", "/data/a.wav", "one two")],
    ),
    "beside": (
        {"a.wav": "", "a.txt": "one\ntwo\n", "b.mp3": "", "b.lab": "three", "c.wav": ""},
        "",
        "folder",
        [Utterance("a", "a.wav", "one two"), Utterance("b", "b.mp3", "three")],
    ),
}


@pytest.mark.parametrize("kind", VALID)
def test_valid_manifest_gives_its_utterances_and_format(tmp_path: Path, kind: str) -> None:
    files, name, form, expected = VALID[kind]
    manifest = read_manifest(write(tmp_path, files) / name)
    assert [each for each in manifest.rows() if isinstance(each, Utterance)] == expected
    assert (manifest.format, manifest.root) == (form, str(tmp_path))


# Invalid rows of lists that have a valid row too, with a part of the reason.
HEAD = "id,audio,text,offset,duration,end,channel\n"
BAD_ROWS = {
    "u1,,one,,,,": "names no recording",
    "u1,a.wav,one,,,": "it has 6 fields; expected 7",
    "u1,a.wav,one,,,,,": "it has 8 fields",
    "u1,a.wav,one,-1,,,": "its offset is '-1'",
    "u1,a.wav,one,nan,,,": "its offset is 'nan'",
    "u1,a.wav,one,soon,,,": "its offset is 'soon'; expected a number of seconds",
    "u1,a.wav,one,,0,,": "its duration is 0 s; expected more than 0",
    "u1,a.wav,one,,-3,,": "its duration is '-3'",
    "u1,a.wav,one,,inf,,": "its duration is 'inf'",
    "u1,a.wav,one,,1e12,,": "its duration is '1e12'",
    "u1,a.wav,one,3,,2,": "it ends at 2 s and begins at 3 s",
    "u1,a.wav,one,,,,left": "its channel is 'left'",
    "u1,a.wav,one,,,,-1": "its channel is '-1'",
    "good,a.wav,one,,,,": "its id 'good' already appears at line 2",
    f"{'x' * 400},a.wav,one,,,,": "its id has 400 characters",
    "u1,a\0.wav,one,,,,": "holds characters that no text has",
    'u1,"a"b.wav,one,,,,': "cannot be read as a row of a table",
}
BAD_OBJECTS = {
    "{": "it is not JSON",
    "[1]": "it is list; expected a JSON object",
    "7": "it is int",
    "[" * 100_000: r"it is not JSON \(nested too deeply\)",
    '{"text": "one"}': "names no recording",
    '{"audio": "a.wav"}': "it has no text",
    '{"audio": "a.wav", "text": null}': "it has no text",
    '{"audio": 7, "text": "one"}': "its audio is 7; expected the path",
    '{"audio": ["a.wav"], "text": "one"}': "its audio is \\['a.wav'\\]",
    '{"audio": "a.wav", "text": ["one"]}': "its text is",
    '{"audio": "a.wav", "text": "one", "offset": true}': "its offset is True",
    '{"audio": "a.wav", "text": "one", "duration": {}}': "its duration is {}",
    '{"audio": "a.wav", "text": "\\ud800"}': "holds characters that no text has",
    '{"audio": "a.wav", "text": "one", "duration": NaN}': "its duration is nan",
    cut(supervisions=[]): "its cut has no supervision",
    cut(supervisions=[{}]): "a supervision of its cut has no text",
    cut(custom="x"): "custom of its cut is not an object",
    cut(supervisions=[{"text": "one", "custom": [1]}]): "custom of its cut is not an object",
    cut(
        recording={"sources": [{"type": "file", "source": "a.wav"}], "channel_ids": 5}
    ): "the channels of its recording",
    cut(recording=None): "its cut has no recording with sources",
    cut(type="MixedCut"): "it is a MixedCut",
    cut(recording={"sources": []}): "its recording has 0 sources",
    cut(recording={"sources": [{"type": "command"}]}): "its recording is of type 'command'",
}
BAD_KALDI = {
    "u1 cat a.wav |": "the output of a command",
    "u1 a.ark:1234": "inside a Kaldi archive",
    "u1": "has no path",
    "good b.wav": "appears there twice",
    "silent b.wav": "it has no text",
}


@pytest.mark.parametrize("row", BAD_ROWS)
def test_bad_csv_row_is_skipped_with_a_reason(tmp_path: Path, row: str) -> None:
    _check_row(
        write(tmp_path, {"l.csv": f"{HEAD}good,g.wav,one,,,,\n{row}\n"}) / "l.csv", "l.csv, line 3", BAD_ROWS[row]
    )


@pytest.mark.parametrize("row", BAD_OBJECTS, ids=lambda row: row[:30])
def test_bad_jsonl_object_is_skipped_with_a_reason(tmp_path: Path, row: str) -> None:
    good = cut(id="good") if "supervisions" in row else '{"id": "good", "audio": "g.wav", "text": ""}'
    _check_row(write(tmp_path, {"l.jsonl": f"{good}\n{row}\n"}) / "l.jsonl", "l.jsonl, line 2", BAD_OBJECTS[row])


@pytest.mark.parametrize("row", BAD_KALDI)
def test_bad_kaldi_line_is_skipped_with_a_reason(tmp_path: Path, row: str) -> None:
    text = "good one\nu1 two\n" if row.startswith("u1") else "good one\n"
    path = write(tmp_path, {"wav.scp": f"good a.wav\n{row}\n", "text": text})
    _check_row(path, "wav.scp, line 2", BAD_KALDI[row])


def _check_row(path: Path, where: str, reason: str) -> None:
    all_rows = rows(path)
    good, bad = (
        [each for each in all_rows if isinstance(each, Utterance)],
        [each for each in all_rows if isinstance(each, Bad)],
    )
    assert [each.id for each in good] == ["good"]
    assert [each.where for each in bad] == [where]
    assert re.search(reason, bad[0].reason), bad[0].reason
    assert "\n" not in bad[0].reason and len(bad[0].reason) < 300


# Manifests without a single row that can be read.
BROKEN: dict[str, tuple[Callable[[Path], Path], str]] = {
    "missing": (lambda d: d / "none.csv", "is not there"),
    "long name": (lambda d: d / ("x" * 5000), "cannot be read|is not there"),
    "null": (lambda d: Path("a\0.csv"), "is not there"),
    "empty": (lambda d: write(d, {"a.csv": ""}) / "a.csv", "is empty"),
    "blank": (lambda d: write(d, {"a.csv": "\n\n"}) / "a.csv", "has an empty first line"),
    "blank objects": (lambda d: write(d, {"a.jsonl": "\n \n"}) / "a.jsonl", "holds no rows"),
    "no audio": (lambda d: write(d, {"a.csv": "id,text\nu,one\n"}) / "a.csv", "none with the audio"),
    "no text": (lambda d: write(d, {"a.tsv": "id\taudio\nu\ta.wav\n"}) / "a.tsv", "none with the text"),
    "no header": (lambda d: write(d, {"a.csv": "a.wav,one two\n"}) / "a.csv", "the columns a.wav, one two"),
    "header alone": (
        lambda d: write(d, {"a.csv": "audio,text\n"}) / "a.csv",
        "has no row that can be used; it holds none",
    ),
    "open quote": (lambda d: write(d, {"a.csv": 'audio,"text\n'}) / "a.csv", "not a list of columns"),
    "all bad": (
        lambda d: write(d, {"a.csv": "audio,text\n,one\n"}) / "a.csv",
        "no row that can be used of 1; a.csv, line 2",
    ),
    "latin": (
        lambda d: write(d, {"a.csv": b"audio,text\na.wav,caf\xe9\n"}) / "a.csv",
        "UTF-8 .* at byte 20.; save it in",
    ),
    "latin objects": (lambda d: write(d, {"a.jsonl": b'{"text": "\xe9"}'}) / "a.jsonl", "not written in UTF-8"),
    "utf-16": (lambda d: write(d, {"a.csv": "audio,text\n".encode("utf-16")}) / "a.csv", "not written in UTF-8"),
    "nulls": (lambda d: write(d, {"a.csv": b"\0\0\0\0"}) / "a.csv", "not written in UTF-8"),
    "parquet": (lambda d: write(d, {"a.csv": b"PAR1...."}) / "a.csv", "is a Parquet file"),
    "spreadsheet": (lambda d: write(d, {"a.csv": b"PK\x03\x04...."}) / "a.csv", "is a zip file or a spreadsheet"),
    "packed": (lambda d: write(d, {"a.csv": gzip.compress(b"audio,text\n")}) / "a.csv", "is compressed"),
    "not packed": (lambda d: write(d, {"a.jsonl.gz": "{}\n"}) / "a.jsonl.gz", "cannot be read"),
    "cut short": (
        lambda d: write(d, {"a.jsonl.gz": gzip.compress(json.dumps(CUT).encode() * 99)[:60]}) / "a.jsonl.gz",
        "cannot be read|not written in UTF-8",
    ),
    "one list": (lambda d: write(d, {"a.json": '[{"audio": "a.wav"}]'}) / "a.json", "is one JSON list"),
    "one document": (lambda d: write(d, {"a.json": '[\n{"audio": "a"}\n]'}) / "a.json", "one JSON document"),
    "broken line": (
        lambda d: write(d, {"a.jsonl": '{"audio": "a.wav", \n'}) / "a.jsonl",
        "no row that can be used of 1",
    ),
    "sound": (lambda d: write(d, {"a.wav": "RIFF"}) / "a.wav", "is a sound file"),
    "ending": (lambda d: write(d, {"a.docx": "x"}) / "a.docx", "has the ending '.docx'"),
    "a file of kaldi": (
        lambda d: write(d, {"wav.scp": "u a.wav", "text": "u one"}) / "text",
        "text is a file of a Kaldi data directory; name the directory",
    ),
    "no ending": (lambda d: write(d, {"list": "x"}) / "list", "of no known format"),
    "no sound": (lambda d: write(d, {"d/a.txt": "one"}) / "d", "holds no recordings"),
    "no transcript": (lambda d: write(d, {"d/a.wav": ""}) / "d", "there is no transcript beside it"),
    "latin transcript": (
        lambda d: write(d, {"d/a.wav": "", "d/a.txt": b"\xe9"}) / "d",
        "a.txt is not written in UTF-8",
    ),
    "kaldi without text": (lambda d: write(d, {"d/wav.scp": "u a.wav"}) / "d", "has no file text"),
    "kaldi without wav.scp": (lambda d: write(d, {"d/text": "u one", "d/segments": ""}) / "d", "without wav.scp"),
    "kaldi pipes": (lambda d: write(d, {"d/wav.scp": "u cat x |", "d/text": "u one"}) / "d", "which is not run"),
    "kaldi segments": (
        lambda d: write(d, {"d/wav.scp": "r a.wav", "d/text": "u one", "d/segments": "u r 1"}) / "d",
        "it has 3 fields; expected UTTERANCE RECORDING START END",
    ),
    "kaldi unknown": (
        lambda d: write(d, {"d/wav.scp": "r a.wav", "d/text": "u one", "d/segments": "u q 1 2"}) / "d",
        "no recording 'q'",
    ),
    "shards": (lambda d: write(d, {"a.list": "shards/0.tar\nshards/1.tar\n"}) / "a.list", "is a list of archives"),
    "columns": (lambda d: write(d, {"a.arrow": "ARROW1"}) / "a.arrow", "is a table in a binary format"),
    "hugging face's columns": (lambda d: write(d, {"d/data/a.arrow": "ARROW1"}) / "d", "d/data/a.arrow is a table"),
    "zip": (lambda d: write(d, {"a.zip": "PK"}) / "a.zip", "cannot be read"),
    "tar": (lambda d: write(d, {"a.tar": "x" * 999}) / "a.tar", "cannot be read"),
    "address": (lambda d: Path("memory:") / "none.csv", "is not there"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_manifest_raises_one_line_error(tmp_path: Path, kind: str) -> None:
    create, reason = BROKEN[kind]
    with pytest.raises(BadInput, match=reason) as caught:
        rows(create(tmp_path))
    assert "\n" not in str(caught.value) and "Traceback" not in str(caught.value)


def test_at_least_sixty_broken_manifest_cases_are_tested() -> None:
    assert len(BROKEN) + len(BAD_ROWS) + len(BAD_OBJECTS) + len(BAD_KALDI) >= 60
