"""Wires events of the page: they are not endpoints for scripts, and errors become sentences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradio as gr

from panels.running.error_boundary import with_error_boundary

# Runs that Gradio starts at once: more than `workbench.serving.admission.call_queue` holds in public mode.
# So that queue decides which runs start, and is fair. Gradio's queue would serve whoever came first.
RUNS_AT_ONCE = 112
COMPUTING: dict[str, Any] = {"concurrency_limit": RUNS_AT_ONCE, "concurrency_id": "compute"}
"""Settings of all events and endpoints that compute: they share one limit."""


def wire(event: Callable[..., Any], function: Callable[..., Any], inputs: Any, outputs: Any, **settings: Any) -> Any:
    """Wires an event to a function of the server; returns the event's dependency, as Gradio does."""
    settings = {"api_visibility": "private", "show_progress": "hidden", "concurrency_limit": None} | settings
    return event(with_error_boundary(function), inputs, outputs, **settings)


def wire_script(event: Callable[..., Any], script: str, inputs: Any = None, outputs: Any = None) -> Any:
    """Wires an event to a JavaScript function in the browser."""
    return event(None, inputs, outputs, js=script, api_visibility="private")


def wire_value(event: Callable[..., Any], value: str, component: gr.HTML) -> Any:
    """Wires an event to a fixed value of a component, which the page shows without waiting for other events."""
    return event(lambda: value, None, component, queue=False, api_visibility="private", show_progress="hidden")
