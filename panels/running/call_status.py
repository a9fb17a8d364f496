"""The HTTP status of the answer to a call that a function of the page refused.

Gradio would answer 500 with the sentence, as for a fault of the server. So the function notes a fitting status
(`note_refusal`), and the middleware around the call sends the answer with it (`with_fitting_status`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from starlette.types import Message, Send

from workbench.core.errors import WorkbenchError
from workbench.openai_api.errors import error_answer

FAULT = 500
_noted: ContextVar[list[int] | None] = ContextVar("status of the call", default=None)


def note_refusal(error: WorkbenchError) -> None:
    """Notes the status that fits an error of this project."""
    noted = _noted.get()
    if noted is not None:
        noted.append(error_answer(error)[0])


@contextlib.contextmanager
def with_fitting_status(send: Send) -> Iterator[Send]:
    """Yields a function that sends an answer, with the noted status in place of that of a fault."""
    noted: list[int] = []

    async def answer(message: Message) -> None:
        if noted and message["type"] == "http.response.start" and message["status"] == FAULT:
            message = {**message, "status": noted[-1]}
        await send(message)

    token = _noted.set(noted)  # the threads of the call share the list
    try:
        yield answer
    finally:
        _noted.reset(token)
