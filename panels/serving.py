"""Starts the web server for the page: address, limits and the files that it may serve. It lays nothing out."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from workbench.serving.address import PORT, address
from workbench.system.tempdirs import make_scratch

if TYPE_CHECKING:
    from panels.running.root import Page

LARGEST_UPLOAD = "1gb"
UPLOADS = "GRADIO_TEMP_DIR"  # an environment variable of Gradio's


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the command line, builds the page and serves it until interrupted."""
    parser = argparse.ArgumentParser(prog="python app.py", description="The Speech Workbench in a browser.")
    parser.add_argument("--host", help="address to listen on; 0.0.0.0 for other machines too (default: 127.0.0.1)")
    parser.add_argument("--port", help=f"port to listen on (default: {PORT}, or the next that is free)")
    chosen = parser.parse_args(arguments)
    quieten()

    from workbench.core.errors import WorkbenchError, message_of

    try:
        host, port = address(chosen.host, chosen.port)  # before all that takes time
        serve(host, port)
    except WorkbenchError as error:  # such as a model list that cannot be read
        parser.exit(error.exit_status, f"workbench: {error}\n")
    except (OSError, OverflowError) as error:
        parser.exit(1, f"workbench: the page cannot be served: {message_of(error, None)}\n")


def serve(host: str, port: int) -> None:
    """Builds the page over the registry of models and serves it until interrupted."""
    from panels.page import build_page
    from panels.running.sessions import SessionPool
    from workbench.prepared.pool import prepared_processes
    from workbench.registry.registry import Registry

    with own_uploads(), prepared_processes(), SessionPool(Registry(patient=True)) as pool:
        page = build_page(pool)
        pool.watch()
        launch(page, server_name=host, server_port=port)


def quieten() -> None:
    """Stops Gradio from sending usage data. It must run before the first import of gradio."""
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")


@contextlib.contextmanager
def own_uploads() -> Iterator[None]:
    """Stores uploads in a separate folder of this server and deletes it at the end, unless the environment names a
    folder.

    All Gradio servers on a machine share the default folder, and each one that ends empties it.
    """
    if os.environ.get(UPLOADS):
        yield
        return
    folder = make_scratch()
    os.environ[UPLOADS] = str(folder)
    try:
        yield
    finally:
        del os.environ[UPLOADS]
        shutil.rmtree(folder, ignore_errors=True)


def launch(page: Page, **settings: Any) -> tuple[Any, str, str]:
    """Serves the page; `settings` are more arguments of `Blocks.launch`; returns its result."""
    from starlette.middleware import Middleware

    from panels.running.root import HANDLERS
    from panels.sharing import LinkTags, sharing_routes
    from panels.widgets.snippets import routes
    from panels.widgets.theme import head, theme, words
    from workbench.registry.sources import assets

    return page.launch(
        theme=theme(),
        head=head(),
        app_kwargs={
            "routes": [*routes(), *sharing_routes(), *page.routes],
            "exception_handlers": HANDLERS,
            "middleware": [Middleware(LinkTags, title=page.title)],
        },
        favicon_path=assets() / "favicon.svg",
        i18n=words(),
        footer_links=["api", "settings"],
        allowed_paths=[str(assets() / "samples")],
        max_file_size=LARGEST_UPLOAD,
        enable_monitoring=False,
        run_history=False,
        ssr_mode=False,  # the page needs no Node.js
        show_error=True,
        **settings,
    )
