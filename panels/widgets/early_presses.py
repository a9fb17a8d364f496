"""Lets a press wait for answers that its run needs, such as the list of models or the recording of a sample.

Gradio reads the inputs of a run when its button is pressed. A press while an answer is on its way would begin the run
without it. What happens in the browser is in assets/presses.js.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import gradio as gr

from panels.running.wiring import wire, wire_script

# Settings of an event that may be triggered again before it is answered: every press is answered, in order.
# Gradio's "always_last" would repeat the first press.
IN_TURN: dict[str, Any] = {"trigger_mode": "multiple", "concurrency_limit": 1}


def before_press(*buttons: gr.Button) -> Callable[..., Any]:
    """Returns `wire` for the events that fill inputs: a press of one of these buttons waits for their answers."""
    ids = json.dumps([each.elem_id for each in buttons])
    ask = f"(...values) => workbenchPresses.ask({ids}, values)"
    answer = f"() => workbenchPresses.answer({ids})"

    def fill(
        event: Callable[..., Any], function: Callable[..., Any], inputs: Any, outputs: Any, **settings: Any
    ) -> Any:
        filled = wire(event, function, inputs, outputs, js=ask, **settings)
        for ended in (filled.success, filled.failure):
            wire_script(ended, answer)
        return filled

    return fill
