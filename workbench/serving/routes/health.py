"""The routes about the server itself: its models, its health, whether it is ready, its figures."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.websockets import WebSocket

from workbench import __version__
from workbench.core.errors import Unavailable
from workbench.families.family import CONVERSE
from workbench.openai_api.errors import Refusal
from workbench.serving.offers import RuntimeOffer
from workbench.serving.service import Call, Service, error_response

TASKS = ("transcribe", CONVERSE, "generate")
OWNER = "speech-workbench"


def listed(service: Service) -> dict[str, dict[str, Any]]:
    """Returns the models of a server by the names that requests may use.

    A name without a runtime, or without a quantisation, means the default one.
    """
    found: dict[str, dict[str, Any]] = {}
    for task in TASKS:
        for offer in service.offers(task):
            names = [offer.cell.value]
            if offer.weights is None or offer.weights.default:
                names.insert(0, replace(offer.cell, quantization="").value)
            if offer.cell.runtime == service.pool.registry.default_runtime(offer.card):
                names.insert(0, offer.card.id)
            for name in names:
                model = found.setdefault(name, _model(service, name, offer))
                if task not in model["tasks"]:
                    model["tasks"].append(task)
    return dict(sorted(found.items()))


def _model(service: Service, name: str, offer: RuntimeOffer) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": service.started,
        "owned_by": OWNER,
        "title": offer.title,
        "runtime": offer.cell.runtime,
        "languages": list(offer.card.languages),
        "ready": offer.ready,  # without a download
        "tasks": [],
    }


async def models(call: Call) -> Any:
    """Lists the models."""
    return JSONResponse({"object": "list", "data": list((await asyncio.to_thread(listed, call.service)).values())})


async def model(call: Call) -> Any:
    """Returns one model."""
    name = call.request.path_params["name"]
    found = (await asyncio.to_thread(listed, call.service)).get(name)
    if found is None:
        raise Refusal(f"the server has no model {name!r:.80}", "model", "model_not_found", status=404)
    return JSONResponse(found)


async def health(call: Call) -> Any:
    """Says that the server answers."""
    return JSONResponse({"status": "ok", "version": __version__})


async def ready(call: Call) -> Any:
    """Says whether a request could be answered now."""
    ready_models = [name for name, each in (await asyncio.to_thread(listed, call.service)).items() if each["ready"]]
    if not ready_models:
        raise Unavailable("no model of this server can run; `workbench models` says why")
    loaded = [each.model for each in call.service.pool.residents()]
    return JSONResponse({"status": "ready", "models": len(ready_models), "loaded": loaded})


async def metrics(call: Call) -> Any:
    """Returns the figures for Prometheus."""
    body, kind = call.service.figures.page()
    return Response(body, headers={"content-type": kind})


async def realtime_without_websocket(call: Call) -> Any:
    """Refuses a request without the websocket of realtime sessions."""
    raise Refusal(
        "/v1/realtime is a websocket; connect to it with ws:// or wss://, and let a proxy pass its header Upgrade on"
    )


async def unknown(call: Call) -> Any:
    """Refuses a route that does not exist."""
    raise _unknown_route(call.request.url.path)


async def unknown_websocket(socket: WebSocket) -> None:
    """Refuses the websocket of a route that does not exist."""
    await socket.send_denial_response(error_response(_unknown_route(socket.url.path)))


def _unknown_route(path: str) -> Refusal:
    return Refusal(
        f"there is no route {path!s:.80}; the routes are /v1/models, /v1/audio/transcriptions, /v1/audio/speech, "
        "/v1/chat/completions, /v1/completions and /v1/realtime",
        code="unknown_url",
        status=404,
    )
