"""vLLM's own server on this machine, on a free port; it leaves no process or file behind."""

from __future__ import annotations

import shutil
import socket
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from tests.runtimes.vllm.remote import forking_server
from tests.support import with_vllm
from tests.support.processes import eventually
from workbench.runtimes.vllm.engine.environment import DEFAULTS, UNCOMPILED
from workbench.system.process_groups import end_group

PATIENCE = 240.0  # seconds to start, on a busy machine
ARGUMENTS = ("--dtype", "float32", "--enforce-eager", "--enable-prompt-embeds", "--host", "127.0.0.1")


class RealServer:
    """A running server of the model in a directory; `kill` ends it as a failing machine would."""

    def __init__(self, directory: Path, log: Path, port: int = 0, extra_arguments: Sequence[str] = ()):
        self.log = log
        self.port = 0  # until it listens
        self.tempdir = tempfile.mkdtemp()  # for its sockets, whose names must be short
        arguments = [
            "--model",
            str(directory),
            *ARGUMENTS,
            "--port",
            str(port),
            "--served-model-name",
            "far",
            *extra_arguments,
        ]
        environment = {"VLLM_CPU_KVCACHE_SPACE": "1", "TMPDIR": self.tempdir}
        self.process = with_vllm.start(
            forking_server.__name__, arguments, log, {**DEFAULTS, **UNCOMPILED, **environment}
        )
        try:
            self.port = self._port()
        except BaseException:
            self.kill()
            raise
        self.url = f"http://127.0.0.1:{self.port}"

    def _port(self) -> int:
        """Waits for the server to listen, and returns its port; vLLM binds the port before it loads the model."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            assert self.process.poll() is None, f"the server ended: {self.log.read_text()[-3000:]}"
            for connection in psutil.Process(self.process.pid).net_connections("inet"):
                if connection.status == psutil.CONN_LISTEN and "startup complete" in self.log.read_text():
                    return connection.laddr.port
            time.sleep(0.2)
        raise AssertionError(f"the server did not start: {self.log.read_text()[-3000:]}")

    def running(self) -> float:
        """The number of running requests, from the metrics of the server."""
        import httpx

        lines = httpx.get(f"{self.url}/metrics").text.splitlines()
        [gauge] = [line for line in lines if line.startswith("vllm:num_requests_running{")]
        return float(gauge.rsplit(" ", 1)[1])

    def accepts(self) -> bool:
        """Whether a process accepts connections at its port."""
        if not self.port:
            return False
        try:
            socket.create_connection(("127.0.0.1", self.port)).close()
        except ConnectionError:
            return False
        return True

    def kill(self) -> None:
        """Kill the server and its engine at once, and remove its files. Further calls do nothing.

        The engine inherits the port. A killed process looks dead as soon as its first thread has ended, but the
        system closes its sockets only after the last one.
        """
        had_ended = self.process.returncode is not None
        end_group(self.process.pid)
        self.process.wait()
        if not had_ended:
            eventually(lambda: not self.accepts())
        shutil.rmtree(self.tempdir, ignore_errors=True)
