"""Decoders side by side, and the checks of language model, lexicon and phrase files, without a browser."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np
import pytest

from panels.decode.endpoint import decoded
from panels.decode.events import DecodeActions
from panels.decode.follow import follow
from panels.decode.knowledge import EXAMPLES, FILES, check_file, find_example, read_examples
from panels.decode.run import BEAM, GREEDY, GUIDED, Decodings, prepare, run
from panels.decode.view import marks, results_html, status_html
from panels.running.sessions import SessionPool
from panels.widgets.samples import read_samples
from tests.support.decode_jobs import job, options, ran
from tests.support.decoding_files import TOKENS, sounds_like, write_files
from tests.support.fake_panels import broken, tone
from workbench.core.errors import BadInput
from workbench.core.options import build_options, option_specs
from workbench.decoding.ctc_beam.options import SearchOptions
from workbench.decoding.ctc_options import CtcBeamOptions
from workbench.families.vocabularies.ctc_layouts import LogitsLayout
from workbench.registry.ctc_search import CtcBeamSearch
from workbench.trace.trace import Trace


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    return write_files(tmp_path)


# Runs.


@pytest.mark.parametrize(
    "chosen",
    [
        {"beam_size": 4, "lexicon": True},
        {"frames": 4, "beam_size": 1, "nbest": 5, "lexicon": True},  # a wider beam finds the last two
        {"threshold": 0.5, "nbest": 3},
        {"tokens_per_frame": 1, "nbest": 3},
    ],
)
def test_page_and_python_give_the_same_hypotheses(
    pool: SessionPool, files: dict[str, Path], chosen: dict[str, Any]
) -> None:
    given = {name: str(files[name]) for name in FILES if chosen.pop(name, False)}
    logits = np.random.default_rng(3).normal(scale=2.0, size=(chosen.pop("frames", 30), len(TOKENS)))
    np.save(files["logits"], logits)
    with CtcBeamSearch(files["tokens"], **chosen, **given) as search:
        expected = [(each.text, each.tokens, each.score) for each in search.decode(logits)]
    [result] = decoded(
        pool, [], "", options=chosen, files=given, logits=[str(files["logits"])], tokens=str(files["tokens"])
    )
    found = [(each["text"], tuple(each["tokens"]), pytest.approx(each["score"])) for each in result["hypotheses"]]
    assert found == expected and len(found) == chosen.get("nbest", 1)


def test_helper_symbols_behind_the_columns_are_left_out(pool: SessionPool, files: dict[str, Path]) -> None:
    expected = ran(pool, job(pool, files, options(files))).state.rows
    files["tokens"].write_text("\n".join([*TOKENS, "#0", "#1"]))
    found = ran(pool, job(pool, files, options(files))).state.rows
    assert [row.hypotheses for row in found] == [row.hypotheses for row in expected]


def test_greedy_beam_and_guided_decoders_run_on_one_logits_file(pool: SessionPool, files: dict[str, Path]) -> None:
    decodings = ran(pool, job(pool, files, options(files, "lexicon", "word_lm"), "too late"))
    greedy, beam, guided = decodings.state.rows
    assert [row.status for row in decodings.state.rows] == ["done"] * 3
    assert [row.title for row in decodings.state.rows] == ["Greedy", "Beam", "Beam + lexicon + word LM"]
    assert greedy.words[0] == ("T", "UW", "L", "EY", "T") and guided.words[0] == ("too", "late")
    assert beam.best and guided.best and guided.score and guided.score.rate == 0
    assert len(beam.hypotheses) == 16 and not greedy.searched and guided.searched
    assert guided.best.word_lm < 0 == guided.best.token_lm
    html = results_html(decodings.state)
    assert html.count("<article") == 3 and "word LM" in html and 'data-event="why"' in html
    assert "3 results in" in status_html(decodings.state)


def test_broken_lexicon_fails_only_the_guided_decoder(pool: SessionPool, files: dict[str, Path]) -> None:
    files["lexicon"].write_text("two T UW\n")
    decodings = ran(pool, job(pool, files, options(files, "lexicon")))
    assert [row.status for row in decodings.state.rows] == ["done", "done", "failed"]
    assert decodings.state.rows[2].error.startswith(
        "line 1 of the lexicon words.lex is 'two T UW'; expected a word, a tab"
    )


def test_logits_file_of_the_wrong_width_fails_only_its_own_rows(
    pool: SessionPool, files: dict[str, Path], tmp_path: Path
) -> None:
    np.save(tmp_path / "wide.npy", np.zeros((4, 9), np.float32))
    paths = [tmp_path / "wide.npy", files["logits"]]
    decodings = ran(pool, job(pool, files, options(files), logits=paths, decoders=[GREEDY, BEAM]))
    assert [row.status for row in decodings.state.rows] == ["failed", "failed", "done", "done"]
    assert "wide.npy is 9 wide" in decodings.state.rows[0].error


def test_stop_keeps_the_finished_results(pool: SessionPool, files: dict[str, Path]) -> None:
    stop = threading.Event()
    decodings = Decodings(job(pool, files, options(files), logits=[files["logits"]] * 3))
    for _ in run(pool, decodings, stop):
        stop.set()
    last = decodings.state
    assert last.stopped and last.finished and {row.status for row in last.rows} <= {"done", "stopped"}
    assert "Stopped: " in status_html(last)


WRONG: tuple[tuple[dict[str, Any], str], ...] = (
    ({"recordings": ["a.wav"]}, "there are recordings and files of logits; expected one of the two"),
    ({"logits": []}, "there is nothing to decode; click a sample"),
    ({"tokens": None}, "the tokens of the logits are missing"),
    ({"blank": "x"}, "the blank is 'x'"),
    ({"decoders": ["x"]}, "no decoder is chosen; expected some of greedy, beam, guided"),
    ({"reference": "a\nb"}, None),
    ({"logits": [], "recordings": ["a.wav"]}, "no model is chosen; choose one that has a CTC head"),
    ({"logits": [], "recordings": ["a.wav"], "cell": "fake/para|pytorch"}, "there is no 'fake/para' on 'pytorch' here"),
)


@pytest.mark.parametrize(("changes", "sentence"), WRONG)
def test_invalid_request_raises_one_line_error(
    pool: SessionPool, files: dict[str, Path], changes: dict[str, Any], sentence: str | None
) -> None:
    fields: dict[str, Any] = {
        "recordings": [],
        "cell": "",
        "logits": [str(files["logits"])],
        "tokens": str(files["tokens"]),
        "blank": "0",
        "reference": "",
        "options": CtcBeamOptions(),
    }
    if sentence is None:  # valid: one recording has the full text
        assert prepare(pool.registry, **fields | changes).sources[0].reference == "a b"
        return
    with pytest.raises(BadInput, match=re.escape(sentence)):
        prepare(pool.registry, **fields | changes)


def test_unlisted_neural_language_model_is_refused(language_pool: SessionPool, files: dict[str, Path]) -> None:
    for value in ("/etc/passwd", "fake/sense"):
        with pytest.raises(BadInput, match="there is no"):
            job(language_pool, files, options(files, "lexicon", neural_lm=value))
    decode_job = job(language_pool, files, options(files, "lexicon", neural_lm="fake/text"))
    assert decode_job.neural is not None and decode_job.neural.cell.model == "fake/text"


def test_file_without_sound_is_refused_before_a_model_is_loaded(pool: SessionPool, tmp_path: Path) -> None:
    path = str(broken(tmp_path / "text.wav"))
    decodings = ran(pool, prepare(pool.registry, [path], "fake/sense|pytorch", [], None, "0", "", CtcBeamOptions()))
    assert all(row.error.startswith("text.wav is not a sound file") for row in decodings.state.rows)
    assert pool.registry.opened == []  # type: ignore[attr-defined]


def test_model_logits_come_from_its_trace_and_exclude_tag_tokens(
    pool: SessionPool, files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tagged = np.concatenate([sounds_like(), np.full((16, 1), -9.0, np.float32)], axis=1)
    session: Any = pool.registry.sessions["fake/sense"]  # type: ignore[attr-defined]
    calls = []

    def trace(source: str, stages: str) -> Trace:
        calls.append((source, stages))
        return Trace({"logits": tagged}, {})

    session.trace = trace
    layout = LogitsLayout((*TOKENS, "<|en|>"), 0, (5,), 0.06, -0.27)
    monkeypatch.setattr("panels.decode.run.layout_of", lambda card: layout)
    settings = options(files, "lexicon", "word_lm")
    path = str(tone(tmp_path / "a.wav"))
    decodings = ran(pool, prepare(pool.registry, [path], "fake/sense|pytorch", [], None, "0", "", settings))
    assert calls == [(path, "logits")] and decodings.state.rows[2].words[0] == ("too", "late")
    assert np.exp(decodings.logits[0]).sum(axis=1) == pytest.approx(1) and np.isneginf(decodings.logits[0][:, 5]).all()
    value = follow(decodings, decodings.state.rows[2])
    assert (value["seconds"], value["begin"]) == (0.06, -0.27)


# Differences.


def test_word_differences_are_marked_as_same_missing_or_added() -> None:
    words = marks(["Three", "one", "nine", "five"], ["three", "seven", "one", "five", "oh"])
    kinds = [(word.text, word.kind, word.place) for word in words]
    assert kinds == [
        ("Three", "same", 0),
        ("seven", "missing", -1),
        ("one", "same", 1),
        ("nine", "added", 2),
        ("five", "same", 3),
        ("oh", "missing", -1),
    ]
    assert [word.kind for word in marks(["a", "b"], None)] == ["same", "same"]


# Files.


def test_file_check_summarises_each_kind_of_file(files: dict[str, Path]) -> None:
    layout = LogitsLayout(TOKENS, 0)
    lexicon = str(files["lexicon"])
    checks = {name: check_file(name, str(files[name]), layout, lexicon) for name in FILES}
    assert {name: check.message for name, check in checks.items() if check} == {
        "lm": "Order 1, 6 n-grams; 4 of the 4 tokens are in it; tokens.arpa has no <s>: the first word follows no "
        "history.",
        "lexicon": "4 words with 4 spellings; 1 spelling stands for several words.",
        "word_lm": "Order 2, 9 n-grams; 4 of the 4 words of the lexicon are in it.",
        "boost": "1 phrase.",
    }
    assert not any(check.wrong for check in checks.values() if check)
    assert check_file("lm", None, layout, None) is None
    unchecked = check_file("lm", str(files["lm"]), None, None)
    assert unchecked is not None and unchecked.message == "It is checked when the tokens are known."


def test_list_of_tokens_counts_only_without_recordings(pool: SessionPool, files: dict[str, Path]) -> None:
    actions, unchecked = DecodeActions(pool, ()), "It is checked when the tokens are known."
    places = [str(files[name]) for name in FILES]
    tokens, logits = str(files["tokens"]), [str(files["logits"])]
    for recordings, given in ((None, None), (None, logits), (["a.wav"], logits)):
        notes = actions.check(tuple(FILES), None, recordings, given, tokens, "0", *places)
        assert actions.check_again(None, recordings, given, tokens, "0", *places) == notes
        assert all(unchecked not in note for note in notes)
    notes = actions.check_again(None, ["a.wav"], None, tokens, "0", *places)
    assert all(unchecked in note for note in notes)
    assert actions.check_again(None, ["a.wav"], None, None, "0", *places) == [gr.skip()] * len(FILES)
    [_, lexicon, *_] = actions.check_again(None, None, None, tokens, "UW", *places)
    assert "which is the blank" in lexicon


BROKEN: tuple[tuple[str, str, str], ...] = (
    ("lm", "no model", "tokens.arpa"),
    ("lm", "\\data\\\nngram 1=1\n\n\\1-grams:\n-1\tbanana\n\n\\end\\\n", "none of the 4 tokens is in tokens.arpa"),
    ("lexicon", "two\tT OO\n", "line 1 of the lexicon words.lex spells two with 'OO'"),
    ("boost", "too early\n", "line 1 of the list of phrases p.txt has 'early', which is not a word of the lexicon"),
    ("word_lm", "", "words.arpa"),
)


@pytest.mark.parametrize(("option", "content", "sentence"), BROKEN)
def test_broken_file_gives_a_one_line_error(files: dict[str, Path], option: str, content: str, sentence: str) -> None:
    files[option].write_text(content)
    lexicon = None if option == "lexicon" else str(files["lexicon"])
    check = check_file(option, str(files[option]), LogitsLayout(TOKENS, 0), lexicon)
    assert check is not None and check.wrong and sentence in check.message and "\n" not in check.message


def test_phrase_with_the_blank_is_refused_when_it_is_added(files: dict[str, Path]) -> None:
    files["boost"].write_text(f"T {TOKENS[0]}\n")
    check = check_file("boost", str(files["boost"]), LogitsLayout(TOKENS, 0), None)
    assert check is not None and check.wrong and "which is the blank" in check.message


def test_a_huge_file_is_refused_before_it_is_read(files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("panels.decode.knowledge.MAX_BYTES", 10)
    check = check_file("lm", str(files["lm"]), LogitsLayout(TOKENS, 0), None)
    assert check is not None and check.wrong and "workbench decode" in check.message


def test_shipped_examples_name_existing_files_options_and_samples() -> None:
    examples = read_examples()
    assert [each.key for each in examples] == [each.key for each in EXAMPLES]
    names = {spec.name for spec in option_specs(SearchOptions)}
    samples = {each.path.name for each in read_samples()}
    for each in examples:
        assert set(each.files) <= set(FILES) and set(each.options) <= names and set(each.samples) <= samples
        assert bool(each.samples) != bool(each.logits) and len(each.references) == len(each.logits)
    with pytest.raises(BadInput, match="there is no example 'x'"):
        find_example("x")


def test_homophones_example_has_no_word_errors_with_the_guided_decoder(pool: SessionPool) -> None:
    example = find_example("homophones")
    paths = {name: example.path(file) for name, file in example.files.items()}
    settings = build_options(CtcBeamOptions, {**paths, **example.options, "beam_size": 8}, "the beam search")
    logits = [example.path(name) or "" for name in example.logits]
    decode_job = prepare(
        pool.registry, [], "", logits, example.path(example.tokens), "0", "\n".join(example.references), settings
    )
    rows = ran(pool, decode_job).state.rows
    assert [row.score.rate for row in rows if row.score and row.decoder == GUIDED] == [0, 0]
    assert "WAHN" not in rows[0].words[0] and rows[0].words[0][:2] == ("HH", "IY")


# For scripts.


def test_notes_on_an_incomplete_language_model_come_with_the_result(pool: SessionPool, files: dict[str, Path]) -> None:
    """On the page as to a script: the model here lacks <s>, and the search without it has nothing to say."""
    sentence = "tokens.arpa has no <s>: the first word follows no history"
    state = ran(pool, job(pool, files, options(files, "lm"))).state
    assert {row.decoder: row.notes for row in state.rows} == {GREEDY: (), BEAM: (), GUIDED: (sentence,)}
    assert results_html(state).count("tokens.arpa has no &lt;s&gt;") == 1
    request = {"logits": [str(files["logits"])], "tokens": str(files["tokens"])}
    [result] = decoded(pool, [], "", files={"lm": str(files["lm"])}, **request)
    assert result["notes"] == [sentence] and decoded(pool, [], "", **request)[0]["notes"] == []


def test_script_result_contains_hypotheses_with_score_terms(pool: SessionPool, files: dict[str, Path]) -> None:
    paths = {name: str(files[name]) for name in ("lexicon", "word_lm", "boost")}
    [result] = decoded(
        pool,
        [],
        "",
        options={"beam_size": 16, "nbest": 2, "boost_score": 0.5},
        files=paths,
        logits=[str(files["logits"])],
        tokens=str(files["tokens"]),
        reference="too late",
    )
    assert result["file"] == "logits.npy" and result["greedy"] == "TUWLEYT" and len(result["hypotheses"]) == 2
    best = result["hypotheses"][0]
    assert (
        best["text"] == "too late"
        and best["words"] == ["too", "late"]
        and best["tokens"] == ["T", "UW", "L", "EY", "T"]
    )
    assert best["boost"] == 1.0 and best["lm"] == best["word_lm"] < 0
    terms = ("acoustic", "token_lm", "word_lm", "neural_lm", "bonus", "boost")
    assert best["score"] == pytest.approx(sum(best[name] for name in terms))
    assert result["score_of_best"]["rate"] == 0 and result["score_of_greedy"]["rate"] == 1
    with pytest.raises(BadInput, match="the beam search has no option 'lm' here"):
        decoded(pool, [], "", options={"lm": "/etc/passwd"}, logits=[str(files["logits"])], tokens=str(files["tokens"]))
