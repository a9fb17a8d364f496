"""Starts the web server for the page: address, limits and the files that it may serve."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import getproxies

from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.routing import BaseRoute
from starlette.types import Scope
from starlette.websockets import WebSocket

from panels.running.gradio_import import import_gradio
from workbench.serving.admission.access_middleware import AccessMiddleware, script_digests
from workbench.serving.admission.address import PORT, address
from workbench.serving.admission.addresses import trust_proxies
from workbench.serving.admission.flags import add_opening_arguments, read_users
from workbench.serving.admission.guard import Guard
from workbench.serving.admission.keys import Keys, keys_path
from workbench.serving.admission.limits import LOCAL, PUBLIC, read_limits
from workbench.serving.admission.mode import PUBLIC as PUBLIC_MODE
from workbench.serving.admission.mode import SPACE, mode_for
from workbench.serving.expiry import removing_expired
from workbench.serving.kept_files import KeptFiles
from workbench.serving.mcp.server import Mcp
from workbench.serving.start import prepare_process
from workbench.system.endings import Ended, end_in_order, is_ended, stopped_status
from workbench.system.tempdirs import make_tempdir

if TYPE_CHECKING:
    from panels.running.root import Page

SPARE_THREADS = 24  # for events that compute nothing
LOOK_SECONDS = 0.01  # between two looks at the queue of events
SPACE_PROXIES = ("10.0.0.0/8", "172.16.0.0/12")  # Hugging Face's proxies, which pass on the visitors of a Space
SPACE_EMBEDDERS = ("https://huggingface.co", "https://*.hf.space")
BOUNDED = "workbench.serving.http_protocol:BoundedHttpProtocol"
OWN_HOSTS = ("localhost", "127.0.0.1", "::1")
UPLOADS = "GRADIO_TEMP_DIR"  # the environment variable that names Gradio's folder for uploads


@dataclass(frozen=True)
class Opening:
    """How the owner opens the page to visitors."""

    guard: Guard
    hosts: tuple[str, ...] = ()  # names of the server beside its addresses
    origins: tuple[str, ...] = ()  # other sites whose pages may send requests
    embedders: tuple[str, ...] = ()  # sites that may show the page in a frame
    keys: Keys = field(default_factory=Keys)  # API keys of programs; without any, programs need no key
    users: tuple[tuple[str, str], ...] = ()  # names and passwords; without any, nobody signs in
    root_path: str | None = None  # the path of the page behind a proxy
    tabs: str | None = None  # keys of the tabs that it shows, separated by commas; None for all


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the command line, builds the page and serves it until interrupted or ended."""
    parser = argparse.ArgumentParser(prog="python app.py", description="The Speech Workbench in a browser.")
    parser.add_argument("--host", help="address to listen on; 0.0.0.0 for other machines too (default: 127.0.0.1)")
    parser.add_argument("--port", help=f"port to listen on (default: {PORT}, or the next that is free)")
    add_opening_arguments(parser)
    chosen = parser.parse_args(arguments)
    quieten()

    from workbench.core.errors import WorkbenchError, message_of

    try:
        host, port = address(chosen.host, chosen.port)  # first, because the next steps take time
        opening = opening_of(chosen, host)
        use_no_proxy_for(host)
        end_in_order()
        serve(host, port, opening)
        if is_ended():
            raise Ended  # Gradio keeps the interrupt to itself
    except WorkbenchError as error:  # such as a model list that cannot be read
        parser.exit(error.exit_status, f"workbench: {error}\n")
    except (OSError, OverflowError) as error:
        parser.exit(1, f"workbench: the page cannot be served: {message_of(error, None)}\n")
    except Ended:
        parser.exit(stopped_status())


def opening_of(chosen: argparse.Namespace, host: str) -> Opening:
    """Returns what the command line says about visitors; raises `BadInput` for invalid settings."""
    mode = mode_for(host, chosen.mode)
    limits = read_limits(PUBLIC if mode == PUBLIC_MODE else LOCAL, chosen.limits)
    proxies = chosen.trusted_proxy or (SPACE_PROXIES if os.environ.get(SPACE) else ())
    trust_proxies(proxies)
    return Opening(
        Guard(mode, limits),
        tuple(chosen.allow_host or ()),
        tuple(chosen.allow_origin or ()),
        SPACE_EMBEDDERS if os.environ.get(SPACE) else (),
        Keys(keys_path()),
        read_users(chosen.auth),
        chosen.root_path,
        chosen.tabs,
    )


def serve(host: str, port: int, opening: Opening) -> None:
    """Builds the page over the registry of models and serves it until interrupted."""
    prepare_process(opening.guard.limits)
    with own_uploads():
        import_gradio()  # not earlier: Gradio makes its folder for uploads during the import
        from panels.page import build_page, chosen_tabs
        from panels.running.sessions import SessionPool
        from workbench.prepared.pool import prepared_processes
        from workbench.registry.registry import Registry

        tabs = chosen_tabs(opening.tabs)
        with (
            prepared_processes(),
            SessionPool(Registry(wait_for_memory=True), guard=opening.guard, opens_ahead=True) as pool,
        ):
            page = build_page(pool, tabs)
            pool.watch()
            _, url, _ = launch(page, opening, server_name=host, server_port=port, prevent_thread_lock=True, quiet=True)
            sys.stdout.write(f"the page is at {url} in {opening.guard.mode} mode; Ctrl-C ends it\n")
            sys.stdout.flush()
            page.block_thread()


def quieten() -> None:
    """Stops Gradio from sending usage data. It must run before the first import of gradio."""
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
    # The value that Gradio itself sets: prepared processes are of no use once the environment has changed.
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "True"


def use_no_proxy_for(host: str) -> None:
    """Makes this process reach its own addresses and `host` without the proxies that the environment names.

    Gradio asks its own server once at the start, and the proxy of a company does not reach the machines behind it.
    """
    if getproxies():
        named = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
        hosts = dict.fromkeys([*(each.strip() for each in named.split(",") if each.strip()), *OWN_HOSTS, host])
        os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join(hosts)


@contextlib.contextmanager
def own_uploads() -> Iterator[None]:
    """Stores uploads in a separate folder of this server and deletes it at the end, unless the environment names a
    folder.

    All Gradio servers on a machine share the default folder, and each one that ends empties it.
    """
    if os.environ.get(UPLOADS):
        yield
        return
    folder = make_tempdir()
    os.environ[UPLOADS] = str(folder / "files")
    try:
        yield
    finally:
        del os.environ[UPLOADS]
        shutil.rmtree(folder, ignore_errors=True)


def launch(page: Page, opening: Opening | None = None, **settings: Any) -> tuple[Any, str, str]:
    """Serves the page; `settings` are more arguments of `Blocks.launch`; returns its result.

    Args:
        opening: how the page is open to visitors; by default it has the guard of the page, and nothing else.
    """
    from gradio.utils import get_upload_folder
    from uvicorn.config import HTTP_PROTOCOLS

    from panels.running.origins import allow_no_origin
    from panels.running.root import HANDLERS
    from panels.widgets.theme import head, theme, words
    from workbench.registry.sources import assets

    opening = opening or Opening(page.guard)
    limits = opening.guard.limits
    stored_files = KeptFiles(Path(get_upload_folder()), limits)
    mcp = Mcp(page.service, stored_files) if page.service is not None else None

    @contextlib.asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        answering = mcp.lifespan(app) if mcp is not None else contextlib.nullcontext()
        async with removing_expired(stored_files.remove_expired, page.runs.remove_expired), answering:
            yield

    stop_spare_work(page)
    allow_no_origin()
    HTTP_PROTOCOLS["auto"] = BOUNDED  # Gradio names no protocol
    return page.launch(
        theme=theme(),
        head=head(),
        app_kwargs={
            "routes": routes_of(page, stored_files, mcp),
            "lifespan": lifespan,
            "exception_handlers": HANDLERS,
            "openapi_url": None,  # it would describe the routes of Gradio, not those for programs
            "middleware": middleware_of(page, opening),
        },
        favicon_path=assets() / "favicon.svg",
        i18n=words(),
        footer_links=["api", "settings"],
        allowed_paths=[str(assets() / "samples")],
        max_file_size=limits.file_mb << 20,
        max_threads=limits.running + limits.waiting + SPARE_THREADS,  # the queue of calls decides which calls run
        state_session_capacity=limits.sessions,
        auth=list(opening.users) or None,
        root_path=opening.root_path,
        enable_monitoring=False,
        run_history=False,
        _frontend=False,  # Gradio would end the page if a slow machine takes 3 s to answer itself, or asks a proxy
        ssr_mode=False,  # the page needs no Node.js
        share=False,  # a visitor from a tunnel would count as one of this machine
        mcp_server=False,  # the page has its own
        show_error=True,
        **settings,
    )


def stop_spare_work(page: Page) -> None:
    """Stops work of Gradio that the page does not need."""
    from gradio import http_server, utils

    from panels.running.visitor_states import remember_little

    # In a Space, Gradio would watch the files and load changed ones. That needs one more package.
    vars(http_server)["get_space"] = lambda: None
    remember_little()
    # Gradio would choose a backend of matplotlib around each call. The first one would import pyplot, which takes 0.4 s
    # and 20 MB. The page's figures need no backend.
    vars(utils)["MatplotlibBackendMananger"] = contextlib.nullcontext
    # Gradio looks a thousand times a second. That takes 4 % of a core, even without visitors.
    page._queue.sleep_when_free = LOOK_SECONDS


def routes_of(page: Page, stored_files: KeptFiles, mcp: Mcp | None) -> list[BaseRoute]:
    """Returns the routes of the page that Gradio lacks, or that it must not answer itself."""
    from panels.running.built_files import built_files_route
    from panels.running.event_streams import event_routes
    from panels.running.uploads import upload_route
    from panels.sharing import sharing_routes
    from panels.widgets.snippets import routes

    return [
        upload_route(page, stored_files),
        built_files_route(),
        *event_routes(page),
        *routes(),
        *sharing_routes(),
        *(mcp.routes() if mcp is not None else ()),
        *page.routes,
    ]


def middleware_of(page: Page, opening: Opening) -> list[Middleware]:
    """Returns what every request passes, the outermost first."""
    from panels.running.compressed_page import CompressedPage
    from panels.running.json_bodies import JsonBodies
    from panels.running.root_path import RootPath
    from panels.sharing import LinkTags
    from panels.widgets.theme import head

    return [
        Middleware(RootPath),
        Middleware(CompressedPage),
        Middleware(
            AccessMiddleware,
            guard=opening.guard,
            hosts=opening.hosts,
            origins=opening.origins,
            keys=opening.keys,
            signed_in=signed_in if opening.users else None,
            embedders=opening.embedders,
            scripts=script_digests(head()),
        ),
        Middleware(LinkTags, title=str(page.title)),
        Middleware(JsonBodies, page=page),
    ]


def signed_in(scope: Scope) -> bool:
    """Returns whether a request to the page carries the cookie of somebody who signed in."""
    app = scope.get("app")
    cookies = Request(scope).cookies if scope["type"] == "http" else WebSocket(scope, _never, _never).cookies
    identity = getattr(app, "cookie_id", "")
    tokens = getattr(app, "tokens", {})
    return any(cookies.get(f"access-token-{kind}{identity}") in tokens for kind in ("", "unsecure-"))


async def _never(*args: Any) -> Any:
    raise RuntimeError("cookies are read, and nothing else")
