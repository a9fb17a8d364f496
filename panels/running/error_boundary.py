"""Turns errors into messages for the page: the sentence of this project's errors; for others, a reference to the log.

It wraps the event handlers and knows nothing of their work.
"""

from __future__ import annotations

import contextlib
import functools
import html
import inspect
import logging
from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr
from gradio.context import LocalContext

from panels.running.call_status import note_refusal
from panels.running.leaving import ends_with_its_event
from panels.running.visitors import visitor_of_event
from workbench.core.errors import WorkbenchError
from workbench.core.visitors import visited_by
from workbench.serving.kept_files import known_error

FAULT = "An error occurred inside the workbench. Your input is still here; the log of the server has the details."

_END = object()

log = logging.getLogger(__name__)


def page_error(error: Exception) -> gr.Error:
    """Returns the error for the page. Unknown errors are logged with their traceback, which never reaches the page."""
    if isinstance(error, gr.Error):
        return error
    known = known_error(error)
    if isinstance(known, WorkbenchError):
        known = _tell(known)
        note_refusal(known)
        # Gradio renders the message as HTML, and it may contain names that a user chose.
        return gr.Error(html.escape(str(known), quote=False), print_exception=False)
    log.error("an event of the page failed", exc_info=error)
    return gr.Error(FAULT, print_exception=False)


def _tell(error: WorkbenchError) -> WorkbenchError:
    """Returns an error as the visitors of the page in this context may read it."""
    guard = getattr(LocalContext.blocks.get(None), "guard", None)
    return error if guard is None else guard.told_error(error)


def with_error_boundary(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function (or generator function) with its errors turned into messages for the page."""
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def generate(*args: Any, **kwargs: Any) -> Iterator[Any]:
            visitor = visitor_of_event()
            try:
                with contextlib.closing(function(*args, **kwargs)) as values:
                    while True:
                        with visited_by(visitor, _tell):  # each value may be computed in another thread
                            value = next(values, _END)
                        if value is _END:
                            return
                        yield value
            except Exception as error:
                raise page_error(error) from None

        return generate

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            with visited_by(visitor_of_event(), _tell) as work, ends_with_its_event(work):
                return function(*args, **kwargs)
        except Exception as error:
            raise page_error(error) from None

    return call
