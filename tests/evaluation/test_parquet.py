"""Corpora inside Parquet files, as data sets of Hugging Face: their splits, texts and sound, and files that lie."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from tests.support.manifest_files import write
from tests.support.parquet_files import pyarrow_and_parquet, save
from workbench.core.errors import BadInput, Unavailable
from workbench.evaluation.manifests import Bad, Wanted, read_manifest
from workbench.evaluation.places import Recordings
from workbench.evaluation.rows import Utterance


def sound(level: float, form: str = "FLAC") -> bytes:
    file = io.BytesIO()
    soundfile.write(file, np.full(800, level), 16000, format=form)
    return file.getvalue()


def data_set(folder: Path) -> Path:
    """Writes two splits in the form of Hugging Face's LibriSpeech."""
    for split in ("test.clean", "train"):
        for part in range(2):
            rows = [
                {
                    "file": f"{part}-{n}.flac",
                    "audio": {"bytes": sound((5 * part + n) / 10), "path": f"/cache/{part}-{n}.flac"},
                    "text": f"{split} {part} {n}",
                    "speaker_id": n % 2,
                    "id": f"{part}-{n}",
                    "begin_time": 150.0,
                }
                for n in range(5)
            ]
            save(
                folder / f"data/{split}-{part:05d}-of-00002.parquet",
                rows,
                file="string",
                audio="audio",
                text="string",
                speaker_id="int64",
                id="string",
                begin_time="float32",
            )
    return folder


def level(recordings: Recordings, utterance: Any) -> float:
    samples, rate = recordings.source(utterance)  # type: ignore[misc]
    assert (len(samples), rate) == (800, 16000)
    return round(float(samples[400]), 2)


def test_a_split_of_a_data_set_is_read_in_order(tmp_path: Path) -> None:
    found = read_manifest(data_set(tmp_path), Wanted(split="test.clean"))
    utterances: list[Any] = list(found.rows())
    assert utterances[6] == Utterance(
        "1-1",
        "data/test.clean-00001-of-00002.parquet/1/1-1.flac",
        "test.clean 1 1",
        speaker="1",
        extra={"file": "1-1.flac", "begin_time": 150.0},
    )
    assert list(found.rows()) == utterances
    recordings = Recordings(found.root)
    for order in (range(10), (9, 3, 3, 0, 8, 6)):
        assert [level(recordings, utterances[n]) for n in order] == [n / 10 for n in order]
    recordings.close()
    outside = Utterance("u", "data/train-00000-of-00002.parquet/5", "")
    with pytest.raises(BadInput, match="has no row 5; it has 5, counted from 0"):
        Recordings(found.root).source(outside)


def test_several_splits_are_refused_until_one_is_chosen(tmp_path: Path) -> None:
    data_set(tmp_path)
    save(tmp_path / "other/train/0000.parquet", [{"audio": {"bytes": b""}, "text": ""}], audio="audio", text="string")
    names = "data/test.clean, data/train and other/train"
    for split, reason in ((None, "choose one"), ("train", "choose one"), ("dev", "and none called 'dev'")):
        with pytest.raises(BadInput, match=rf"holds the splits {names}.*{reason}"):
            list(read_manifest(tmp_path, Wanted(split)).rows())
    texts = [each.text for each in read_manifest(tmp_path, Wanted("data/train")).rows()]  # type: ignore[union-attr]
    assert len(texts) == 10 and texts[9] == "train 1 4"
    one = tmp_path / "data/train-00000-of-00002.parquet"
    assert len(list(read_manifest(one).rows())) == 5
    one.unlink()
    missing = next(iter(read_manifest(tmp_path, Wanted("data/train")).rows()))
    assert missing == Bad("data/train-*-of-00002.parquet", "1 of its 2 parts are not there")


def test_recordings_with_one_id_and_without_sound_or_text(tmp_path: Path) -> None:
    """In FLEURS, recordings of one sentence have the same id."""
    rows = [
        {"id": 7, "audio": {"bytes": sound(0.1, "WAV")}, "transcription": "one", "raw_transcription": "One."},
        {"id": 7, "audio": None, "transcription": "two", "raw_transcription": None},
    ]
    kinds = {"id": "int32", "audio": "audio", "transcription": "string", "raw_transcription": "string"}
    path = save(tmp_path / "t.parquet", rows, **kinds)
    first, second = read_manifest(path).rows()
    assert first == Utterance("t.parquet/0", "t.parquet/0", "one", extra={"id": 7, "raw_transcription": "One."})
    recordings = Recordings(str(tmp_path))
    assert level(recordings, first) == 0.1
    with pytest.raises(BadInput, match=r"row 1 of .*t\.parquet holds no sound"):
        recordings.source(second)  # type: ignore[arg-type]
    first, second = read_manifest(path, Wanted(text_column="raw_transcription")).rows()
    assert isinstance(first, Utterance) and (first.text, first.extra["transcription"]) == ("One.", "one")
    assert isinstance(second, Bad) and second.where == "t.parquet, row 1" and "has no text" in second.reason


def test_sound_and_text_in_unusual_columns(tmp_path: Path) -> None:
    path = save(tmp_path / "t.parquet", [{"wav": sound(0.2), "caption": "one"}], wav="binary", caption="string")
    with pytest.raises(BadInput, match=r"columns wav, caption, and none with the text .*; name it with --text-column"):
        list(read_manifest(path).rows())
    with pytest.raises(BadInput, match="no text in one called 'words'"):
        list(read_manifest(path, Wanted(text_column="words")).rows())
    [row] = read_manifest(path, Wanted(text_column="caption")).rows()
    assert isinstance(row, Utterance) and row.text == "one" and level(Recordings(str(tmp_path)), row) == 0.2
    path = save(tmp_path / "u.parquet", [{"text": "one"}], text="string")
    with pytest.raises(BadInput, match=r"has the columns text and none with sound"):
        list(read_manifest(path).rows())
    several = {name: {"bytes": b"x"} for name in ("noisy", "clean")}
    path = save(tmp_path / "v.parquet", [{**several, "text": "one"}], noisy="audio", clean="audio", text="string")
    with pytest.raises(
        BadInput, match="the columns noisy, clean all hold bytes; expected the sound in one named audio"
    ):
        list(read_manifest(path).rows())


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "zstd", "data_page_version": "2.0"},
        {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}, "compression": "gzip"},
        {"use_dictionary": False, "store_schema": False, "write_statistics": False, "compression": "none"},
    ],
)
@pytest.mark.parametrize(
    "kinds", [("binary", "string"), ("large_binary", "large_string"), ("binary_view", "string_view")]
)
def test_files_of_other_programs_are_read(tmp_path: Path, options: dict[str, Any], kinds: tuple[str, str]) -> None:
    pyarrow, parquet = pyarrow_and_parquet()
    bytes_, text = (getattr(pyarrow, kind)() for kind in kinds)
    audio = [{"bytes": sound(n / 10), "path": f"{n}.flac"} for n in range(3)]
    columns = {
        "Audio": pyarrow.array(audio, pyarrow.struct([("bytes", bytes_), ("path", text)])),
        "text": pyarrow.array(["one", "two", "one"], text),
        "kind": pyarrow.array(["x", "y", None]).dictionary_encode(),
        "level": [float("nan"), 1.0, 2.0],
        "when": pyarrow.array([1, 2, 3], pyarrow.timestamp("s")),
        "vector": [[1.0], [], None],
    }
    table = pyarrow.table(columns)
    parquet.write_table(table, tmp_path / "t.parquet", **options)
    found: list[Any] = list(read_manifest(tmp_path / "t.parquet").rows())
    assert [(each.audio, each.text) for each in found] == [
        ("t.parquet/0/0.flac", "one"),
        ("t.parquet/1/1.flac", "two"),
        ("t.parquet/2/2.flac", "one"),
    ]
    assert [each.extra for each in found] == [
        {"kind": "x", "level": "nan"},
        {"kind": "y", "level": 1.0},
        {"level": 2.0},
    ]
    assert [level(Recordings(str(tmp_path)), each) for each in found] == [0.0, 0.1, 0.2]
    parquet.write_table(table.slice(0, 0), tmp_path / "empty.parquet")
    with pytest.raises(BadInput, match="has no row that can be used; it holds none"):
        list(read_manifest(tmp_path / "empty.parquet").rows())


def test_a_table_that_only_names_files_is_a_list(tmp_path: Path) -> None:
    write(tmp_path, {"a.wav": sound(0.3, "WAV")})
    save(tmp_path / "metadata.parquet", [{"file_name": "a.wav", "text": "one"}], file_name="string", text="string")
    [row] = read_manifest(tmp_path).rows()
    assert row == Utterance("a", "a.wav", "one")
    rows = [{"audio": {"bytes": None, "path": name}, "text": "one"} for name in ("a.wav", "/x/b.wav")]
    path = save(tmp_path / "paths.parquet", rows, audio="audio", text="string")
    assert [each.audio for each in read_manifest(path).rows()] == ["a.wav", "/x/b.wav"]  # type: ignore[union-attr]


def test_a_name_inside_a_table_never_leads_out_of_it(tmp_path: Path) -> None:
    names = ["../../etc/passwd.wav", "..\\..\\x.wav", "a\n.wav", "/x/..", "x" * 300 + ".wav", ".."]
    rows = [{"audio": {"bytes": sound(0.1), "path": name}, "text": "one"} for name in names]
    path = save(tmp_path / "t.parquet", rows, audio="audio", text="string")
    found: list[Any] = list(read_manifest(path).rows())
    assert [each.audio.removeprefix("t.parquet/") for each in found] == ["0/passwd.wav", "1/x.wav", "2", "3", "4", "5"]
    assert [level(Recordings(str(tmp_path)), each) for each in found] == [0.1] * 6


def test_a_parquet_file_at_an_address_is_read_there(tmp_path: Path) -> None:
    import fsspec

    content = save(
        tmp_path / "t.parquet", [{"audio": {"bytes": sound(0.4)}, "text": "one"}], audio="audio", text="string"
    )
    with fsspec.open("memory://set/t.parquet", "wb") as file:
        file.write(content.read_bytes())
    found = read_manifest("memory://set/t.parquet")
    [row] = found.rows()
    assert level(Recordings(found.root), row) == 0.4


def test_files_that_claim_more_than_they_hold_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"audio": {"bytes": sound(0.1)}, "text": "one"}]
    path = save(
        tmp_path / "many.parquet", [{"audio": None, "text": ""}] * 100_000, 100_000, audio="audio", text="string"
    )
    with pytest.raises(BadInput, match="too few for the 100000 rows that it claims to hold"):
        list(read_manifest(path).rows())
    path = save(tmp_path / "t.parquet", [*rows, {**rows[0], "text": "x" * 99_999}], audio="audio", text="string")
    monkeypatch.setattr("workbench.evaluation.manifests.parquet.MAX_PAGE_BYTES", 90_000)
    with pytest.raises(BadInput, match=r"has a page of 100.* bytes in its column text; expected at most 90000"):
        list(read_manifest(path).rows())
    path = save(tmp_path / "s.parquet", rows, audio="audio", text="string")
    [row] = read_manifest(path).rows()
    monkeypatch.setattr("workbench.evaluation.parquet_sounds.MAX_PAGE_BYTES", 100)
    with pytest.raises(BadInput, match=r"column audio\.bytes; expected at most 100"):
        Recordings(str(tmp_path)).source(row)  # type: ignore[arg-type]


def test_a_damaged_file_is_an_error_in_one_sentence(tmp_path: Path) -> None:
    path = save(
        tmp_path / "t.parquet", [{"audio": {"bytes": sound(0.1)}, "text": "one"}] * 3, audio="audio", text="string"
    )
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    damaged = [b"PAR1", content[:-9], content[: len(content) // 2] + b"PAR1", b"PAR1" + bytes(99) + content[-8:]]
    for _ in range(300):
        changed = bytearray(content)
        changed[rng.integers(4, len(content))] ^= 1 << rng.integers(8)
        damaged.append(bytes(changed))
    errors = []
    for each in damaged:
        path.write_bytes(each)
        try:
            for row in read_manifest(path).rows():
                Recordings(str(tmp_path)).source(row)  # type: ignore[arg-type]
        except BadInput as error:
            errors.append(str(error))
    assert len(errors) > 50
    assert [each for each in errors if "t.parquet" not in each or "\n" in each] == []


def test_without_pyarrow_the_error_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    write(tmp_path, {"data/test-00000-of-00001.parquet": "PAR1"})
    for place in (tmp_path, tmp_path / "data/test-00000-of-00001.parquet"):
        with pytest.raises(Unavailable, match="pip install pyarrow"):
            list(read_manifest(place).rows())


def test_the_text_of_other_tables_can_be_chosen_too(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "l.csv": "audio,text,raw\na.wav,one,One.\n",
        "l.jsonl": '{"audio": "a.wav", "text": "one", "raw": "One."}\n',
    }
    write(tmp_path, {**files, "k/wav.scp": "a a.wav\n", "k/text": "a one\n", "f/a.wav": "", "f/a.txt": "one"})
    for name in files:
        [row] = read_manifest(tmp_path / name, Wanted(text_column="raw")).rows()
        assert row == Utterance("a", "a.wav", "One.", extra={"text": "one"})
    with pytest.raises(BadInput, match="has the columns audio, text, raw, and none called 'Raw'"):
        list(read_manifest(tmp_path / "l.csv", Wanted(text_column="Raw")).rows())
    for name in ("k", "f"):
        with pytest.raises(BadInput, match="has no columns to choose the text from"):
            list(read_manifest(tmp_path / name, Wanted(text_column="raw")).rows())
    for name in ("k", "f", *files):
        with pytest.raises(BadInput, match="has no splits to choose one of"):
            list(read_manifest(tmp_path / name, Wanted(split="test")).rows())
