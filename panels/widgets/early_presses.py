"""Lets a press wait for earlier answers: those that its run needs, such as a sample's recording, or those of its kind.

Gradio reads the inputs of a run when its button is pressed. A press while an answer is on its way would begin the run
without it. What happens in the browser is in assets/presses.js.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gradio as gr

from panels.running.wiring import wire, wire_script


def wire_in_turn(event: Callable[..., Any], function: Callable[..., Any], inputs: Any, outputs: Any) -> Any:
    """Wires an event that may be triggered again before it is answered: the browser sends each trigger after the answer
    to the one before. All events with the same function take turns.

    Gradio's "always_last" would repeat the first trigger, and its "multiple" alone may show answers in another order.
    """
    return _wire((), event, function, inputs, outputs, in_turn=True)


def before_press(*buttons: gr.Button) -> Callable[..., Any]:
    """Returns a function like `wire` for the events that fill inputs: a press of one of these buttons waits for their
    answers. With `in_turn`, it wires as `wire_in_turn` does.
    """
    return partial(_wire, tuple(each.elem_id for each in buttons))


def _wire(
    buttons: Sequence[str | None],
    event: Callable[..., Any],
    function: Callable[..., Any],
    inputs: Any,
    outputs: Any,
    in_turn: bool = False,
    **settings: Any,
) -> Any:
    turn = f"{function.__module__}.{function.__qualname__}" if in_turn else None
    arguments = f"{json.dumps(buttons)}, {json.dumps(turn)}"
    if in_turn:
        settings |= {"trigger_mode": "multiple", "concurrency_limit": 1}
    ask = f"(...values) => workbenchPresses.ask({arguments}, values)"
    wired = wire(event, function, inputs, outputs, js=ask, **settings)
    for ended in (wired.success, wired.failure):
        wire_script(ended, f"() => workbenchPresses.answer({arguments})")
    return wired
