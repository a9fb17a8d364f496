"""Subtitle files, parsed back by independent parsers: limits of cues and lines, cuts and times."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.exported_transcripts import (
    columns,
    parse_srt,
    parse_vtt,
    segment_lists,
    spelt,
    texts,
    transcript,
)
from workbench.session.values import Segment, Token
from workbench.text.exports import FORMATS
from workbench.text.scripts import display_width
from workbench.text.subtitles import cues, tokens_in


def test_srt_and_vtt_output_matches_literal_examples() -> None:
    talk = transcript(Segment(0.5, 2.25, "AT&T <said> a --> b"), Segment(3661.9996, 3663, "今天"))
    assert FORMATS["srt"].write(talk) == (
        "1\n00:00:00,500 --> 00:00:02,250\nAT&T <said> a -> b\n\n2\n01:01:02,000 --> 01:01:03,000\n今天\n"
    )
    assert FORMATS["vtt"].write(talk) == (
        "WEBVTT\n\n00:00:00.500 --> 00:00:02.250\nAT&amp;T &lt;said&gt; a --&gt; b\n\n"
        "01:01:02.000 --> 01:01:03.000\n今天\n"
    )


def test_no_arrow_in_the_text_of_a_subrip_file_is_read_as_a_time_line() -> None:
    written = FORMATS["srt"].write(transcript(Segment(0.0, 2.0, "a ---> b -----> c -->--> d -> e")))
    assert written == "1\n00:00:00,000 --> 00:00:02,000\na -> b -> c ->-> d -> e\n"


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


@pytest.mark.parametrize("text", [f"\u200b {'A' * 41} …", f"\u200b \u00ad{'A' * 41}🙂", f"\u0301 {'x' * 42} y"])
def test_letters_without_width_leave_lines_within_the_limit(text: str) -> None:
    lines = [line for cue in cues([Segment(0.0, 5.0, text)]) for line in cue.lines]
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert all(display_width(line) <= 42 and line == line.strip() for line in lines)


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
