"""`workbench serve`: the address that it says."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys

from tests.panels.conftest import free_port

SERVER = """
import sys
from workbench.serving.server import serve
serve("127.0.0.1", int(sys.argv[1]), lambda sentence: print(sentence, flush=True))
"""


def test_server_says_its_address_when_it_listens_there() -> None:
    """A program that reads the sentence may connect at once."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-c", SERVER, str(port)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        sentence = process.stdout.readline()
        with socket.create_connection(("127.0.0.1", port), 5):
            pass
        assert sentence == f"http://127.0.0.1:{port}/v1 and /mcp answer in local mode; Ctrl-C ends it\n"
        process.send_signal(signal.SIGINT)
        process.wait(60)
    finally:
        process.kill()
        process.communicate()
