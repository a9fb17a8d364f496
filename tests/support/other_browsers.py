"""Firefox and WebKit (Safari's engine) from Debian's packages, driven by the protocols that they speak themselves."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.waits import until
from workbench.system.process_groups import end_group

PATIENCE = 60.0  # seconds; a machine with other work is slow
# Runs the body of a function in the page and returns what it has answered as soon as that is true.
WAIT = """const [body, answer] = arguments;
const ask = new Function(body);
const again = () => { const found = ask(); if (found) answer(found); else setTimeout(again, 50); };
again();"""

NO_DAEMONS = {"DBUS_SESSION_BUS_ADDRESS": "disabled:", "NO_AT_BRIDGE": "1"}  # GTK would start some, which stay

Send = Callable[[str, dict[str, Any]], Any]  # name of a command, parameters -> its value


class Browser:
    """A window of a browser; `navigate` and `execute` name the commands of its protocol."""

    def __init__(self, send: Send, navigate: str, execute: str):
        self._send, self._navigate, self._execute = send, navigate, execute

    def open(self, url: str) -> None:
        self._send(self._navigate, {"url": url})

    def wait(self, body: str) -> Any:
        """Returns what the body of a JavaScript function returns, once that is true; fails after a minute."""
        return self._send(self._execute, {"script": WAIT, "args": [body]})


@contextlib.contextmanager
def _running(command: list[str], home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program with all that it starts, until the end of the block."""
    settings = {"HOME": str(home), "XDG_RUNTIME_DIR": str(home), "TMPDIR": str(home), **NO_DAEMONS}
    process = subprocess.Popen(
        command, env=os.environ | settings, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)  # the screen then removes its lock
        with contextlib.suppress(AssertionError):
            until(lambda: process.poll() is not None and not _exists(process.pid), 10)
        end_group(process.pid)
        process.wait()


def _exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def _program(*names: str, package: str) -> str:
    """Returns the first of these programs that is installed, else skips the test."""
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        pytest.skip(f"needs {names[0]} (apt-get install {package})")
    return found


@contextlib.contextmanager
def firefox(home: Path) -> Iterator[Browser]:
    """Firefox without a window. It speaks Marionette: JSON on a socket, each message behind its length."""
    program = _program("firefox-esr", "firefox", package="firefox-esr")
    (home / "user.js").write_text('user_pref("marionette.port", 0);\n', encoding="utf-8")  # 0: a free one
    place = home / "MarionetteActivePort"
    with _running([program, "--headless", "--no-remote", "--marionette", "--profile", str(home)], home):
        until(lambda: place.exists() and bool(place.read_text()), PATIENCE)
        with socket.create_connection(("127.0.0.1", int(place.read_text())), PATIENCE) as line:
            answers = line.makefile("rb")

            def receive() -> Any:
                length = b""
                while not length.endswith(b":"):
                    length += answers.read(1)
                return json.loads(answers.read(int(length[:-1])))

            def send(name: str, parameters: dict[str, Any]) -> Any:
                message = json.dumps([0, 1, name, parameters]).encode()
                line.sendall(b"%d:%b" % (len(message), message))
                _, _, error, value = receive()
                assert error is None, error["message"]
                return value["value"] if isinstance(value, dict) and set(value) == {"value"} else value

            receive()  # what it greets with
            send("WebDriver:NewSession", {})
            send("WebDriver:SetTimeouts", {"script": int(1000 * PATIENCE)})
            yield Browser(send, "WebDriver:Navigate", "WebDriver:ExecuteAsyncScript")


@contextlib.contextmanager
def webkit(home: Path, port: int) -> Iterator[Browser]:
    """WebKitGTK's small browser on a screen in memory. It speaks WebDriver at that port."""
    driver = _program("WebKitWebDriver", package="webkit2gtk-driver")
    screen = _program("xvfb-run", package="xvfb")
    with (
        _running([screen, "-a", driver, f"--port={port}"], home),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=2 * PATIENCE) as client,
    ):

        def answers() -> bool:
            with contextlib.suppress(httpx.TransportError):
                return client.get("/status").is_success
            return False

        until(answers, PATIENCE)

        def send(path: str, content: dict[str, Any]) -> Any:
            answer = client.post(path, json=content)
            assert answer.is_success, answer.text
            return answer.json()["value"]

        session = f"/session/{send('/session', {'capabilities': {}})['sessionId']}"
        send(f"{session}/timeouts", {"script": int(1000 * PATIENCE)})
        yield Browser(send, f"{session}/url", f"{session}/execute/async")
