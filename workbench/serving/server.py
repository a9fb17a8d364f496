"""`workbench serve`: a web server with the routes alone, without the page."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable

from starlette.applications import Starlette

from workbench.core.errors import Unavailable
from workbench.serving.api import api_routes
from workbench.serving.service import Service
from workbench.serving.sessions import SessionPool

SERVER_PORT = 8000  # where servers of such routes listen
LEAVING_SECONDS = 5  # for answers that are under way when the server ends


def application(service: Service) -> Starlette:
    """Returns the routes as an application."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield

    return Starlette(routes=api_routes(service), lifespan=lifespan)


def serve(host: str, port: int, say: Callable[[str], None]) -> None:
    """Serves the models of the registry until interrupted; an interrupt ends it in order.

    Raises `Unavailable` if the packages of a web server are not installed.
    """
    try:
        import uvicorn
    except ImportError:
        raise Unavailable("a server needs uvicorn: pip install 'speech-workbench[serve]'") from None
    from workbench.prepared.pool import prepared_processes
    from workbench.registry.registry import Registry

    with prepared_processes(), SessionPool(Registry(patient=True)) as pool:
        pool.watch()
        settings = uvicorn.Config(
            application(Service(pool)),
            host=host.strip("[]"),
            port=port,
            log_level="warning",
            timeout_graceful_shutdown=LEAVING_SECONDS,
            server_header=False,
        )
        say(f"http://{host}:{port}/v1 answers; Ctrl-C ends it")
        uvicorn.Server(settings).run()
