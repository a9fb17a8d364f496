"""The host and port on which the page listens, and the errors for unusable ones."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.panels.conftest import free_port
from workbench.core.errors import BadInput
from workbench.serving.admission.address import HOST_VARIABLE, PORT, PORT_VARIABLE, address

ROOT = Path(__file__).resolve().parents[3]
FOREIGN_HOST = "192.0.2.1"  # an address reserved for documentation, which no machine has


@pytest.fixture
def occupied_port() -> Iterator[int]:
    """A port that another socket listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield int(listener.getsockname()[1])


def start(*arguments: str) -> tuple[int, str, float]:
    """Returns the exit code of the page's program, its stderr, and its duration in seconds."""
    began = time.monotonic()
    process = subprocess.run(
        [sys.executable, "-m", "panels", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    return process.returncode, process.stderr, time.monotonic() - began


def test_free_host_and_port_are_used_as_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    assert address("127.0.0.1", str(port)) == ("127.0.0.1", port)
    assert address("localhost", str(port)) == ("localhost", port)
    host, chosen_port = address()
    assert host == "127.0.0.1" and PORT <= chosen_port < PORT + 100
    monkeypatch.setenv(HOST_VARIABLE, "0.0.0.0")
    monkeypatch.setenv(PORT_VARIABLE, str(port))
    assert address() == ("0.0.0.0", port), "Spaces set these variables"


def test_next_free_port_is_used_when_the_default_is_occupied(occupied_port: int) -> None:
    assert occupied_port < address(usual=occupied_port)[1] < occupied_port + 100


def test_port_0_selects_any_free_port() -> None:
    host, port = address("127.0.0.1", "0")
    assert host == "127.0.0.1" and 0 < port < 65536


@pytest.mark.parametrize("port", ["70000", "-1", "+80", "1e3", "", "x", "9" * 40, "٣٠٠٠"])
def test_invalid_port_is_refused(port: str) -> None:
    with pytest.raises(BadInput) as caught:
        address("127.0.0.1", port)
    assert str(caught.value) == f"the port is {port!r:.40}; expected 0 to 65535, where 0 is any that is free"


@pytest.mark.parametrize("host", ["", "no such host", "256.1.1.1", "a..b", "x" * 80, "http://127.0.0.1"])
def test_invalid_host_is_refused(host: str) -> None:
    with pytest.raises(BadInput, match="is not a name or an address that this machine knows; expected one such as 127"):
        address(host, None)


@pytest.mark.parametrize("port", [None, "7860"])
def test_an_address_of_another_machine_is_refused(port: str | None) -> None:
    with pytest.raises(BadInput) as caught:
        address(FOREIGN_HOST, port)
    assert str(caught.value).startswith(
        f"{FOREIGN_HOST} is not an address of this machine; expected one such as 127.0.0.1"
    )


def test_program_exits_early_with_a_one_line_error_for_an_unusable_address(occupied_port: int) -> None:
    status, error, seconds = start("--port", str(occupied_port))
    assert (status, error.count("\n")) == (2, 1)
    assert error.startswith(
        f"workbench: port {occupied_port} of 127.0.0.1 is taken by another program; choose another with"
    )
    status, error, seconds = start("--host", FOREIGN_HOST)
    assert (status, error.count("\n")) == (2, 1) and "is not an address of this machine" in error
    assert seconds < 60, "the program checks the address before it builds the page"
