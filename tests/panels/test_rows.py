"""The HTML of the results table: rows, marked differences, notes, the summary and the status line."""

from __future__ import annotations

import io
import re
import zipfile
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from panels.running.choices import ModelOnRuntime
from panels.transcribe.job import Instead, Row, RunState
from panels.transcribe.many import zipped
from panels.transcribe.view import NOTHING_YET, results_html, status_html, status_line, tag_chips
from panels.widgets.markup import element
from workbench.session.values import Doubt, Progress, Segment, Transcript
from workbench.text.rates import score

TRANSCRIPT = Transcript(
    "demo/x",
    "pytorch",
    "three eleven one",
    "en",
    (Segment(0.0, 1.5, "three eleven one"),),
    (1, 2),
    2.0,
    0.5,
    0.1,
    1 << 28,
)
ROW = Row("0:demo/x|pytorch", "a.wav", "/tmp/a.wav", ModelOnRuntime("demo/x", "pytorch"), "Demo X · PyTorch")
HOSTILE = "<img src=x onerror=alert(1)> & ${evil} {{evil}}"


class Tags(HTMLParser):
    """Collects tags, and checks that they nest."""

    def __init__(self, html: str):
        super().__init__()
        self.names: list[str] = []
        self.open: list[str] = []
        self.words = ""
        self.feed(html)
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.names.append(tag)
        if tag not in ("img", "source"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


def done_row(text: str = TRANSCRIPT.text, reference: str | None = None, **changes: object) -> Row:
    rating = None if reference is None else score(reference, text)
    return replace(
        ROW, status="done", transcript=replace(TRANSCRIPT, text=text, **changes), reference=reference, score=rating
    )  # type: ignore[arg-type]


def test_empty_results_table_shows_instructions() -> None:
    assert results_html(RunState()) == NOTHING_YET
    assert "Transcribe" in Tags(NOTHING_YET).words


@pytest.mark.parametrize("reference", [None, "three seven one"])
def test_empty_transcript_shows_no_words_recognised(reference: str | None) -> None:
    page = results_html(RunState((done_row("", reference=reference),), finished=True))
    assert "no words recognised" in Tags(page).words
    assert "raw same" not in page, "the style sheet hides that"


def test_result_row_shows_text_error_rates_times_and_memory() -> None:
    words = Tags(results_html(RunState((done_row(reference="three seven one"),), finished=True))).words
    for expected in (
        "a.wav",
        "2.0 s",
        "Demo X",
        "PyTorch",
        "WER 33.3 %",
        "CER",
        "100 ms",
        "0.050",
        "500 ms",
        "268 MB",
        "English",
    ):
        assert expected in words


def differences(reference: str, text: str) -> str:
    """Returns the paragraph of the results that marks the differences."""
    html = str(results_html(RunState((done_row(text, reference),))))
    return "<p" + html.partition('<p class="heard marked"')[2].partition("</p>")[0] + "</p>"


def test_differences_are_marked_with_labels_and_not_only_by_colour() -> None:
    marked = differences("three seven one two", "three eleven one")
    assert '<span class="wrong"><span>eleven</span>' in marked and "instead of" in marked and "missing: " in marked
    assert "added: " in differences("three", "three four")
    assert Tags(marked).words.replace("missing: ", "") == "three eleven instead of seven one two"


def test_chinese_differences_contain_no_spaces() -> None:
    assert Tags(differences("今天天气", "今天天汽")).words == "今天天汽 instead of 气"


def test_the_raw_text_stays_beside_the_normalised() -> None:
    words = Tags(results_html(RunState((done_row("Three, SEVEN one!", "three seven one"),)))).words
    assert "Three, SEVEN one!" in words and "Raw text" in words and "version 2" in words


@pytest.mark.parametrize("field", ["text", "note", "error", "name", "tag", "reference"])
def test_external_text_is_escaped_in_the_results_html(field: str) -> None:
    rows = {
        "text": done_row(HOSTILE),
        "note": done_row(notes=(HOSTILE,)),
        "error": replace(ROW, status="failed", error=HOSTILE),
        "name": replace(done_row(), recording=HOSTILE),
        "tag": done_row(tags={"event": HOSTILE}, language=HOSTILE),
        "reference": done_row(reference=HOSTILE),
    }
    tags = Tags(
        results_html(RunState((rows[field],))) + status_html(RunState((replace(rows[field], status="running"),)))
    )
    assert "img" not in tags.names and "onerror" in tags.words


def test_failed_row_shows_its_error_and_no_buttons() -> None:
    html = results_html(RunState((replace(ROW, status="failed", error="a.wav is empty"),), finished=True))
    assert "a.wav is empty" in html and "button" not in Tags(html).names


def test_a_doubt_is_one_line_for_all_models_with_a_button() -> None:
    doubt = Doubt("other speech", "this sounds like <b>speech</b>, and the model knows digits only")
    rows = (done_row(doubt=doubt), replace(done_row(doubt=doubt), key="0:b", title="B · GGUF"))
    instead = Instead("big|pytorch", "Big (940 MB)")
    html = results_html(RunState(rows, finished=True, instead=instead))
    assert html.count("This sounds like &lt;b&gt;speech&lt;/b&gt;, and these models know digits only") == 1
    assert 'data-event="instead"' in html and 'data-cell="big|pytorch"' in html and "Big (940 MB)" in html
    single = results_html(RunState((rows[0], replace(done_row(), key="0:b", title="B · GGUF")), finished=True))
    assert "Demo X · PyTorch: this sounds like" in single and 'data-event="instead"' not in single
    Tags(html)
    silent = done_row(doubt=Doubt("silence", "the recording is silent"))
    html = results_html(RunState((silent,), finished=True, instead=instead))
    assert "The recording is silent." in html and 'data-event="instead"' not in html


def test_several_recordings_get_a_summary_row_per_model() -> None:
    rows = (
        done_row(reference="three seven one"),
        replace(done_row(reference="three eleven one"), key="1:demo/x|pytorch", recording="b.wav"),
    )
    words = Tags(results_html(RunState(rows, finished=True))).words
    assert "All recordings together" in words and "WER 16.7 %" in words


def test_status_line_shows_model_recording_and_progress() -> None:
    running = replace(ROW, status="running", progress=Progress(12, 44, "transcribing"))
    line = Tags(status_line(RunState((running, replace(ROW, key="1:x"))))).words
    assert line == "1 of 2 · Demo X · PyTorch · a.wav · transcribing, 12.0 s of 44.0 s"
    assert 'style="width:14%"' in status_html(RunState((running, replace(ROW, key="1:x"))))


@pytest.mark.parametrize(
    ("state", "line"),
    [
        (RunState((done_row(),), True, seconds=2.0), "1 transcript in 2.0 s"),
        (RunState((done_row(), done_row()), True, seconds=2.0), "All 2 transcripts in 2.0 s"),
        (
            RunState((done_row(), replace(ROW, status="failed")), True, seconds=2.0),
            "1 of 2 transcripts in 2.0 s, 1 failed",
        ),
        (
            RunState((done_row(), replace(ROW, status="stopped")), True, True, 2.0),
            "Stopped: 1 of 2 transcripts in 2.0 s",
        ),
    ],
)
def test_status_line_summarises_a_finished_run(state: RunState, line: str) -> None:
    assert status_line(state) == line


def test_chips_have_a_word_beside_the_picture() -> None:
    chips = tag_chips(
        replace(TRANSCRIPT, language="yue", tags={"emotion": "HAPPY", "event": "BGM", "itn": "woitn", "accent": "mild"})
    )
    assert [(word, kind) for _, word, kind in chips] == [
        ("Cantonese", "language"),
        ("happy", "emotion"),
        ("music", "event"),
        ("as spoken", "itn"),
        ("mild", "accent"),
    ]


def test_attributes_are_quoted() -> None:
    assert element("p", "x", "a", data_key='"><b>') == '<p class="a" data-key="&#34;&gt;&lt;b&gt;">x</p>'
    assert not re.search(r"<b>", element("p", "x", title="<b>"))


def test_files_of_recordings_with_equal_names_get_different_names_in_the_zip() -> None:
    names = ["a-3.wav", "a.wav", "a.mp3", "A.flac", "b.wav"]
    rows = [
        replace(ROW, key=f"{place}:demo/x|pytorch", recording=name, status="done", transcript=TRANSCRIPT)
        for place, name in enumerate(names)
    ]
    stored = zipfile.ZipFile(io.BytesIO(zipped(rows))).namelist()
    texts = [name.removeprefix("demo-x-pytorch/") for name in stored if name.endswith(".txt")]
    assert texts == ["a-3.txt", "a.txt", "a-4.txt", "A-5.txt", "b.txt"]  # some systems take A and a for one name
