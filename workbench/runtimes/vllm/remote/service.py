"""Finds what a server offers for a model: its name there, the routes, the token that ends a turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from workbench.core.errors import BadInput, WorkbenchError
from workbench.families.language.directory import TURN_END
from workbench.runtimes.vllm.remote.client import Answer, Client
from workbench.runtimes.vllm.remote.refusals import refusal_error, unexpected_answer_error

CHAT, COMPLETIONS, TRANSCRIPTIONS = "/v1/chat/completions", "/v1/completions", "/v1/audio/transcriptions"
MODELS, TOKENIZE, DETOKENIZE = "/v1/models", "/tokenize", "/detokenize"
ROUTES = (CHAT, COMPLETIONS, TRANSCRIPTIONS, DETOKENIZE)
ABSENT = (404, 405, 501)  # the statuses of a route that does not exist
MAX_NAMES = 8  # names of models in a message


@dataclass(frozen=True)
class Service:
    """A model on a server."""

    model: str  # its name there
    routes: frozenset[str]  # those of ROUTES that the server has
    stop_ids: tuple[int, ...] = ()  # tokens that end a turn, besides the server's own
    has_chat_template: bool = False


def find_service(client: Client, model_name: str = "") -> Service:
    """Finds the model of that name on the server, or its only one.

    Raises `Unavailable` if the server cannot be reached or refuses access, `BadInput` if it has no such model.
    """
    model = _model(client, model_name)
    # Every existing route refuses a body without a request before it does any work.
    answers = client.ask_all([("POST", route, {}) for route in ROUTES])
    routes = frozenset(route for route, answer in zip(ROUTES, answers, strict=True) if answer.status not in ABSENT)
    end, template = client.ask_all(
        [
            ("POST", TOKENIZE, {"model": model, "prompt": TURN_END, "add_special_tokens": False}),
            ("POST", TOKENIZE, {"model": model, "messages": [{"role": "user", "content": "?"}]}),
        ]
    )
    ids = _tokens(end)
    return Service(
        model=model,
        routes=routes,
        stop_ids=tuple(ids) if len(ids) == 1 else (),  # several tokens: the model has no such end
        # A server without a tokenize route does not say whether there is a chat template; most models have one.
        has_chat_template=CHAT in routes and (template.status in ABSENT or bool(_tokens(template))),
    )


def pieces(client: Client, service: Service, ids: Sequence[int]) -> list[str]:
    """Returns each token as text, also special tokens; empty texts if the server does not return them."""
    if DETOKENIZE not in service.routes:
        return [""] * len(ids)
    answers = client.ask_all([("POST", DETOKENIZE, {"model": service.model, "tokens": [number]}) for number in ids])
    texts = [answer.content.get("prompt") if isinstance(answer.content, dict) else None for answer in answers]
    return [piece if isinstance(piece, str) else "" for piece in texts]


def _model(client: Client, model_name: str) -> str:
    answer = client.ask("GET", MODELS)
    if answer.status != 200:
        raise _no_models(client, answer)
    try:
        names = [str(each["id"]) for each in answer.content["data"]]
    except (TypeError, KeyError):
        raise unexpected_answer_error(client.server, f"{MODELS} with no list of models") from None
    listed = ", ".join(names[:MAX_NAMES]) + (" ..." if len(names) > MAX_NAMES else "")
    if model_name:
        if model_name in names:
            return model_name
        raise BadInput(
            f"the server {client.server.url} has no model {model_name!r}; it has {listed or 'none'}: correct the name "
            f"in the source of {client.model}'s card"
        )
    if len(names) != 1:
        raise BadInput(
            f"the server {client.server.url} has {len(names)} models, {listed or 'none'}; expected the name of one of "
            f"them in the source of {client.model}'s card, as model"
        )
    return names[0]


def _no_models(client: Client, answer: Answer) -> WorkbenchError:
    if answer.status in (404, 405):
        return unexpected_answer_error(client.server, f"{MODELS} with {answer.status}")
    return refusal_error(client.server, answer.status, _as_bytes(answer.content))


def _as_bytes(content: Any) -> bytes:
    import json

    return b"" if content is None else json.dumps(content).encode()


def _tokens(answer: Answer) -> list[int]:
    """Returns the ids in an answer of /tokenize; none for any other answer."""
    ids = answer.content.get("tokens") if answer.status == 200 and isinstance(answer.content, dict) else None
    return [number for number in ids if isinstance(number, int)] if isinstance(ids, list) else []
