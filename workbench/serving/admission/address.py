"""Finds where a server listens: a free address and port of this machine, checked before the page is built.

Gradio would try port after port for an address that this machine does not have.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket

from workbench.core.errors import BadInput

HOST, PORT = "127.0.0.1", 7860
PORTS = 100  # ports that are tried if the user names none
LARGEST = 65535
# Set by hosts that run Gradio pages, such as Spaces.
HOST_VARIABLE, PORT_VARIABLE = "GRADIO_SERVER_NAME", "GRADIO_SERVER_PORT"


def address(host: str | None = None, port: str | None = None, usual: int = PORT) -> tuple[str, int]:
    """Returns the host and the port to listen on.

    Args:
        host: a name or an address of this machine; by default the environment's, else this machine alone.
        port: a number as text, 0 for any free port; by default the environment's, else the first free port from
            `usual` on.

    Raises `BadInput` for a host that does not belong to this machine, and for a port that is invalid or taken.
    """
    host = host if host is not None else os.environ.get(HOST_VARIABLE) or HOST
    port = port if port is not None else os.environ.get(PORT_VARIABLE) or None
    places = _places(host)
    if ":" in host and not host.startswith("["):
        host = f"[{host}]"  # as written in the page's address
    if port is not None:
        number = _number(port) or _any_free(places)
        if not _free(places, host, number):
            raise BadInput(
                f"port {number} of {host} is taken by another program; choose another with --port, or leave it away "
                "for the next that is free"
            )
        return host, number
    for number in range(usual, usual + PORTS):
        if _free(places, host, number):
            return host, number
    raise BadInput(f"the ports {usual} to {usual + PORTS - 1} of {host} are all taken; choose another with --port")


def _number(port: str) -> int:
    if port.isascii() and port.isdigit() and int(port[:6]) <= LARGEST and len(port) < 6:
        return int(port)
    raise BadInput(f"the port is {port!r:.40}; expected 0 to {LARGEST}, where 0 is any that is free")


def _any_free(places: list[tuple[socket.AddressFamily, str]]) -> int:
    """Returns a free port of the first address; 0 if the system refuses: the check that follows finds the reason."""
    with contextlib.suppress(OSError), socket.socket(places[0][0], socket.SOCK_STREAM) as trial:
        trial.bind((places[0][1], 0))
        return int(trial.getsockname()[1])
    return 0


def _places(host: str) -> list[tuple[socket.AddressFamily, str]]:
    """Returns the addresses of a host, each with its address family."""
    try:
        found = socket.getaddrinfo(host.removeprefix("[").removesuffix("]"), None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # the second for a label that is empty or too long
        found = []
    if not found or not host:
        raise BadInput(
            f"the host {host!r:.80} is not a name or an address that this machine knows; expected one such as {HOST}, "
            "or 0.0.0.0 for other machines too"
        )
    return [(family, str(where[0])) for family, _, _, _, where in found]


def _free(places: list[tuple[socket.AddressFamily, str]], host: str, port: int) -> bool:
    """Returns whether the port is free. Raises `BadInput` if this machine may not listen there."""
    for family, where in places:
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            # Like the server: connections of an ended server do not block the port.
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind((where, port))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    return False
                if error.errno in (errno.EACCES, errno.EPERM):
                    raise BadInput(
                        f"this user may not listen on port {port}; choose one from 1024 on with --port"
                    ) from error
                raise BadInput(
                    f"{host} is not an address of this machine; expected one such as {HOST}, or 0.0.0.0 for other "
                    "machines too"
                ) from error
    return True
