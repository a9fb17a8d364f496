"""`workbench serve`: the address that it says."""

from __future__ import annotations

import os
import signal
import socket

import pytest

from tests.panels.conftest import free_port
from workbench.serving import server


def test_server_says_its_address_when_it_listens_there() -> None:
    """A program that reads the sentence may connect at once."""
    said: list[str] = []
    port = free_port()

    def say(sentence: str) -> None:
        said.append(sentence)
        with socket.create_connection(("127.0.0.1", port), 5):
            pass
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        server.serve("127.0.0.1", port, say)
    assert said == [f"http://127.0.0.1:{port}/v1 and /mcp answer in local mode; Ctrl-C ends it"]
