"""Exports parsed back by independent parsers, subtitle limits, and edits applied before export."""

from __future__ import annotations

import csv
import html
import io
import json
import re
import unicodedata
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.core.errors import BadInput
from workbench.session.values import Segment, Token, Transcript
from workbench.text.editing import TIME, edited, retold
from workbench.text.exports import FORMATS, find_format
from workbench.text.subtitles import cues, tokens_in

# --- helpers ------------------------------------------------------------------------------------------------------


def transcript(*segments: Segment, text: str | None = None, **changes: object) -> Transcript:
    plain = Transcript(
        model="demo/paraformer",
        runtime="pytorch",
        text=" ".join(segment.text for segment in segments) if text is None else text,
        language="en",
        segments=segments,
        tokens=(3, 1, 2),
        audio_seconds=60.0,
        load_seconds=0.5,
        compute_seconds=1.25,
        memory_bytes=1,
        tags={"emotion": "neutral"},
        notes=("a note",),
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def spelt(start: float, end: float, words: list[tuple[str, float, float]], text: str | None = None) -> Segment:
    tokens = tuple(Token(number, word, first, last) for number, (word, first, last) in enumerate(words))
    return Segment(start, end, " ".join(word for word, _, _ in words) if text is None else text, tokens)


def parse_srt(content: str) -> list[tuple[float, float, list[str]]]:
    parsed = []
    for number, block in enumerate(content.removesuffix("\n").split("\n\n") if content else [], 1):
        count, times, *lines = block.split("\n")
        assert int(count) == number
        match = re.fullmatch(r"(\d\d+):(\d\d):(\d\d),(\d{3}) --> (\d\d+):(\d\d):(\d\d),(\d{3})", times)
        assert match
        assert lines
        parsed.append((*_span(match), lines))
    return parsed


def parse_vtt(content: str) -> list[tuple[float, float, list[str]]]:
    head, *blocks = content.removesuffix("\n").split("\n\n")
    assert head.startswith("WEBVTT")
    parsed = []
    for block in blocks:
        times, *lines = block.split("\n")
        match = re.fullmatch(r"(\d\d+):(\d\d):(\d\d)\.(\d{3}) --> (\d\d+):(\d\d):(\d\d)\.(\d{3})", times)
        assert match
        assert not any("-->" in line or "<" in line for line in lines)
        parsed.append((*_span(match), [html.unescape(line) for line in lines]))
    return parsed


def _span(match: re.Match[str]) -> tuple[float, float]:
    h, m, s, ms, h2, m2, s2, ms2 = map(int, match.groups())
    assert max(m, s, m2, s2) < 60
    return h * 3600 + m * 60 + s + ms / 1000, h2 * 3600 + m2 * 60 + s2 + ms2 / 1000


def columns(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


times = st.floats(0, 200_000, allow_nan=False)
texts = st.one_of(
    st.text(max_size=30),
    st.lists(
        st.sampled_from(["a", "seven,", "extraordinarily", "今", "天，", "-->", "<b>", "&", "3.5"]), max_size=60
    ).map(" ".join),
    st.text("今天气很好，。（）a ", max_size=200),
)


@st.composite
def segment_lists(draw: st.DrawFn) -> list[Segment]:
    segments = []
    for _ in range(draw(st.integers(0, 4))):
        start, length, text = draw(times), draw(st.floats(0, 60)), draw(texts)
        edges = sorted(draw(st.lists(st.floats(start, start + length), min_size=2, max_size=10)))
        tokens = tuple(Token(0, word, *edge) for word, edge in zip(text.split(), pairwise(edges), strict=False))
        segments.append(Segment(start, start + length, text, tokens))
    return segments


# --- the table ----------------------------------------------------------------------------------------------------


def test_every_format_writes_one_transcript_and_several_only_where_supported() -> None:
    one = transcript(Segment(0.5, 1.5, "three seven"))
    for name, form in FORMATS.items():
        assert form.extension == name
        assert "three seven" in form.write(one)
        if form.several:
            assert form.write([one, one]).count("three seven") == form.write(one).count("three seven") * 2
        else:
            with pytest.raises(BadInput, match=f"a {name} file holds one recording, and there are 2; .*txt, json, csv"):
                form.write([one, one])


def test_export_formats_are_found_by_name() -> None:
    assert find_format("text") is FORMATS["txt"]
    assert find_format(".SRT") is FORMATS["srt"]
    with pytest.raises(BadInput, match="'docx'; expected one of txt, srt, vtt, json, csv"):
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


def test_json_export_of_several_transcripts_has_one_object_per_line() -> None:
    several = [transcript(text="line\nbreak\u2028here"), transcript(text="b", language=None)]
    lines = FORMATS["json"].write(several).split("\n")
    assert [json.loads(line)["text"] for line in lines[:-1]] == ["line\nbreak\u2028here", "b"]
    assert lines[-1] == ""


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


# --- subtitles ----------------------------------------------------------------------------------------------------


def test_srt_and_vtt_output_matches_literal_examples() -> None:
    talk = transcript(Segment(0.5, 2.25, "AT&T <said> a --> b"), Segment(3661.9996, 3663, "今天"))
    assert FORMATS["srt"].write(talk) == (
        "1\n00:00:00,500 --> 00:00:02,250\nAT&T <said> a -> b\n\n2\n01:01:02,000 --> 01:01:03,000\n今天\n"
    )
    assert FORMATS["vtt"].write(talk) == (
        "WEBVTT\n\n00:00:00.500 --> 00:00:02.250\nAT&amp;T &lt;said&gt; a --&gt; b\n\n"
        "01:01:02.000 --> 01:01:03.000\n今天\n"
    )


@given(segment_lists())
def test_parsed_subtitles_contain_all_text_within_the_limits(segments: list[Segment]) -> None:
    talk = transcript(*segments, text="")
    vtt, srt = parse_vtt(FORMATS["vtt"].write(talk)), parse_srt(FORMATS["srt"].write(talk))
    for start, end, lines in vtt:
        assert 0 < end - start <= 7.0 + 1e-6
        assert 1 <= len(lines) <= 2
        assert all(0 < columns(line) <= 42 for line in lines if not re.search(r"[^\w\s]{2}", line))
        assert all(line == line.strip() for line in lines)
    assert [cue[:2] for cue in srt] == [cue[:2] for cue in vtt]
    assert [start for start, _, _ in vtt] == sorted(start for start, _, _ in vtt)
    characters = sorted("".join("".join(lines) for _, _, lines in vtt).replace(" ", ""))
    assert characters == sorted("".join("".join(segment.text.split()) for segment in segments))


@given(texts, st.floats(0.5, 120))
def test_subtitle_cues_keep_order_and_time_span_of_their_segment(text: str, seconds: float) -> None:
    subtitles = cues([Segment(10.0, 10.0 + seconds, text)])
    assert "".join("".join(cue.lines) for cue in subtitles).replace(" ", "") == "".join(text.split())
    assert all(one.end_ms <= other.start_ms for one, other in pairwise(subtitles) if one.start_ms != other.start_ms)
    if subtitles:
        assert subtitles[0].start_ms == 10_000
        assert subtitles[-1].end_ms <= max(round(1000 * (10 + seconds)), subtitles[-1].start_ms + 500)


def test_subtitle_lines_are_balanced_and_broken_after_clauses() -> None:
    (even,) = cues([Segment(0, 6, "Nobody in the room has noticed the microphone yet although it is on.")])
    assert even.lines == ("Nobody in the room has noticed the", "microphone yet although it is on.")
    (clause,) = cues([Segment(0, 6, "When the recording begins, nobody has noticed the microphone.")])
    assert clause.lines == ("When the recording begins,", "nobody has noticed the microphone.")
    (short,) = cues([Segment(0, 6, "Nobody has noticed the microphone.")])
    assert short.lines == ("Nobody has noticed the microphone.",)


def test_chinese_characters_count_two_columns_and_no_line_starts_with_punctuation() -> None:
    text = "今天的天气非常好，我们决定去公园散步，然后（如果时间允许）再去图书馆看书。" * 3
    subtitles = cues([Segment(0, 21, text)])
    lines = [line for cue in subtitles for line in cue.lines]
    assert max(map(columns, lines)) <= 42
    assert "".join(lines) == text
    assert not any(line[0] in "，。）" or line[-1] == "（" for line in lines)


def test_subtitle_cuts_are_at_token_times() -> None:
    words = [
        (word, 2.0 * index, 2.0 * index + 0.8)
        for index, word in enumerate(["one", "two", "three", "four", "five", "six"])
    ]
    subtitles = cues([spelt(0.0, 12.0, words, text="One, two, three. Four, five, six.")])
    assert [cue.lines for cue in subtitles] == [("One, two, three.",), ("Four, five, six.",)]
    assert [(cue.start_ms, cue.end_ms) for cue in subtitles] == [(0, 5800), (6000, 12000)]


def test_subtitles_are_cut_at_pauses_without_flicker() -> None:
    words = [("so", 0.0, 0.5), ("it", 0.6, 1.0), ("goes", 1.1, 2.0), ("he", 6.0, 6.4), ("said", 6.6, 9.0)]
    subtitles = cues([spelt(0.0, 9.0, words)])
    assert [" ".join(cue.lines) for cue in subtitles] == ["so it goes", "he said"]
    assert [(cue.start_ms, cue.end_ms) for cue in subtitles] == [(0, 3000), (6000, 9000)]


def test_word_pieces_are_located_in_text_with_rewritten_numbers() -> None:
    tokens = [Token(0, "▁Twen"), Token(1, "ty"), Token(2, "▁people"), Token(3, "le@@"), Token(4, "ft"), Token(5, "。")]
    assert [(token.id, first, end) for token, first, end in tokens_in("20 people left.", tokens)] == [
        (2, 2, 8),
        (3, 8, 10),
        (4, 10, 12),
    ]


def test_zero_length_segments_get_a_minimum_display_time() -> None:
    subtitles = cues([Segment(1.0, 1.0, "a"), Segment(1.2, 1.2, "b"), Segment(5.0, 4.0, "c"), Segment(1.2, 1.2, "d")])
    assert [(cue.start_ms, cue.end_ms, cue.lines) for cue in subtitles] == [
        (1000, 1200, ("a",)),
        (1200, 1700, ("b",)),
        (1200, 1700, ("d",)),
        (5000, 5500, ("c",)),
    ]


def test_word_longer_than_a_line_is_split() -> None:
    (cue,) = cues([Segment(0, 5, "x" * 60)])
    assert cue.lines == ("x" * 42, "x" * 18)


# --- edits --------------------------------------------------------------------------------------------------------

SEGMENTS = (
    Segment(
        0.123, 1.456, "three seven", (Token(3, "three", 0.2, 0.6), Token(7, "seven", 0.8, 1.2)), {"emotion": "happy"}
    ),
    Segment(2.0, 3.0, "one", (Token(1, "one", 2.2, 2.8),), {"emotion": "sad"}),
)


def test_unchanged_edit_rows_return_the_same_transcript() -> None:
    before = transcript(*SEGMENTS, text="Three, seven; one.")
    assert edited(before, [["0.12", "1.46", "three seven "], (2.0, 3.0, "one"), ["", None, float("nan")]]) is before


def test_edited_segment_keeps_the_tokens_still_in_its_text() -> None:
    after = edited(transcript(*SEGMENTS), [(0.123, 1.456, "tree seven"), (2.0, 3.0, "one")])
    assert after.text == "tree seven one"
    assert [token.text for token in after.segments[0].tokens] == ["seven"]
    assert after.segments[0].tags == {"emotion": "happy"}
    assert after.segments[1] is SEGMENTS[1]
    assert after.tokens == (3, 1, 2)
    assert after.notes == ("a note", "segments edited by hand")
    assert edited(after, [(0, 1, "x")]).notes == after.notes


def test_edited_rows_are_sorted_and_can_overlap_be_split_or_added() -> None:
    rows = [("0:02.5", "0:00:03,000", "one"), ("0,7", 1.456, "seven"), (0.1, 0.8, "three"), (30, 31, "new")]
    after = edited(transcript(*SEGMENTS), rows)
    assert [(segment.start, segment.end, segment.text) for segment in after.segments] == [
        (0.1, 0.8, "three"),
        (0.7, 1.456, "seven"),
        (2.5, 3.0, "one"),
        (30.0, 31.0, "new"),
    ]
    assert [[token.id for token in segment.tokens] for segment in after.segments] == [[3], [7], [1], []]
    assert [segment.tags.get("emotion") for segment in after.segments] == ["happy", "happy", "sad", None]
    assert edited(transcript(*SEGMENTS), []).text == ""


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("1.25", 1.25), ("1,25", 1.25), (".5", 0.5), ("5.", 5.0), ("1:02", 62.0), ("0:01:02,500", 62.5), (" 2 ", 2.0)],
)
def test_edited_times_are_parsed_in_common_notations(written: str, seconds: float) -> None:
    assert edited(transcript(), [(written, 100, "a")]).segments[0].start == seconds


@given(st.one_of(st.text(max_size=30), st.from_regex(TIME, fullmatch=True)))
def test_arbitrary_time_text_is_parsed_or_refused(written: str) -> None:
    rows = [(written, 1e15, "a")]
    if re.fullmatch(TIME, written.strip()):
        (segment,) = edited(transcript(), rows).segments
        assert 0 <= segment.start < 1e13
    else:
        with pytest.raises(BadInput, match="the start of row 1 is"):
            edited(transcript(), rows)


def test_txt_export_of_edited_rows_needs_no_valid_times() -> None:
    before = transcript(*SEGMENTS)
    wrong = [("soon", 1, "three  seven"), (3, 2, "two"), (None, "", ""), (2.0, 3.0, "one")]
    changed = retold(before, wrong)
    assert (changed.text, changed.segments) == ("three seven two one", ())
    assert changed.notes[-1] == "segments edited by hand"
    right = [(2.0, 3.0, "one"), (0.123, 1.456, "three eight")]
    assert retold(before, right) == edited(before, right), "in the order of their times, where these can be read"
    assert [name for name, form in FORMATS.items() if not form.timed] == ["txt"]


def test_edited_chinese_is_joined_without_spaces() -> None:
    assert (
        edited(transcript(), [(0, 1, "今天"), (1, 2, ""), (2, 3, "天气 ok"), (3, 4, "yes")]).text == "今天天气 ok yes"
    )


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (("soon", 1, "a"), "the start of row 2 is 'soon'; expected seconds such as 1.25, or a time such as 0:01.25"),
        ((0, "", "a"), "the end of row 2 is empty; expected seconds"),
        ((0, None, "a"), "the end of row 2 is empty; expected seconds"),
        ((-1, 1, "a"), "the start of row 2 is '-1'; expected seconds"),
        ((0, float("inf"), "a"), "the end of row 2 is 'inf'; expected seconds"),
        ((True, 1, "a"), "the start of row 2 is 'True'; expected seconds"),
        ((2, 1.5, "a"), "row 2 ends at 1.5 s, before it starts at 2 s; expected the end after the start"),
        ((2, 3), "row 2 has 2 cells; expected three: start, end and text"),
    ],
)
def test_errors_name_the_bad_row_and_the_expected_value(row: tuple[object, ...], sentence: str) -> None:
    with pytest.raises(BadInput) as caught:
        edited(transcript(*SEGMENTS), [(0, 1, "fine"), row])
    assert str(caught.value).startswith(sentence)
