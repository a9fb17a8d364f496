"""The subprotocols with which OpenAI's client opens a websocket in a browser, where no header can carry a key."""

from __future__ import annotations

from starlette.types import Scope

REALTIME, KEY = "realtime", "openai-insecure-api-key."


def chosen_subprotocol(scope: Scope) -> str | None:
    """Returns the subprotocol to accept; a browser closes a websocket whose server accepts none of those it names."""
    return REALTIME if REALTIME in scope.get("subprotocols", ()) else None


def offered_key(scope: Scope) -> str:
    """Returns the key among the subprotocols of a websocket; empty if there is none."""
    keys = (each.removeprefix(KEY) for each in scope.get("subprotocols", ()) if each.startswith(KEY))
    return next(keys, "")
