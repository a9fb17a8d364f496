"""Exports of transcripts as text, JSON and CSV, parsed back."""

from __future__ import annotations

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.exported_transcripts import (
    parse_srt,
    segment_lists,
    transcript,
)
from workbench.core.errors import BadInput
from workbench.session.values import Segment, Token
from workbench.text.exports import FORMATS, find_format


def test_every_format_writes_one_transcript_and_several_only_where_supported() -> None:
    one = transcript(Segment(0.5, 1.5, "three seven"))
    for name, form in FORMATS.items():
        assert form.extension.lower() == name, "a file is named by its format"
        assert "seven" in form.write(one)
        if form.several:
            assert form.write([one, one]).count("seven") == form.write(one).count("seven") * 2
        else:
            with pytest.raises(
                BadInput,
                match=rf"one \.{form.extension} file holds one recording, and there are 2; .*txt, json, csv, ctm",
            ):
                form.write([one, one])


def test_export_formats_are_found_by_name() -> None:
    assert find_format("text") is FORMATS["txt"]
    assert find_format(".SRT") is FORMATS["srt"]
    with pytest.raises(BadInput, match="'docx'; expected one of txt, srt, vtt, json, csv, textgrid, ctm"):
        find_format("docx")
    with pytest.raises(BadInput, match="1 file names for 2 transcripts"):
        FORMATS["csv"].write([transcript(), transcript()], ["a.wav"])


def test_an_empty_transcript_gives_valid_empty_files() -> None:
    empty = transcript()
    assert FORMATS["txt"].write(empty) == ""
    assert FORMATS["srt"].write(empty) == ""
    assert FORMATS["vtt"].write(empty) == "WEBVTT\n"
    assert FORMATS["csv"].write(empty) == "model,runtime,start,end,text\n"
    assert json.loads(FORMATS["json"].write(empty))["segments"] == []
    assert [FORMATS[name].write([]) for name in ("txt", "json", "csv")] == ["", "", "model,runtime,start,end,text\n"]


def test_txt_export_keeps_a_single_text_and_writes_several_one_per_line() -> None:
    assert FORMATS["txt"].write(transcript(text="one\ntwo ")) == "one\ntwo\n"
    several = [transcript(text="one\ntwo"), transcript(text=""), transcript(text="今天")]
    assert FORMATS["txt"].write(several) == "one two\n\n今天\n"


def test_json_export_has_all_fields_with_the_documented_ones_first() -> None:
    token = Token(3, "three", 0.5, 1.0)
    line = FORMATS["json"].write(transcript(Segment(0.5, 1.5, "“三” three", (token,), {"emotion": "happy"})))
    assert line.count("\n") == 1
    assert "“三”" in line
    document = json.loads(line)
    promised = {
        "model": "demo/paraformer",
        "runtime": "pytorch",
        "text": "“三” three",
        "language": "en",
        "segments": [
            {
                "start": 0.5,
                "end": 1.5,
                "text": "“三” three",
                "tokens": [{"id": 3, "text": "three", "start": 0.5, "end": 1.0}],
                "tags": {"emotion": "happy"},
            }
        ],
        "tokens": [3, 1, 2],
        "audio_seconds": 60.0,
        "load_seconds": 0.5,
        "compute_seconds": 1.25,
    }
    assert list(document.items())[: len(promised)] == list(promised.items())
    assert list(document)[len(promised) :] == ["memory_bytes", "tags", "notes", "quantization"]


@given(segment_lists())
def test_json_times_are_rounded_to_milliseconds(segments: list[Segment]) -> None:
    document = json.loads(FORMATS["json"].write(transcript(*segments)))
    for segment, written in zip(segments, document["segments"], strict=True):
        pairs = [(segment.start, written["start"]), (segment.end, written["end"])]
        for token, spelled in zip(segment.tokens, written["tokens"], strict=True):
            pairs += [(token.start, spelled["start"]), (token.end, spelled["end"])]
        for expected, time in pairs:
            assert time == round(time, 3) and abs(time - expected) <= 0.0005 + 1e-9


def test_json_times_have_no_floating_point_residue() -> None:
    token = Token(3, "three", 0.1 + 0.2, 0.15 + 0.3)
    talk = transcript(Segment(0.15 + 0.3, 1.1 + 2.2, "three", (token,)), audio_seconds=1.1 + 2.2, compute_seconds=1 / 3)
    line = FORMATS["json"].write(talk)
    assert '"start": 0.45, "end": 3.3' in line and '"start": 0.3, "end": 0.45' in line
    assert '"audio_seconds": 3.3,' in line and '"compute_seconds": 0.333333,' in line
    assert ",0.450,3.300," in FORMATS["csv"].write(talk)


def test_json_export_names_the_recordings_if_they_are_known() -> None:
    lines = FORMATS["json"].write([transcript(), transcript()], ["日本 é.wav", "b.wav"]).splitlines()
    assert [json.loads(line)["file"] for line in lines] == ["日本 é.wav", "b.wav"] and "日本 é.wav" in lines[0]
    assert list(json.loads(lines[0]))[1:] == list(json.loads(FORMATS["json"].write(transcript())))


def test_json_export_of_several_transcripts_has_one_object_per_line() -> None:
    several = [transcript(text="line\nbreak\u2028here"), transcript(text="b", language=None)]
    lines = FORMATS["json"].write(several).split("\n")
    assert [json.loads(line)["text"] for line in lines[:-1]] == ["line\nbreak\u2028here", "b"]
    assert lines[-1] == ""
    named = [json.loads(line) for line in FORMATS["json"].write(several, ["a.wav", "ü b.wav"]).split("\n") if line]
    assert [(each["file"], each["text"][-1]) for each in named] == [("a.wav", "e"), ("ü b.wav", "b")]
    assert [{**each, "file": None} for each in named] == [{"file": None, **json.loads(line)} for line in lines[:-1]]


# --- csv ----------------------------------------------------------------------------------------------------------


def test_csv_export_of_several_transcripts_has_one_header_and_a_file_column() -> None:
    several = [transcript(Segment(0, 1.5, 'say "a, b"\nc'), Segment(2, 3, "d")), transcript(Segment(0, 0.0006, "今天"))]
    rows = list(csv.reader(io.StringIO(FORMATS["csv"].write(several, ["one.wav", "=two.wav"]))))
    assert rows == [
        ["model", "runtime", "file", "start", "end", "text"],
        ["demo/paraformer", "pytorch", "one.wav", "0.000", "1.500", 'say "a, b"\nc'],
        ["demo/paraformer", "pytorch", "one.wav", "2.000", "3.000", "d"],
        ["demo/paraformer", "pytorch", "'=two.wav", "0.000", "0.001", "今天"],
    ]


@given(st.text())
def test_csv_text_round_trips_and_formulas_are_escaped(text: str) -> None:
    content = FORMATS["csv"].write(transcript(Segment(0, 1, text), text="x"))
    cell = list(csv.reader(io.StringIO(content, newline="")))[1][4]
    assert not cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
    expected = text.replace("\r\n", "\n").replace("\r", "\n")
    assert cell == (f"'{expected}" if expected.startswith(("=", "+", "-", "@", "\t", "\n")) else expected)


def test_csv_files_open_in_spreadsheets_as_unicode() -> None:
    form = FORMATS["csv"]
    assert form.write(transcript()).encode(form.encoding).startswith(b"\xef\xbb\xbfmodel")


def test_a_text_without_segments_spans_the_recording() -> None:
    bare = transcript(text="three seven", audio_seconds=4.0)
    assert parse_srt(FORMATS["srt"].write(bare)) == [(0.0, 4.0, ["three seven"])]
    assert FORMATS["csv"].write(bare).splitlines()[1] == "demo/paraformer,pytorch,0.000,4.000,three seven"
