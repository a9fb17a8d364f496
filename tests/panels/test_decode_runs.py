"""Decoders side by side, the search that is followed, the sweep, and the files that are checked, without a browser."""

from __future__ import annotations

import base64
import re
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradio as gr
import numpy as np
import pytest

from panels.decode import events
from panels.decode.endpoint import decoded
from panels.decode.events import DecodeActions
from panels.decode.follow import follow, wider
from panels.decode.knowledge import EXAMPLES, FILES, check_file, find_example, read_examples
from panels.decode.record_view import find_loss
from panels.decode.run import BEAM, GREEDY, GUIDED, Decodings, Job, Row, prepare, run
from panels.decode.sweep import SWEPT, NBestLists, check_swept, read_grid, run_sweep, same_lists
from panels.decode.view import marks, results_html, rival_html, status_html, sweep_html
from panels.running.sessions import SessionPool
from panels.widgets.samples import read_samples
from tests.support.decoding_files import TOKENS, sounds_like, write_files
from workbench.core.errors import BadInput
from workbench.core.options import build_options, option_specs
from workbench.decoding.ctc_beam.options import SearchOptions
from workbench.decoding.ctc_options import CtcBeamOptions
from workbench.decoding.rivals import find_rival
from workbench.families.ctc_layouts import LogitsLayout
from workbench.trace.trace import Trace


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    return write_files(tmp_path)


def options(files: dict[str, Path], *names: str, **more: Any) -> CtcBeamOptions:
    given = {name: str(files[name]) for name in names}
    return build_options(CtcBeamOptions, {"beam_size": 16, **given, **more}, "the beam search")


def job(pool: SessionPool, files: dict[str, Path], chosen: CtcBeamOptions, reference: str = "", **more: Any) -> Job:
    sources = [str(each) for each in more.pop("logits", [files["logits"]])]
    return prepare(pool.registry, [], "", sources, str(files["tokens"]), "0", reference, chosen, **more)


def ran(pool: SessionPool, asked: Job) -> Decodings:
    kept = Decodings(asked)
    states = list(run(pool, kept, threading.Event()))
    assert states[-1].finished and kept.state is states[-1]
    return kept


# Runs.


def test_three_decoders_of_one_file(pool: SessionPool, files: dict[str, Path]) -> None:
    kept = ran(pool, job(pool, files, options(files, "lexicon", "word_lm"), "too late"))
    greedy, beam, guided = kept.state.rows
    assert [row.status for row in kept.state.rows] == ["done"] * 3
    assert [row.title for row in kept.state.rows] == ["Greedy", "Beam", "Beam + lexicon + word LM"]
    assert greedy.words[0] == ("T", "UW", "L", "EY", "T") and guided.words[0] == ("too", "late")
    assert beam.best and guided.best and guided.score and guided.score.rate == 0
    assert len(beam.hypotheses) == 16 and not greedy.searched and guided.searched
    assert guided.best.word_lm < 0 == guided.best.token_lm
    shown = results_html(kept.state)
    assert shown.count("<article") == 3 and "word LM" in shown and 'data-event="why"' in shown
    assert "3 results in" in status_html(kept.state)


def test_a_decoder_that_cannot_be_made_leaves_the_others(pool: SessionPool, files: dict[str, Path]) -> None:
    files["lexicon"].write_text("two T UW\n")
    kept = ran(pool, job(pool, files, options(files, "lexicon")))
    assert [row.status for row in kept.state.rows] == ["done", "done", "failed"]
    assert kept.state.rows[2].error.startswith("line 1 of the lexicon words.lex is 'two T UW'; expected a word, a tab")


def test_a_file_that_cannot_be_read_leaves_the_others(
    pool: SessionPool, files: dict[str, Path], tmp_path: Path
) -> None:
    np.save(tmp_path / "wide.npy", np.zeros((4, 9), np.float32))
    both = [tmp_path / "wide.npy", files["logits"]]
    kept = ran(pool, job(pool, files, options(files), logits=both, decoders=[GREEDY, BEAM]))
    assert [row.status for row in kept.state.rows] == ["failed", "failed", "done", "done"]
    assert "wide.npy is 9 wide" in kept.state.rows[0].error


def test_a_stop_keeps_what_is_done(pool: SessionPool, files: dict[str, Path]) -> None:
    stop = threading.Event()
    kept = Decodings(job(pool, files, options(files), logits=[files["logits"]] * 3))
    for _ in run(pool, kept, stop):
        stop.set()
    last = kept.state
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


@pytest.mark.parametrize(("given", "sentence"), WRONG)
def test_a_wrong_request_is_one_sentence(
    pool: SessionPool, files: dict[str, Path], given: dict[str, Any], sentence: str | None
) -> None:
    asked: dict[str, Any] = {
        "recordings": [],
        "cell": "",
        "logits": [str(files["logits"])],
        "tokens": str(files["tokens"]),
        "blank": "0",
        "reference": "",
        "options": CtcBeamOptions(),
    }
    if sentence is None:  # fine: one recording has the whole text
        assert prepare(pool.registry, **asked | given).sources[0].reference == "a b"
        return
    with pytest.raises(BadInput, match=re.escape(sentence)):
        prepare(pool.registry, **asked | given)


def test_a_neural_model_must_be_one_of_those_offered(language_pool: SessionPool, files: dict[str, Path]) -> None:
    for value in ("/etc/passwd", "fake/sense"):
        with pytest.raises(BadInput, match="there is no"):
            job(language_pool, files, options(files, "lexicon", neural_lm=value))
    found = job(language_pool, files, options(files, "lexicon", neural_lm="fake/text"))
    assert found.neural is not None and found.neural.cell.model == "fake/text"


def test_a_models_logits_are_those_of_its_trace(
    pool: SessionPool, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    tagged = np.concatenate([sounds_like(), np.full((16, 1), -9.0, np.float32)], axis=1)
    session: Any = pool.registry.sessions["fake/sense"]  # type: ignore[attr-defined]
    asked = []

    def trace(source: str, stages: str) -> Trace:
        asked.append((source, stages))
        return Trace({"logits": tagged}, {})

    session.trace = trace
    layout = LogitsLayout((*TOKENS, "<|en|>"), 0, (5,), 0.06, -0.27)
    monkeypatch.setattr("panels.decode.run.layout_of", lambda card: layout)
    chosen = options(files, "lexicon", "word_lm")
    kept = ran(pool, prepare(pool.registry, ["a.wav"], "fake/sense|pytorch", [], None, "0", "", chosen))
    assert asked == [("a.wav", "logits")] and kept.state.rows[2].words[0] == ("too", "late")
    assert np.exp(kept.logits[0]).sum(axis=1) == pytest.approx(1) and np.isneginf(kept.logits[0][:, 5]).all()
    value = follow(kept, kept.state.rows[2])
    assert (value["seconds"], value["begin"]) == (0.06, -0.27)


# The search that is followed.


def guided(pool: SessionPool, files: dict[str, Path], **more: Any) -> tuple[Decodings, Any]:
    kept = ran(pool, job(pool, files, options(files, "lexicon", "word_lm", **more), decoders=[GUIDED]))
    return kept, kept.state.rows[0]


def text_at(value: dict[str, Any], index: int) -> str:
    said = ""
    while index > 0:
        parent, label = value["prefixes"][index]
        said, index = label + said, parent
    return said


def test_a_search_as_the_browser_gets_it(pool: SessionPool, files: dict[str, Path]) -> None:
    value = follow(*guided(pool, files))
    frames, labels = value["frames"], value["labels"]
    assert len(frames) == 16 and labels[-1] == "blank" and set(labels) == {"T", "UW", "L", "EY", "blank"}
    assert len(base64.b64decode(value["grid"])) == 16 * len(labels)
    assert [labels[row] for row in value["path"]][1:6] == ["T", "T", "blank", "UW", "UW"]
    assert value["terms"] == ["acoustic", "word LM"] or "look-ahead" in value["terms"]
    assert all(parent < number for number, (parent, _) in enumerate(value["prefixes"]))
    last = frames[-1]["living"]
    assert text_at(value, last[0][0]) == " T UW⟨too⟩ L EY T⟨late⟩"
    totals = [sum(line[1:]) for line in last]
    assert totals == sorted(totals, reverse=True)
    # Both homophones live, and a later word decides between them.
    assert any(frame["alike"] for frame in frames)
    assert [text_at(value, line[0]) for line in frames[6]["living"][:2]] == [" T UW⟨two⟩", " T UW⟨too⟩"]
    assert any(moment["said"].startswith("“too” takes the place of “two” as word 1") for moment in value["moments"])
    assert value["lost"] is None


def test_a_search_is_followed_once_and_the_last_one_is_shown(
    pool: SessionPool, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[str] = []

    def follow_once(kept: Decodings, row: Row) -> str:
        computed.append(row.key)
        return row.key

    monkeypatch.setattr(events, "follow", follow_once)
    actions, kept = DecodeActions(pool, ()), ran(pool, job(pool, files, options(files, "lexicon", "word_lm")))
    actions.kept.put("me", kept)

    def press(key: str) -> Any:
        return actions.look(gr.EventData(None, {"key": key}), SimpleNamespace(session_hash="me"))  # type: ignore[arg-type]

    first, second, other = press("0:beam"), press("0:beam"), press("0:guided")
    begun = next(first)
    assert next(second)[2] == gr.skip() and begun[2] is None and not list(second)
    next(other)
    assert [each[2] for each in first] == [] and [each[2] for each in other] == ["0:guided"]
    assert computed == ["0:beam", "0:guided"]
    assert [each[2] for each in press("0:beam")] == [None, "0:beam"]


def test_the_frame_in_which_the_winner_was_pruned(pool: SessionPool, files: dict[str, Path]) -> None:
    kept, row = guided(pool, files, beam_size=1)
    decoder, logits, _ = kept.search_of(row)
    record = decoder.explain(logits)
    better = wider(decoder).decode([logits])[0]
    loss = find_loss(record, better)
    assert len(row.hypotheses) == 1 and row.words[0] == ("two", "late")
    assert record.hypotheses and loss is not None and loss.lead > 0 and loss.hypothesis.words == ("too", "late")

    # Before that frame, something lived that could become it; in it, nothing.
    def leads(hypothesis: int) -> bool:
        tokens, words = record.tokens_of(hypothesis), record.words[hypothesis] if record.words else ()
        return better[0].tokens[: len(tokens)] == tokens and (better[0].words or ())[: len(words)] == words

    alive = [any(leads(int(each)) for each in frame.living.ids) for frame in record.frames]
    assert alive.index(False) == loss.frame
    if loss.id is not None:
        assert leads(loss.id) and loss.id in record.frames[loss.frame].pruned.ids
    assert find_loss(record, record.hypotheses) is None
    value = follow(kept, row)
    assert value["at"] == value["lost"]["frame"] == loss.frame and "would have won" in value["moments"][0]["said"]


def test_why_a_word_and_not_the_other(pool: SessionPool, files: dict[str, Path]) -> None:
    _, row = guided(pool, files)
    rival = find_rival(row.hypotheses, row.words, 0)
    assert rival is not None and rival.instead == ("two",) and rival.terms["acoustic"] == pytest.approx(0)
    shown = rival_html(row, rival, "too")
    assert "Why “too” and not “two”?" in shown and "for it: the word LM by" in shown
    assert "wider beam keeps more" in rival_html(row, None, "too")


def test_marks_of_differences() -> None:
    found = marks(["Three", "one", "nine", "five"], ["three", "seven", "one", "five", "oh"])
    kinds = [(each.text, each.kind, each.place) for each in found]
    assert kinds == [
        ("Three", "same", 0),
        ("seven", "missing", -1),
        ("one", "same", 1),
        ("nine", "added", 2),
        ("five", "same", 3),
        ("oh", "missing", -1),
    ]
    assert [each.kind for each in marks(["a", "b"], None)] == ["same", "same"]


# The sweep.


def swept(pool: SessionPool, files: dict[str, Path], lists: NBestLists, *grid: tuple[float, ...]) -> Any:
    return list(run_sweep(pool, lists, None, *grid, threading.Event()))[-1].result


def test_a_sweep_finds_the_weights_of_a_search(pool: SessionPool, files: dict[str, Path], tmp_path: Path) -> None:
    several = {f"take{number}": sounds_like(seed=number) for number in range(6)}
    paths = write_files(tmp_path, **several)
    sources = [paths[name] for name in several]
    chosen = options(paths, "lexicon", "word_lm", gamma=1.0)
    asked = job(pool, paths, chosen, "\n".join(["too late"] * 6), logits=sources)
    pair = SWEPT["words"]
    check_swept(asked, pair)
    lists = NBestLists(asked, pair)
    grid = ((-0.5, 1.0), (-1.0, 0.0, 1.0))
    found = swept(pool, paths, lists, *grid)
    assert found.recordings == 6 and found.units == 12
    for row, gamma in enumerate(grid[0]):
        for column, bonus in enumerate(grid[1]):
            same = options(paths, "lexicon", "word_lm", gamma=gamma, word_bonus=bonus)
            kept = ran(pool, job(pool, paths, same, "\n".join(["too late"] * 6), logits=sources, decoders=[GUIDED]))
            errors = sum(each.score.counts.errors for each in kept.state.rows if each.score)
            assert found.errors[row, column] == errors, (gamma, bonus)
    assert found.rates[1].max() == 0 and found.errors[0].min() > 0
    shown = sweep_html(found, ("gamma", "word bonus"), (1.0, 0.0))
    assert 'class="best' in shown and "0.0 %" in shown
    # Another grid needs no search: the files may even be gone.
    for path in sources:
        path.unlink()
    assert swept(pool, paths, lists, (0.5, 1.0), (0.0,)).errors.shape == (2, 1)
    other = job(
        pool, paths, options(paths, "lexicon", "word_lm", gamma=2.0), "\n".join(["too late"] * 6), logits=sources
    )
    assert same_lists(asked, other, pair) and not same_lists(asked, other, SWEPT["tokens"])


def test_what_cannot_be_swept_is_refused(pool: SessionPool, files: dict[str, Path]) -> None:
    for names, reference, pair, sentence in (
        (("lm",), "", "tokens", "1 of 1 recordings have no reference text"),
        ((), "too late", "tokens", "there is no language model of tokens to weigh; add one, or click an example"),
        (("lexicon", "word_lm"), "too late", "tokens", "or sweep gamma and word bonus"),
        (("lm",), "too late", "words", "there is no language model of words to weigh"),
    ):
        with pytest.raises(BadInput, match=re.escape(sentence)):
            check_swept(job(pool, files, options(files, *names, beta=1.0), reference), SWEPT[pair])
    assert read_grid("0 to 1, 3", "alpha") == (0.0, 0.5, 1.0) and read_grid("-1,1,2", "alpha") == (-1.0, 1.0)
    for text in ("", "0 to 1", "0 to 1, 99", "a to b, 3", "1.1.1 to 2, 3"):
        with pytest.raises(BadInput, match="the values of alpha are"):
            read_grid(text, "alpha")


# Files.


def test_what_is_found_in_a_file(files: dict[str, Path]) -> None:
    layout = LogitsLayout(TOKENS, 0)
    lexicon = str(files["lexicon"])
    said = {name: check_file(name, str(files[name]), layout, lexicon) for name in FILES}
    assert {name: each.said for name, each in said.items() if each} == {
        "lm": "Order 1, 6 n-grams; 4 of the 4 tokens are in it; tokens.arpa has no <s>: the first word follows no "
        "history.",
        "lexicon": "4 words with 4 spellings; 1 spelling stands for several words.",
        "word_lm": "Order 2, 9 n-grams; 4 of the 4 words of the lexicon are in it.",
        "boost": "1 phrase.",
    }
    assert not any(each.wrong for each in said.values() if each)
    assert check_file("lm", None, layout, None) is None
    later = check_file("lm", str(files["lm"]), None, None)
    assert later is not None and later.said == "It is checked when the tokens are known."


BROKEN: tuple[tuple[str, str, str], ...] = (
    ("lm", "no model", "tokens.arpa"),
    ("lm", "\\data\\\nngram 1=1\n\n\\1-grams:\n-1\tbanana\n\n\\end\\\n", "none of the 4 tokens is in tokens.arpa"),
    ("lexicon", "two\tT OO\n", "line 1 of the lexicon words.lex spells two with 'OO'"),
    ("boost", "too early\n", "line 1 of the list of phrases p.txt has 'early', which is no word of the lexicon"),
    ("word_lm", "", "words.arpa"),
)


@pytest.mark.parametrize(("option", "content", "sentence"), BROKEN)
def test_a_broken_file_is_one_sentence(files: dict[str, Path], option: str, content: str, sentence: str) -> None:
    files[option].write_text(content)
    lexicon = None if option == "lexicon" else str(files["lexicon"])
    found = check_file(option, str(files[option]), LogitsLayout(TOKENS, 0), lexicon)
    assert found is not None and found.wrong and sentence in found.said and "\n" not in found.said


def test_a_huge_file_is_refused_before_it_is_read(files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("panels.decode.knowledge.MOST_BYTES", 10)
    found = check_file("lm", str(files["lm"]), LogitsLayout(TOKENS, 0), None)
    assert found is not None and found.wrong and "workbench decode" in found.said


def test_the_examples_ship_and_are_whole() -> None:
    listed = read_examples()
    assert [each.key for each in listed] == [each.key for each in EXAMPLES]
    names = {spec.name for spec in option_specs(SearchOptions)}
    samples = {each.path.name for each in read_samples()}
    for each in listed:
        assert set(each.files) <= set(FILES) and set(each.options) <= names and set(each.samples) <= samples
        assert bool(each.samples) != bool(each.logits) and len(each.said) == len(each.logits)
    with pytest.raises(BadInput, match="there is no example 'x'"):
        find_example("x")


def test_the_example_of_homophones(pool: SessionPool) -> None:
    found = find_example("homophones")
    given = {name: found.path(file) for name, file in found.files.items()}
    chosen = build_options(CtcBeamOptions, {**given, **found.options, "beam_size": 8}, "the beam search")
    logits = [found.path(name) or "" for name in found.logits]
    asked = prepare(pool.registry, [], "", logits, found.path(found.tokens), "0", "\n".join(found.said), chosen)
    rows = ran(pool, asked).state.rows
    assert [row.score.rate for row in rows if row.score and row.decoder == GUIDED] == [0, 0]
    assert "WAHN" not in rows[0].words[0] and rows[0].words[0][:2] == ("HH", "IY")


# For scripts.


def test_what_a_script_gets(pool: SessionPool, files: dict[str, Path]) -> None:
    given = {name: str(files[name]) for name in ("lexicon", "word_lm", "boost")}
    [found] = decoded(
        pool,
        [],
        "",
        options={"beam_size": 16, "nbest": 2, "boost_score": 0.5},
        files=given,
        logits=[str(files["logits"])],
        tokens=str(files["tokens"]),
        reference="too late",
    )
    assert found["file"] == "logits.npy" and found["greedy"] == "TUWLEYT" and len(found["hypotheses"]) == 2
    best = found["hypotheses"][0]
    assert (
        best["text"] == "too late"
        and best["words"] == ["too", "late"]
        and best["tokens"] == ["T", "UW", "L", "EY", "T"]
    )
    assert best["boost"] == 1.0 and best["lm"] == best["word_lm"] < 0
    terms = ("acoustic", "token_lm", "word_lm", "neural_lm", "bonus", "boost")
    assert best["score"] == pytest.approx(sum(best[name] for name in terms))
    assert found["score_of_best"]["rate"] == 0 and found["score_of_greedy"]["rate"] == 1
    with pytest.raises(BadInput, match="the beam search has no option 'lm' here"):
        decoded(pool, [], "", options={"lm": "/etc/passwd"}, logits=[str(files["logits"])], tokens=str(files["tokens"]))
