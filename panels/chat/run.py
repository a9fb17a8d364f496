"""Answers one turn with one or several models or settings, and reports every event at once.

The columns run one after another, so that they do not slow each other down. A stop keeps the answer so far. This
file knows neither the web server nor HTML.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

from panels.chat.request import Column
from panels.running.sessions import SessionPool
from panels.transcribe.run import sentence_of
from workbench.core.errors import Cancelled
from workbench.core.progress import listening
from workbench.families import FAMILIES
from workbench.pipelines.conversation.spoken_messages import checked_messages
from workbench.serving.work import follower, opened
from workbench.session.conversation import Answer, AnswerSoFar, AnswerStart, AudioPiece
from workbench.session.values import PROMPT, Piece
from workbench.speech.replay import Recorded, first_difference
from workbench.system.memory import size

OnEvent = Callable[[int, dict[str, Any] | AudioPiece], None]
"""Called with the number of a column, and an object for the page or a chunk of speech."""


def answer_columns(
    pool: SessionPool,
    columns: Sequence[Column],
    stops: Sequence[threading.Event],
    on_event: OnEvent,
    finished: Callable[[int, Answer], None] = lambda number, answer: None,
) -> None:
    """Computes the answers.

    Args:
        stops: one for each column; setting it ends that answer within one row.
        on_event: receives objects with `type`: `state` (what the page waits for), `loaded` (seconds, if the model was
            loaded for this answer), `text` (a piece and its tokens), `memory` (the resident memory of the model's
            process after the answer, in words), `answer` (the fields of the answer, without audio, and `replay` if it
            was compared), `failed` (a sentence). It also receives chunks of speech.
        finished: receives each complete answer.
    """
    for number, (column, stop) in enumerate(zip(columns, stops)):
        partial_answer = AnswerSoFar(column.offer.card.id, column.offer.cell.runtime, column.options)
        try:
            if not stop.is_set():
                _answer(pool, number, column, stop, partial_answer, on_event)
        except Cancelled:
            pass
        except Exception as error:
            on_event(number, {"type": "failed", "sentence": _sentence(error, len(column.messages))})
            continue
        finished(number, partial_answer.answer())
        on_event(number, answer_event(partial_answer.answer(), column.recorded))


def _answer(
    pool: SessionPool,
    number: int,
    column: Column,
    stop: threading.Event,
    partial_answer: AnswerSoFar,
    on_event: OnEvent,
) -> None:
    def report(activity: str) -> None:
        on_event(number, {"type": "state", "text": activity})

    cell = column.offer.cell
    card = column.offer.card
    accepts_audio = FAMILIES[card.family].input != PROMPT
    messages: list[Any] = checked_messages(column.messages, accepts_audio, card.id)  # before a model is loaded
    process = pool.process(cell.model, cell.runtime, cell.quantization)
    session = opened(pool, cell, stop, report)
    report("answering")
    events = session.converse_stream(messages, **column.options)
    with listening(follower(stop, report)), closing(events):
        for event in events:
            partial_answer.add(event)
            if isinstance(event, AnswerStart) and session.pid != process:
                on_event(number, {"type": "loaded", "seconds": session.load_seconds})
            elif isinstance(event, AudioPiece):
                on_event(number, event)
            elif isinstance(event, Piece):
                on_event(number, {"type": "text", "text": event.text, "tokens": list(event.tokens)})
            if stop.is_set():
                return
    if memory := session.memory_bytes:
        on_event(number, {"type": "memory", "text": size(memory)})


def _sentence(error: Exception, turns: int) -> str:
    """Returns the sentence for an error. It names no place in the newest message, as the page numbers no messages."""
    return re.sub(rf"^message {turns}, part [0-9]+: ", "", sentence_of(error))


def answer_event(answer: Answer, recorded: Recorded | None) -> dict[str, Any]:
    """Returns an answer as the page reads it: its fields without the audio, which was sent in chunks."""
    fields = {**answer.to_dict(), "audio": None}
    event = {"type": "answer", "answer": fields, "text": answer.text, "finish": answer.finish}
    if recorded is not None:
        event["replay"] = first_difference(recorded, Recorded(answer.token_ids, answer.streams)) or "same"
    return event
