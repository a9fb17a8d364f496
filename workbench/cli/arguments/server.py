"""The arguments of the commands that start or guard a server: `app`, `serve` and `key`."""

from __future__ import annotations

import argparse

from workbench.serving.admission.flags import add_opening_arguments


def add_app(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `workbench app`."""
    _add_host(parser)
    parser.add_argument(
        "--port", type=int, help="port to listen on, 0 to 65535 (default: 7860, or the next that is free)"
    )
    add_opening_arguments(parser)


def _add_host(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", help="address to listen on (default: 127.0.0.1)")


def add_serve(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `workbench serve`."""
    parser.description = (
        "The routes are under /v1; /mcp has tools for assistants that speak MCP (the model context protocol); /health, "
        "/ready and /metrics show the state of the server. The page has the same routes."
    )
    _add_host(parser)
    parser.add_argument(
        "--port", help="port to listen on, 0 for any that is free (default: 8000, or the next free one)"
    )
    add_opening_arguments(parser, page=False)


def add_key(parser: argparse.ArgumentParser) -> None:
    """Adds the actions of `workbench key` and their arguments."""
    actions = parser.add_subparsers(dest="action", metavar="action", required=True)
    for action, does in (("add", "make a key and print it once"), ("remove", "remove a key")):
        actions.add_parser(action, help=does).add_argument("name", help="a name for the user of the key")
    actions.add_parser("list", help="list the names of the keys, and when each was made")
