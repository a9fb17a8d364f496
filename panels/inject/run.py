"""Runs a prompt with embeddings on several runtimes, and yields the state of the answers after every step.

Answers that finished before a stop or a failure of another model stay. This file knows neither Gradio nor HTML.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from panels.running.choices import ModelOnRuntime, RuntimeOffer, check_options_known, chosen_offers, offers, options_for
from panels.running.progress import RunTable, tables
from panels.running.sessions import SessionPool
from panels.transcribe.run import idle_first, sentence_of
from workbench.core.errors import BadInput, Cancelled
from workbench.core.progress import listening
from workbench.embeddings import Embedding
from workbench.registry.registry import Registry
from workbench.serving.work import follower, opened
from workbench.session.values import Alternative, Generation, Piece, Prompt

TASK = "generate"
CHOICES = 10  # number of likeliest first tokens that are shown
Status = Literal["waiting", "running", "done", "failed", "stopped"]
Show = Callable[["Answer"], None]


@dataclass(frozen=True)
class Answer:
    """The answer of one model on one runtime so far."""

    key: str
    cell: ModelOnRuntime
    title: str
    status: Status = "waiting"
    activity: str = ""
    text: str = ""
    choices: tuple[Alternative, ...] = ()  # for the first token, likeliest first
    generation: Generation | None = None
    error: str = ""


@dataclass(frozen=True)
class Injection:
    """The run's models and prompt. `options` are per model, already checked."""

    prompt: Prompt
    embeddings: tuple[Embedding, ...]
    offers: tuple[RuntimeOffer, ...]
    options: Mapping[str, Mapping[str, Any]]

    def answers(self) -> tuple[Answer, ...]:
        """Returns the answers before the run."""
        return tuple(Answer(offer.cell.value, offer.cell, offer.title) for offer in self.offers)


@dataclass(frozen=True)
class Answers(RunTable[Answer]):
    """All answers, and the progress of the run."""


def prepare(
    registry: Registry,
    prompt: Prompt,
    embeddings: Sequence[Embedding],
    cells: Sequence[str],
    options: Mapping[str, Any],
) -> Injection:
    """Returns the run that a user described, checked as far as possible without loading a model.

    Args:
        cells: the models and runtimes, as `ModelOnRuntime.value`.
        options: options of any of the models; each model gets those that it has.

    Raises `BadInput` that says what is wrong.
    """
    if not embeddings:
        raise BadInput("there is no embedding; add a file, or make one from a recording")
    if not prompt or not str(prompt).strip():
        raise BadInput("the prompt is empty; expected a text with a placeholder for each embedding")
    chosen = chosen_offers(cells, offers(registry, TASK))
    models = [offer.cell.model for offer in chosen]
    check_options_known(registry, models, options)
    all_options = {"alternatives": CHOICES, **options}
    return Injection(
        prompt,
        tuple(embeddings),
        chosen,
        {model: options_for(registry, model, all_options) for model in models},
    )


def run(pool: SessionPool, job: Injection, stop: threading.Event) -> Iterator[Answers]:
    """Yields the answers when one has changed, at most as often as `panels.running.progress` allows, and at the end.

    Models run one after another, idle ones first. Setting `stop` or closing the iterator ends the run at once.
    """
    rows = job.answers()
    work = partial(_work, pool, job, rows, stop)
    return tables(rows, work, stop, Answers, lambda row: replace(row, status="stopped", activity=""))


def _work(pool: SessionPool, job: Injection, rows: Sequence[Answer], stop: threading.Event, show: Show) -> None:
    """Computes the answers and shows every change."""
    for row in idle_first(rows, lambda row: pool.occupied(row.cell.model, row.cell.runtime, row.cell.quantization)):
        try:
            _answer(pool, job, row, stop, show)
        except Cancelled:
            if stop.is_set():
                return
            show(replace(row, status="stopped"))
        except Exception as error:
            show(replace(row, status="failed", error=sentence_of(error)))
        if stop.is_set():
            return


def _answer(pool: SessionPool, job: Injection, row: Answer, stop: threading.Event, show: Show) -> None:
    cell = row.cell
    waiting = row

    def show_activity(activity: str) -> None:
        show(replace(waiting, status="running", activity=activity))

    session = opened(pool, cell, stop, show_activity)
    row = replace(row, status="running", activity="writing")
    show(row)
    options = job.options[cell.model]
    pieces = session.generate_stream(job.prompt, embeddings=list(job.embeddings), **options)
    with listening(follower(stop, show_activity)), closing(pieces):
        for piece in pieces:
            if stop.is_set():
                raise Cancelled("the run was stopped")
            if isinstance(piece, Piece):
                first = row.choices or piece.alternatives
                row = replace(row, text=row.text + piece.text, choices=first)
            else:
                row = replace(row, status="done", activity="", generation=piece, text=piece.text)
            show(row)
