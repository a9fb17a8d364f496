"""TextGrid and CTM files, read back by parsers that are written here from the formats' descriptions."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tests.support.exported_transcripts import segment_lists, spelt, transcript
from workbench.session.values import Segment
from workbench.text.exports import FORMATS

GRID = FORMATS["textgrid"]
CTM = FORMATS["ctm"]


def parse_textgrid(content: str) -> tuple[float, dict[str, list[tuple[float, float, str]]]]:
    """Returns the end, and the intervals of each tier. Praat reads the free-standing numbers and texts in quotes."""
    values = [
        text.replace('""', '"') if text or quote else float(number)
        for quote, text, number in re.findall(r'(")((?:[^"]|"")*)"|(?<![^\s])(\d+(?:\.\d+)?)(?![^\s])', content)
    ]
    assert values[:2] == ["ooTextFile", "TextGrid"] and values[2] == 0.0
    end, count = values[3], values[4]
    rest = iter(values[5:])
    tiers = {}
    for _ in range(int(count)):
        kind, name, start, tier_end, size = (next(rest) for _ in range(5))
        assert (kind, start, tier_end) == ("IntervalTier", 0.0, end)
        tiers[name] = [(next(rest), next(rest), next(rest)) for _ in range(int(size))]
    assert not list(rest)
    return end, tiers


def test_textgrid_has_segments_and_the_words_with_times() -> None:
    words = [("three", 0.5, 0.9), ("seven", 1.0, 1.4)]
    end, tiers = parse_textgrid(GRID.write(transcript(spelt(0.25, 1.5, words), audio_seconds=2.0)))
    assert end == 2.0
    assert tiers == {
        "segments": [(0.0, 0.25, ""), (0.25, 1.5, "three seven"), (1.5, 2.0, "")],
        "words": [(0.0, 0.5, ""), (0.5, 0.9, "three"), (0.9, 1.0, ""), (1.0, 1.4, "seven"), (1.4, 2.0, "")],
    }


def test_textgrid_has_no_words_where_the_model_gave_no_times() -> None:
    _, tiers = parse_textgrid(GRID.write(transcript(Segment(0.0, 2.0, "three seven"), audio_seconds=2.0)))
    assert tiers == {"segments": [(0.0, 2.0, "three seven")]}


def test_textgrid_of_a_text_without_segments_spans_the_recording() -> None:
    assert parse_textgrid(GRID.write(transcript(text="three", audio_seconds=2.0))) == (
        2.0, {"segments": [(0.0, 2.0, "three")]},
    )  # fmt: skip


def test_textgrid_without_speech_has_one_empty_interval() -> None:
    assert parse_textgrid(GRID.write(transcript(audio_seconds=2.0))) == (2.0, {"segments": [(0.0, 2.0, "")]})
    assert parse_textgrid(GRID.write(transcript(audio_seconds=0.0)))[1] == {"segments": [(0.0, 0.001, "")]}


def test_textgrid_doubles_quotes_and_keeps_every_label_on_one_line() -> None:
    content = GRID.write(transcript(Segment(0.0, 1.0, 'say "three"\nxmin = 3'), audio_seconds=1.0))
    assert '            text = "say ""three"" xmin = 3"\n' in content
    assert parse_textgrid(content)[1]["segments"] == [(0.0, 1.0, 'say "three" xmin = 3')]


def test_overlapping_segments_follow_each_other() -> None:
    overlapping = (Segment(0.0, 1.0, "a"), Segment(0.5, 1.5, "b"), Segment(0.6, 0.9, "c"))
    _, tiers = parse_textgrid(GRID.write(transcript(*overlapping, audio_seconds=1.5)))
    assert tiers["segments"] == [(0.0, 1.0, "a"), (1.0, 1.5, "b c")], "c has no time of its own"


def test_segments_of_several_transcripts_stand_in_order_of_time() -> None:
    later, earlier = (
        transcript(Segment(start, start + 1.0, text), audio_seconds=2.0) for start, text in ((1.0, "b"), (0.0, "a"))
    )
    _, tiers = parse_textgrid(GRID.writer([later, earlier], ()))
    assert tiers["segments"] == [(0.0, 1.0, "a"), (1.0, 2.0, "b")]


@given(segment_lists(), st.sampled_from([0.0, 3.0, 100.0]))
def test_intervals_have_no_gap_and_no_overlap_and_keep_all_text(segments: list[Segment], seconds: float) -> None:
    end, tiers = parse_textgrid(GRID.write(replace(transcript(*segments), audio_seconds=seconds)))
    assert end >= seconds - 0.0005
    for tier in tiers.values():
        assert tier[0][0] == 0.0 and tier[-1][1] == end
        assert all(start < stop for start, stop, _ in tier)
        assert all(before[1] == after[0] for before, after in pairwise(tier))
    labels = "".join(label for _, _, label in tiers["segments"])
    written = "".join(segment.text for segment in segments)
    assert sorted("".join(labels.split())) == sorted("".join(written.split()))


def test_ctm_has_a_line_for_each_word() -> None:
    talk = transcript(spelt(0.25, 1.5, [("three", 0.5, 0.9), ("seven", 1.0, 1.4)]))
    words = talk.segments[0].tokens
    sure = replace(talk.segments[0], tokens=(replace(words[0], confidence=0.5), words[1]))
    assert CTM.write([replace(talk, segments=(sure,))], ["talks/my talk.v2.wav"]) == (
        "my_talk.v2 1 0.500 0.400 three 0.500\nmy_talk.v2 1 1.000 0.400 seven\n"
    )


def test_ctm_spreads_words_without_times_over_their_segment() -> None:
    assert CTM.write(transcript(Segment(1.0, 2.0, "three seven"))) == (
        "recording 1 1.000 0.500 three\nrecording 1 1.500 0.500 seven\n"
    )


def test_ctm_names_a_recording_by_its_file_on_any_system() -> None:
    talk = transcript(Segment(0.0, 1.0, "three"))
    assert CTM.write(talk, ["C:\\my talks\\b c.wav"]) == "b_c 1 0.000 1.000 three\n"
    assert CTM.write(talk, [" .wav"]) == "recording 1 0.000 1.000 three\n"


@given(segment_lists(), st.sampled_from(["a.wav", "", "C:\\x\\b c.wav", ";;d.wav", "-"]))
def test_ctm_lines_have_five_or_six_fields_in_order_of_time(segments: list[Segment], name: str) -> None:
    lines = [line.split() for line in CTM.write([transcript(*segments)], [name]).splitlines()]
    assert all(len(line) in (5, 6) and not line[0].startswith(";;") for line in lines)
    starts = [float(line[2]) for line in lines]
    assert starts == sorted(starts) and all(float(line[3]) >= 0 for line in lines)
    written = "".join(segment.text for segment in segments)
    spelled = "".join(line[4] for line in lines).replace("_", "")
    assert sorted(spelled) == sorted("".join(written.split()).replace("_", ""))
