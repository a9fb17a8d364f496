"""Transcripts of other programs beside the models: their files, their recordings, and their results."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench import evaluation
from workbench.core.errors import BadInput
from workbench.evaluation.transcripts.files import FoundTranscript, read_transcripts

SPOKEN = {"talks/a one": "three seven one", "b": "nine two", "C": ""}
HEARD = {"talks/a one": "three eleven one", "b": "nine two", "C": "uh"}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A list of recordings that are not there: nothing reads them."""
    path = tmp_path / "list.csv"
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["audio", "text", "id", "speaker"])
        for name, text in SPOKEN.items():
            table.writerow([f"{name}.wav", text, name.replace("/", "-").replace(" ", "-"), "eva"])
    return path


def result_texts(corpus: Path, file: Path, **changes: object) -> dict[str, str | None]:
    """Returns the text of each recording in the results; None where there is no transcript."""
    changes = {"transcripts": {"other": file}, **changes}
    outcome = evaluation.run(corpus, [], corpus.parent / "results", **changes)  # type: ignore[arg-type]
    return {each.id: None if each.error else each.text for each in outcome.evaluation.results("other")}


def lines(form: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_text("".join(form.format(id=name, text=text) + "\n" for name, text in HEARD.items()))

    return write


def write_ctm(path: Path) -> None:
    """One word a second, the last one first: programs need not sort them."""
    rows = [
        f"{name.rpartition('/')[2].replace(' ', '_')} A {place} 0.5 {word} 0.9\n"
        for name, text in HEARD.items()
        for place, word in reversed([*enumerate(text.split())])
    ]
    path.write_text(";; a comment\n" + "".join(rows))


FILES: Mapping[str, Callable[[Path], None]] = {
    "hyp.trn": lambda path: path.write_text(
        "three eleven one (eva-talks-a-one)\n;; comment\nnine two\t(EVA-B)\nuh (c)\n"
    ),
    "hyp.txt": lambda path: path.write_text("three eleven one (talks-a-one)\nnine two (b)\nuh (C)\n"),
    "text": lambda path: path.write_bytes(b"\xef\xbb\xbftalks-a-one three eleven one\r\nb\tnine two\r\nC uh\r\n"),
    "words.ctm": write_ctm,
    "nemo.json": lines('{{"audio_filepath": "/elsewhere/{id}.wav", "text": "not this", "pred_text": "{text}"}}'),
    "list.json": lambda path: path.write_text(
        json.dumps([{"file": f"{name}.wav", "text": text} for name, text in HEARD.items()])
    ),
    "table.csv": lambda path: path.write_text(
        "Path;Hypothesis\n" + "".join(f'"{name}.wav";"{text}"\n' for name, text in HEARD.items())
    ),
    "table.tsv": lines("{id}.wav\t{text}"),
}


@pytest.mark.parametrize("name", FILES)
def test_transcripts_of_each_format_find_their_recordings(corpus: Path, name: str) -> None:
    file = corpus.parent / name
    FILES[name](file)
    if name == "table.tsv":
        file.write_text("path\ttext\n" + file.read_text())
    assert result_texts(corpus, file) == {"talks-a-one": "three eleven one", "b": "nine two", "C": "uh"}


def test_results_have_the_scores_and_the_times_of_words(corpus: Path) -> None:
    write_ctm(corpus.parent / "words.ctm")
    outcome = evaluation.run(corpus, [], corpus.parent / "results", transcripts={"other": corpus.parent / "words.ctm"})
    first, _, last = outcome.evaluation.results()
    assert first.words[1] == {"text": "eleven", "start": 1.0, "end": 1.5, "confidence": 0.9}
    assert first.scores is not None and first.scores["words"] == {
        "substitutions": 1, "deletions": 0, "insertions": 0, "hits": 2, "length": 3,
    }  # fmt: skip
    assert last.scores is not None and last.scores["words"]["insertions"] == 1
    [summary] = outcome.models
    assert (summary.model, summary.wer, summary.rtfx, outcome.workers, outcome.place) == ("other", 0.4, None, 0, "")


def test_recording_without_a_transcript_has_an_error_and_others_are_named(corpus: Path) -> None:
    file = corpus.parent / "text"
    file.write_text("b nine two\nmystery word\n")
    outcome = evaluation.run(corpus, [], corpus.parent / "results", transcripts={"other": file})
    assert [each.error for each in outcome.evaluation.results()] == [
        "text has no transcript of it", None, "text has no transcript of it",
    ]  # fmt: skip
    assert outcome.notes == (
        "other: 1 transcript of text belongs to no recording of the corpus, such as 'mystery' (text, line 2)",
    )


def test_longest_name_is_accepted_and_several_unknown_transcripts_are_counted(corpus: Path) -> None:
    file, name = corpus.parent / "text", "o" * 80
    file.write_text("b nine two\nmystery word\nriddle word\n")
    outcome = evaluation.run(corpus, [], corpus.parent / "results", transcripts={name: file})
    assert outcome.notes == (
        f"{name}: 2 transcripts of text belong to no recording of the corpus, such as 'mystery' (text, line 2)",
    )


def test_names_of_several_recordings_decide_nothing(corpus: Path) -> None:
    """Two segments of one recording: its path names neither, and their ids name each."""
    corpus.write_text("audio,text,id,offset,duration\na.wav,one,first,0,1\na.wav,two,second,1,1\n")
    file = corpus.parent / "hyp.jsonl"
    file.write_text('{"audio": "a.wav", "text": "one"}\n')
    with pytest.raises(BadInput, match=r"no transcript of .*hyp\.jsonl belongs to a recording of the corpus: the file"):
        result_texts(corpus, file)
    file.write_text('{"audio": "a.wav", "id": "second", "text": "one"}\n')
    assert result_texts(corpus, file) == {"first": None, "second": "one"}


def test_the_most_exact_name_decides_and_every_form_of_it_counts(corpus: Path) -> None:
    rows = ["a/x.wav,one,x", "b/x.wav,two,X", "c/Zoé ß.wav,three,third", "d.wav,four,d"]
    corpus.write_text("\n".join(["audio,text,id", *rows]) + "\n")
    file = corpus.parent / "hyp.jsonl"
    forms = [
        ("x", "X", "third", "d"),  # ids that differ in their capitals
        ("a/x", "b/x", "c/ZOE\u0301 SS", "d-d"),  # no endings; another accent; ESPnet's id twice
        *[tuple(f"{corpus.parent}/{row.partition(',')[0]}" for row in rows)],
    ]
    for number, names in enumerate(forms):
        file.write_text("".join(json.dumps({"id": name, "text": name}) + "\n" for name in names))
        outcome = evaluation.run(corpus, [], corpus.parent / f"results-{number}", transcripts={"other": file})
        assert tuple(each.text for each in outcome.evaluation.results()) == names


def test_results_count_what_is_new_and_have_the_length_and_the_normaliser_of_the_run(
    corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(corpus.parent))
    corpus.write_text("audio,text,duration\na.wav,three,1.5\nb.wav,nine two,2\n")
    (corpus.parent / "text").write_text("a 3\nb nine two\n")
    settings: dict[str, object] = {"transcripts": {"other": "~/text"}, "normaliser": "digits"}
    out = corpus.parent / "results"
    counts = [evaluation.run(corpus, [], out, limit=limit, **settings).computed for limit in (1, None, None)]  # type: ignore[arg-type]
    assert counts == [1, 1, 0]
    stored = evaluation.read(out)
    assert [each.audio_seconds for each in stored.results()] == [1.5, 2.0]
    assert [each.scores["words"]["hits"] for each in stored.results() if each.scores is not None] == [1, 2]
    assert stored.run.models[0].card == {"file": "text"}


def test_wrong_file_leaves_no_directory_and_can_be_mended(corpus: Path) -> None:
    file = corpus.parent / "text"
    file.write_text("x one\n")
    with pytest.raises(BadInput, match="has names such as 'x', and the corpus such as 'talks-a-one'"):
        result_texts(corpus, file)
    assert not (corpus.parent / "results").exists()
    file.write_text("b nine two\n")
    assert result_texts(corpus, file)["b"] == "nine two"


def test_changed_file_is_refused_and_the_limit_can_be_raised(corpus: Path) -> None:
    file = corpus.parent / "text"
    file.write_text("talks-a-one three\nb nine two\n")
    assert result_texts(corpus, file, limit=1) == {"talks-a-one": "three"}
    assert result_texts(corpus, file) == {"talks-a-one": "three", "b": "nine two", "C": None}
    file.write_text("talks-a-one three\nb nine\n")
    with pytest.raises(BadInput, match=r"the file of other has changed since .*results was made; name another"):
        result_texts(corpus, file)


@pytest.mark.parametrize("name", ["", " other", "o" * 81, "demo/sensevoice|pytorch", "a\nb"])
def test_impossible_names_are_refused(corpus: Path, name: str) -> None:
    (corpus.parent / "text").write_text("b nine\n")
    with pytest.raises(BadInput, match=r"the transcripts cannot be called .*; expected a name of at most 80"):
        evaluation.run(corpus, [], corpus.parent / "results", transcripts={name: corpus.parent / "text"})


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.trn", "three seven one\n", r"a\.trn, line 1 has no id in parentheses at its end"),
        ("a.ctm", "b 1 0.0 one\n", r"a\.ctm, line 1 has 4 fields; expected RECORDING CHANNEL START DURATION WORD"),
        ("a.ctm", "b 1 0.0 0.5 one\nb 2 0.0 0.5 one\n", r"a\.ctm, line 2: 'b' has the channel '2', and '1' at a\.ctm"),
        ("a.ctm", "b 1 0.0 0.5 one 0.9 lex\n", r"a\.ctm, line 1 has 7 fields; expected RECORDING CHANNEL START"),
        ("a.ctm", "b 1 -1 0.5 one\n", r"a\.ctm, line 1: '-1' is no time and no confidence"),
        ("a.ctm", "b 1 1e8 0.5 one\n", r"a\.ctm, line 1: '1e8' is no time and no confidence"),
        ("a.ctm", "b 1 nan 0.5 one\n", r"a\.ctm, line 1: 'nan' is no time and no confidence"),
        ("a.jsonl", '{"id": "b"}\n', r"a\.jsonl, line 1 has no text; expected one under pred_text, prediction"),
        ("a.jsonl", '{"text": "b"}\n', r"a\.jsonl, line 1 names no recording; expected its id or its path"),
        ("a.jsonl", '{"id": "b", "text": 3}\n', r"a\.jsonl, line 1: its text is 3; expected a text"),
        ("a.jsonl", "[1]\n", r"a\.jsonl, entry 1 is int; expected an object"),
        ("a.jsonl", "{\n", r"a\.jsonl, line 1 is not JSON"),
        ("a.json", "[" * 100_000, r"a\.json is not JSON"),
        ("text", f"b {'one ' * 300_000}\n", r"text, line 1: the transcript has \d+ characters; expected at most"),
        ("a.csv", "id,text\nb\n", r"a\.csv, line 2 has 1 fields; expected 2, as the first line"),
        ("a.csv", 'id,text\n"b,one\n', r"a\.csv, line 2 cannot be read as a row of a table"),
        ("text", "b one\nb two\n", r"text, line 2 has a transcript of 'b', and so has text, line 1; expected one"),
        ("text", "\n \n", r"text holds no transcripts; expected a file with an id and a text on each line"),
        ("text", "b \0one\n", r"text cannot be read: it is not UTF-8 text at byte 2"),
    ],
)
def test_faulty_files_are_refused_with_their_line(corpus: Path, name: str, content: str, sentence: str) -> None:
    file = corpus.parent / name
    file.write_text(content)
    with pytest.raises(BadInput, match=sentence):
        result_texts(corpus, file)


def test_missing_file_and_missing_model_are_refused(corpus: Path) -> None:
    with pytest.raises(BadInput, match=r"hyp\.trn cannot be read: No such file or directory"):
        result_texts(corpus, corpus.parent / "hyp.trn")
    with pytest.raises(BadInput, match="no model is named; expected at least one, such as demo/sensevoice, or transc"):
        evaluation.run(corpus, [], corpus.parent / "results")


def read(folder: Path, name: str, content: str) -> list[FoundTranscript]:
    (folder / name).write_text(content, newline="")
    return read_transcripts(folder / name)


@pytest.mark.parametrize(
    ("name", "content", "names", "text"),
    [
        ("A.TRN", "nine two (b)\n", ("b",), "nine two"),
        ("hyp.txt", ";; made by a program\nnine two (b)\n", ("b",), "nine two"),
        ("a.tsv", 'id\ttext\nb\t"nine two\n', ("b",), '"nine two'),
        ("a.csv", "id\thyp\nb\tnine, two\n", ("b",), "nine, two"),
        ("a.csv", 'id,hyp,"note;"\nb,nine two,\n', ("b",), "nine two"),
        ("a.csv", " id , hyp \n , \nb,nine two\n", ("b",), "nine two"),
        ("a.csv", f"id,hyp\nb,{'nine ' * 30_000}\n", ("b",), "nine " * 29_999 + "nine"),
        ("a.jsonl", '\n{"id": 7, "text": " nine two "}\n\n', ("7",), "nine two"),
        ("a.json", ' [{"id": " b ", "text": "nine two"}]', ("b",), "nine two"),
        ("a.json", '{"audio": "talks\\\\b.wav", "id": "b", "text": "nine two"}', ("b", "talks/b.wav"), "nine two"),
        ("a.json", '{"audio": "b.wav", "id": "", "text": "nine two"}', ("b.wav",), "nine two"),
    ],
)
def test_unusual_files_are_read(tmp_path: Path, name: str, content: str, names: tuple[str, ...], text: str) -> None:
    [found] = read(tmp_path, name, content)
    assert (found.names, found.text) == (names, text)


def test_ctm_without_confidences_is_read_and_each_recording_has_its_first_line(tmp_path: Path) -> None:
    first, second = read(tmp_path, "A.CTM", "b 1 0.5 0.5 nine NA\nc 1 0.0 0.5 uh na\nb 1 1.0 0.5 two\n")
    assert (first.where, second.where) == ("A.CTM, line 1", "A.CTM, line 2")
    assert first.text == "nine two" and not any("confidence" in word for word in (*first.words, *second.words))


TEXTS = st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp", "Zs"), exclude_characters="()"), max_size=8)


@settings(max_examples=40)
@given(st.lists(st.lists(TEXTS.filter(bool), max_size=4), min_size=1, max_size=4))
def test_text_with_any_characters_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]]
) -> None:
    folder = tmp_path_factory.mktemp("transcripts")
    spoken = [" ".join(words) for words in rows]
    (folder / "text").write_text("".join(f"u{number} {text}\n" for number, text in enumerate(spoken)))
    (folder / "a.trn").write_text("".join(f"{text} (u{number})\n" for number, text in enumerate(spoken)))
    (folder / "a.jsonl").write_text(
        "".join(json.dumps({"id": f"u{number}", "text": text}) + "\n" for number, text in enumerate(spoken))
    )
    for name in ("text", "a.trn", "a.jsonl"):
        found = read_transcripts(folder / name)
        assert [(each.names, each.text) for each in found if not each.text.startswith(";;")] == [
            ((f"u{number}",), text) for number, text in enumerate(spoken) if not text.startswith(";;")
        ]
