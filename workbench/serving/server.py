"""`workbench serve`: a web server with the routes alone, without the page."""

from __future__ import annotations

import argparse
import socket
from collections.abc import Callable

from starlette.applications import Starlette

from workbench.serving.admission.access_middleware import AccessMiddleware
from workbench.serving.admission.addresses import trust_proxies
from workbench.serving.admission.guard import Guard
from workbench.serving.admission.keys import Keys, keys_path
from workbench.serving.admission.limits import LOCAL, PUBLIC, read_limits
from workbench.serving.admission.mode import PUBLIC as PUBLIC_MODE
from workbench.serving.admission.mode import mode_for
from workbench.serving.mcp.server import Mcp
from workbench.serving.routes.api import api_routes, unknown_routes
from workbench.serving.service import Service
from workbench.serving.sessions import SessionPool
from workbench.serving.start import prepare_process

SERVER_PORT = 8000  # where servers of such routes listen
LARGEST_FRAME = 4 << 20  # bytes of a websocket's message; the routes take 1 MB of sound at once
LEAVING_SECONDS = 5  # for answers that are under way when the server ends


def application(service: Service) -> Starlette:
    """Returns the routes as an application, MCP's among them."""
    mcp = Mcp(service)
    routes = [*mcp.routes(), *api_routes(service), *unknown_routes(service, "/{path:path}")]
    return Starlette(routes=routes, lifespan=mcp.lifespan)


def serve(host: str, port: int, say: Callable[[str], None], chosen: argparse.Namespace | None = None) -> None:
    """Serves the models of the registry until an interrupt, which ends the server in order.

    Args:
        chosen: the flags for visitors (`workbench.serving.admission.flags`).
    """
    import uvicorn

    from workbench.prepared.pool import prepared_processes
    from workbench.registry.registry import Registry
    from workbench.serving.http_protocol import BoundedHttpProtocol

    flags = vars(chosen) if chosen is not None else {}
    mode = mode_for(host, flags.get("mode"))
    limits = read_limits(PUBLIC if mode == PUBLIC_MODE else LOCAL, flags.get("limits"))
    guard = Guard(mode, limits)
    trust_proxies(flags.get("trusted_proxy") or ())
    prepare_process(limits)
    with prepared_processes(), SessionPool(Registry(wait_for_memory=True), guard=guard) as pool:
        pool.watch()
        app = AccessMiddleware(
            application(Service(pool)),
            guard,
            flags.get("allow_host") or (),
            flags.get("allow_origin") or (),
            Keys(keys_path()),
            page=False,
        )
        settings = uvicorn.Config(
            app,
            host=host.strip("[]"),
            root_path=flags.get("root_path") or "",
            port=port,
            http=BoundedHttpProtocol,
            ws_max_size=LARGEST_FRAME,
            log_level="warning",
            timeout_graceful_shutdown=LEAVING_SECONDS,
            server_header=False,
        )

        class Announced(uvicorn.Server):
            """A server that says its address as soon as it listens there."""

            async def startup(self, sockets: list[socket.socket] | None = None) -> None:
                await super().startup(sockets)
                if self.started:
                    say(f"http://{host}:{port}/v1 and /mcp answer in {mode} mode; Ctrl-C ends it")

        Announced(settings).run()
