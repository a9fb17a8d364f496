"""vLLM's own server on this machine, on a port that the system gives, with nothing left of it afterwards."""

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
from workbench.runtimes.vllm.environment import DEFAULTS, UNCOMPILED
from workbench.system.process_groups import end_group

PATIENCE = 240.0  # seconds to start, on a busy machine
ARGUMENTS = ("--dtype", "float32", "--enforce-eager", "--enable-prompt-embeds", "--host", "127.0.0.1")


class RealServer:
    """A running server of the model in a directory; `kill` ends it as a failing machine would.

    `more` are arguments of the command besides those that all these servers have.
    """

    def __init__(self, directory: Path, log: Path, port: int = 0, more: Sequence[str] = ()):
        self.log = log
        self.port = 0  # until it listens
        self.tempdir = tempfile.mkdtemp()  # for its sockets, whose names must be short
        arguments = ["--model", str(directory), *ARGUMENTS, "--port", str(port), "--served-model-name", "far", *more]
        given = {"VLLM_CPU_KVCACHE_SPACE": "1", "TMPDIR": self.tempdir}
        self.process = with_vllm.start(forking_server.__name__, arguments, log, {**DEFAULTS, **UNCOMPILED, **given})
        try:
            self.port = self._port()
        except BaseException:
            self.kill()
            raise
        self.url = f"http://127.0.0.1:{self.port}"

    def _port(self) -> int:
        """The port that it listens on, when it does; vLLM binds it at once and listens when the model is loaded."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            assert self.process.poll() is None, f"the server ended: {self.log.read_text()[-3000:]}"
            for each in psutil.Process(self.process.pid).net_connections("inet"):
                if each.status == psutil.CONN_LISTEN and "startup complete" in self.log.read_text():
                    return each.laddr.port
            time.sleep(0.2)
        raise AssertionError(f"the server did not start: {self.log.read_text()[-3000:]}")

    def running(self) -> float:
        """How many requests it works on, as it says itself."""
        import httpx

        lines = httpx.get(f"{self.url}/metrics").text.splitlines()
        [found] = [line for line in lines if line.startswith("vllm:num_requests_running{")]
        return float(found.rsplit(" ", 1)[1])

    def accepts(self) -> bool:
        """Whether anything takes connections at its port."""
        if not self.port:
            return False
        try:
            socket.create_connection(("127.0.0.1", self.port)).close()
        except ConnectionError:
            return False
        return True

    def kill(self) -> None:
        """Ends it and its engine at once, so that nothing of it is left. May be called again.

        The engine inherits the port. A killed process looks dead as soon as its first thread has ended, but the
        system closes its sockets only after the last one.
        """
        ended = self.process.returncode is not None
        end_group(self.process.pid)
        self.process.wait()
        if not ended:
            eventually(lambda: not self.accepts())
        shutil.rmtree(self.tempdir, ignore_errors=True)
