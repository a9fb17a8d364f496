"""All routes of a server, for an application of Starlette or beside the page's own."""

from __future__ import annotations

from starlette.routing import BaseRoute, WebSocketRoute

from workbench.serving.routes import chats, completions, health, speech, transcriptions
from workbench.serving.service import METHODS, Service, route
from workbench.serving.streaming.live import live_routes
from workbench.serving.streaming.realtime import realtime_routes


def unknown_routes(service: Service, path: str) -> list[BaseRoute]:
    """Returns the routes for paths that do not exist, whatever the method, and for websockets."""
    return [
        route(service, path, ",".join(METHODS), "unknown", health.unknown),
        WebSocketRoute(path, health.unknown_websocket),
    ]


def api_routes(service: Service) -> list[BaseRoute]:
    """Returns the routes under /v1, and those for the server's health."""
    return [
        *live_routes(service),
        *realtime_routes(service),
        route(service, "/v1/models", "GET", "models", health.models),
        route(service, "/v1/models/{name:path}", "GET", "models", health.model),
        route(service, "/v1/audio/transcriptions", "POST", "transcriptions", transcriptions.transcribe),
        route(service, "/v1/audio/speech", "POST", "speech", speech.speak),
        route(service, "/v1/chat/completions", "POST", "chat", chats.chat),
        route(service, "/v1/completions", "POST", "completions", completions.complete),
        route(service, "/health", "GET,HEAD", "health", health.health),
        route(service, "/ready", "GET,HEAD", "ready", health.ready),
        route(service, "/metrics", "GET", "metrics", health.metrics),
        route(service, "/v1/realtime", "GET", "unknown", health.realtime_without_websocket),
        *unknown_routes(service, "/v1/{path:path}"),
    ]
