"""Running a prompt with embeddings on several runtimes, and what the page shows of the answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from panels.inject.run import Answers, prepare, run
from panels.inject.view import agreements, answers_html, first_token_html, percent, status_html, visible
from panels.running.sessions import SessionPool
from tests.support.fake_injection import WIDTH, FakeInjectRegistry
from workbench.core.errors import BadInput
from workbench.embeddings import embedding_of
from workbench.families.language.directory import PLACEHOLDER

BOTH = ["fake/text|pytorch", "fake/text|gguf"]
PROMPT = f"What is {PLACEHOLDER}?"
EMBEDDING = embedding_of(np.ones((5, WIDTH), np.float32), "ones.npy")


@pytest.fixture
def inject_pool() -> Iterator[SessionPool]:
    with SessionPool(FakeInjectRegistry()) as pool:  # type: ignore[arg-type]
        yield pool


def job(pool: SessionPool, cells: list[str] = BOTH, prompt: str = PROMPT, count: int = 1, **options: Any) -> Any:
    return prepare(pool.registry, prompt, [EMBEDDING] * count, cells, options)


def last(pool: SessionPool, prepared: Any) -> Answers:
    *_, answers = run(pool, prepared, threading.Event())
    return answers


def test_every_runtime_answers_in_the_order_chosen(inject_pool: Any) -> None:
    answers = last(inject_pool, job(inject_pool, max_new_tokens=9))
    assert [(row.cell.runtime, row.status, row.text) for row in answers.rows] == [
        ("pytorch", "done", "seven one three"),
        ("gguf", "done", "seven one three"),
    ]
    assert answers.finished and not answers.stopped
    [call] = inject_pool.registry.texts["gguf"].calls
    assert call == {"prompt": PROMPT, "lengths": [5], "alternatives": 10, "max_new_tokens": 9}


def test_generation_notes_are_shown_escaped_below_the_text(inject_pool: Any) -> None:
    answers = last(inject_pool, job(inject_pool, BOTH[:1]))
    [row] = answers.rows
    assert row.generation and 'class="note"' not in answers_html(answers)
    noted = replace(row, generation=replace(row.generation, notes=("runs without <AMX>",)))
    assert '<p class="note">runs without &lt;AMX&gt;</p>' in answers_html(replace(answers, rows=(noted,)))


def test_text_is_shown_while_it_is_generated(inject_pool: Any) -> None:
    session = inject_pool.registry.texts["pytorch"]
    session.gate.clear()
    texts = []
    for answers in run(inject_pool, job(inject_pool, BOTH[:1]), threading.Event()):
        texts.append(answers.rows[0].text)
        if answers.rows[0].text:
            assert answers.rows[0].choices or answers.finished
            session.gate.set()
    assert texts[0] == "" and "seven" in texts and texts[-1] == "seven one three"


def test_stop_keeps_the_text_generated_so_far(inject_pool: Any) -> None:
    session = inject_pool.registry.texts["pytorch"]
    session.gate.clear()
    stop = threading.Event()
    answers = Answers()
    for answers in run(inject_pool, job(inject_pool), stop):
        if answers.rows[0].text:
            stop.set()
    session.gate.set()
    assert [row.status for row in answers.rows] == ["stopped", "stopped"] and answers.stopped
    assert answers.rows[0].text == "seven"
    assert session.abandoned.wait(60)


def test_refused_prompt_fails_its_answer_with_the_error_message(inject_pool: Any) -> None:
    answers = last(inject_pool, job(inject_pool, count=2))
    assert {row.error for row in answers.rows} == {"the prompt has 1 placeholders and 2 embeddings"}
    assert "the prompt has 1 placeholders" in answers_html(answers) and "2 failed" in status_html(answers)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"count": 0}, "there is no embedding"),
        ({"prompt": "  "}, "the prompt is empty"),
        ({"cells": []}, "no model is chosen"),
        ({"cells": ["fake/sense|pytorch"]}, "there is no 'fake/sense'"),
        ({"temperature": -1.0}, "temperature"),
        ({"beam": 2}, "no.* option 'beam'|option 'beam'"),
    ],
)
def test_invalid_run_is_refused_before_a_model_loads(inject_pool: Any, change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        job(inject_pool, **change)
    assert inject_pool.registry.opened == []


# The HTML.


def test_first_token_probabilities_of_runtimes_are_compared_in_a_table(inject_pool: Any) -> None:
    rows = last(inject_pool, job(inject_pool)).rows
    html = first_token_html(rows)
    assert "90.0 %" in html and "80.0 %" in html and html.count("<tr>") == 3
    assert agreements(rows) == [
        "GGUF against PyTorch: the same likeliest token, 2 of the 2 likeliest in common, "
        "probabilities at most 10.0 % apart"
    ]


def test_different_first_tokens_are_reported(inject_pool: Any) -> None:
    inject_pool.registry.texts["gguf"].words = ("eight",)
    rows = last(inject_pool, job(inject_pool)).rows
    assert agreements(rows)[0].startswith("GGUF against PyTorch: another likeliest token")
    assert "2 different answers" in status_html(last(inject_pool, job(inject_pool)))


def test_answer_text_is_escaped_in_html(inject_pool: Any) -> None:
    inject_pool.registry.texts["pytorch"].words = ("<script>alert(1)</script>",)
    html = answers_html(last(inject_pool, job(inject_pool, BOTH[:1])))
    assert "<script>" not in html and "&lt;script&gt;" in html


@pytest.mark.parametrize(
    ("share", "expected"), [(0.5, "50.0 %"), (0.012, "1.20 %"), (3e-6, "0.0003 %"), (0.0, "0.00 %")]
)
def test_small_percentages_keep_significant_digits(share: float, expected: str) -> None:
    assert percent(share) == expected


@pytest.mark.parametrize(
    ("token", "expected"), [(" one", "␣one"), ("\n", "⏎"), ("  ", "␣␣"), ("two words", "two words")]
)
def test_whitespace_in_tokens_is_shown_with_visible_symbols(token: str, expected: str) -> None:
    assert visible(token) == expected
