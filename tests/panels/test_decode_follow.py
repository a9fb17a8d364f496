"""The followed beam search of the Decode tab without a browser: frames, pruned winners and rival words."""

from __future__ import annotations

import base64
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradio as gr
import pytest

from panels.decode import events
from panels.decode.events import DecodeActions
from panels.decode.follow import follow, wider_search
from panels.decode.record_view import find_loss
from panels.decode.run import GUIDED, Decodings, Row
from panels.decode.view import rival_html
from panels.running.sessions import SessionPool
from tests.support.decode_jobs import job, options, ran
from tests.support.decoding_files import write_files
from workbench.decoding.rivals import find_rival


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    return write_files(tmp_path)


def run_guided(pool: SessionPool, files: dict[str, Path], **changes: Any) -> tuple[Decodings, Any]:
    decodings = ran(pool, job(pool, files, options(files, "lexicon", "word_lm", **changes), decoders=[GUIDED]))
    return decodings, decodings.state.rows[0]


def text_at(value: dict[str, Any], index: int) -> str:
    text = ""
    while index > 0:
        parent, label = value["prefixes"][index]
        text, index = label + text, parent
    return text


def test_followed_search_contains_frames_labels_prefixes_and_moments(pool: SessionPool, files: dict[str, Path]) -> None:
    value = follow(*run_guided(pool, files))
    frames, labels = value["frames"], value["labels"]
    assert len(frames) == 16 and labels[-1] == "blank" and set(labels) == {"T", "UW", "L", "EY", "blank"}
    assert len(base64.b64decode(value["grid"])) == 16 * len(labels)
    assert [labels[row] for row in value["path"]][1:6] == ["T", "T", "blank", "UW", "UW"]
    assert value["terms"] == ["acoustic", "word LM"] or "look-ahead" in value["terms"]
    assert all(parent < number for number, (parent, _) in enumerate(value["prefixes"]))
    last = frames[-1]["active"]
    assert text_at(value, last[0][0]) == " T UW⟨too⟩ L EY T⟨late⟩"
    totals = [sum(line[1:]) for line in last]
    assert totals == sorted(totals, reverse=True)
    # Both homophones live, and a later word decides between them.
    assert any(frame["alike"] for frame in frames)
    assert [text_at(value, line[0]) for line in frames[6]["active"][:2]] == [" T UW⟨two⟩", " T UW⟨too⟩"]
    assert any(moment["sentence"].startswith("“too” takes the place of “two” as word 1") for moment in value["moments"])
    assert value["lost"] is None


def test_search_is_computed_once_and_the_last_selected_one_is_shown(
    pool: SessionPool, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[str] = []

    def follow_once(decodings: Decodings, row: Row) -> str:
        computed.append(row.key)
        return row.key

    monkeypatch.setattr(events, "follow", follow_once)
    actions, decodings = DecodeActions(pool, ()), ran(pool, job(pool, files, options(files, "lexicon", "word_lm")))
    actions.last_runs.put("me", decodings)

    def press(key: str) -> Any:
        return actions.look(gr.EventData(None, {"key": key}), SimpleNamespace(session_hash="me"))  # type: ignore[arg-type]

    first, second, third = press("0:beam"), press("0:beam"), press("0:guided")
    first_update = next(first)
    assert next(second)[2] == gr.skip() and first_update[2] is None and not list(second)
    next(third)
    assert [each[2] for each in first] == [] and [each[2] for each in third] == ["0:guided"]
    assert computed == ["0:beam", "0:guided"]
    assert [each[2] for each in press("0:beam")] == [None, "0:beam"]


def test_loss_names_the_frame_in_which_the_better_hypothesis_was_pruned(
    pool: SessionPool, files: dict[str, Path]
) -> None:
    decodings, row = run_guided(pool, files, beam_size=1)
    decoder, logits, _ = decodings.search_of(row)
    record = decoder.explain(logits)
    better = wider_search(decoder).decode([logits])[0]
    loss = find_loss(record, better)
    assert len(row.hypotheses) == 1 and row.words[0] == ("two", "late")
    assert record.hypotheses and loss is not None and loss.lead > 0 and loss.hypothesis.words == ("too", "late")

    # Before that frame, an active hypothesis could become the better one; in that frame, none could.
    def leads(hypothesis: int) -> bool:
        tokens, words = record.tokens_of(hypothesis), record.words[hypothesis] if record.words else ()
        return better[0].tokens[: len(tokens)] == tokens and (better[0].words or ())[: len(words)] == words

    active = [any(leads(int(each)) for each in frame.active.ids) for frame in record.frames]
    assert active.index(False) == loss.frame
    if loss.id is not None:
        assert leads(loss.id) and loss.id in record.frames[loss.frame].pruned.ids
    assert find_loss(record, record.hypotheses) is None
    value = follow(decodings, row)
    assert value["at"] == value["lost"]["frame"] == loss.frame and "would have won" in value["moments"][0]["sentence"]


def test_choice_between_rival_words_is_explained_by_score_terms(pool: SessionPool, files: dict[str, Path]) -> None:
    _, row = run_guided(pool, files)
    rival = find_rival(row.hypotheses, row.words, 0)
    assert rival is not None and rival.instead == ("two",) and rival.terms["acoustic"] == pytest.approx(0)
    html = rival_html(row, rival, "too")
    assert "Why “too” and not “two”?" in html and "for it: the word LM by" in html
    assert "wider beam keeps more" in rival_html(row, None, "too")
