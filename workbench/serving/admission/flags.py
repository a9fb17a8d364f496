"""The flags for a server's visitors, with the page or with the routes alone."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from workbench.core.errors import BadInput
from workbench.formats.text_files import lines_of, read_text
from workbench.serving.admission.mode import MODES

LONGEST_FILE = 1 << 20  # bytes


def add_opening_arguments(parser: argparse.ArgumentParser, page: bool = True) -> None:
    """Adds the flags; docs/security.md explains them.

    Args:
        page: whether visitors get a page, where they may sign in.
    """
    parser.add_argument(
        "--mode", choices=MODES, help="local or public (default: public as soon as other machines can reach the page)"
    )
    parser.add_argument("--limits", type=Path, metavar="FILE", help="limits of the server, in TOML")
    if page:
        parser.add_argument(
            "--tabs", metavar="NAME,...", help="the tabs that the page shows, such as transcribe,parity (default: all)"
        )
        parser.add_argument(
            "--auth", type=Path, metavar="FILE", help="names and passwords of visitors, a line NAME:PASSWORD for each"
        )
    parser.add_argument(
        "--allow-host",
        action="append",
        type=_host,
        metavar="NAME",
        help="a host name by which clients may reach the server",
    )
    parser.add_argument(
        "--allow-origin",
        action="append",
        type=_origin,
        metavar="ORIGIN",
        help="another site whose pages may send requests, such as https://example.org",
    )
    parser.add_argument("--root-path", type=_root_path, metavar="PATH", help="path of the page behind a proxy")
    parser.add_argument(
        "--trusted-proxy", action="append", metavar="ADDRESS", help="a proxy that may forward the addresses of visitors"
    )


def _host(text: str) -> str:
    if not text or re.search(r"[/:\s]", text):
        raise argparse.ArgumentTypeError(f"{text!r:.80} is not the name of a host; expected one such as example.org")
    return text


def _origin(text: str) -> str:
    if not re.fullmatch(r"https?://[^/\s]+/?", text, re.IGNORECASE):
        raise argparse.ArgumentTypeError(f"{text!r:.80} is not an origin; expected one such as https://example.org")
    return text


def _root_path(text: str) -> str:
    if text and not re.fullmatch(r"(https?:/)?/\S*", text, re.IGNORECASE):
        raise argparse.ArgumentTypeError(f"{text!r:.80} is not the path of a page; expected one such as /workbench")
    return text


def opening_words(parsed: argparse.Namespace) -> list[str]:
    """Returns the flags as words, for a program that is started with them."""
    words: list[str] = []
    for name in ("mode", "limits", "tabs", "auth", "root_path"):
        if getattr(parsed, name, None) is not None:
            words += [f"--{name.replace('_', '-')}", str(getattr(parsed, name))]
    for name in ("allow_host", "allow_origin", "trusted_proxy"):
        for value in getattr(parsed, name, None) or ():
            words += [f"--{name.replace('_', '-')}", value]
    return words


def read_users(path: Path | None) -> tuple[tuple[str, str], ...]:
    """Returns the names and passwords in a file; raises `BadInput` for a file without any."""
    if path is None:
        return ()
    try:
        lines = lines_of(read_text(path, LONGEST_FILE))
    except BadInput as error:
        raise BadInput(f"the users in {path} cannot be read: {error}") from error
    pairs = [line.partition(":") for line in lines if line.strip() and not line.startswith("#")]
    if not pairs or not all(name.strip() and password for name, _, password in pairs):
        raise BadInput(f"the users in {path} are not all NAME:PASSWORD, one in each line")
    return tuple((name.strip(), password) for name, _, password in pairs)
