"""A server in public mode for the benchmarks that send requests to it, and its memory, processes and open files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np
import psutil

from workbench.audio.constants import SAMPLE_RATE
from workbench.audio.read import read, write_wav

SAMPLES = Path(__file__).parents[1] / "assets" / "samples"
# All visitors of a benchmark come from one address.
MANY = {
    "per_address": 1024,
    "requests_per_minute": 1_000_000,
    "uploads_per_hour": 1_000_000,
    "waiting_per_visitor": 512,
}
START_SECONDS = 600.0


@dataclass
class Server:
    """A server that answers."""

    url: str
    process: subprocess.Popen[str]
    folder: Path  # of the benchmark
    tempdir: Path  # the server's temporary folder
    lines: list[str] = field(default_factory=list)  # its output

    def resources(self) -> dict[str, int]:
        """Returns the server's resources: processes, memory in MB (its own alone too), open files, temporary files."""
        server = psutil.Process(self.process.pid)
        family = [server, *server.children(recursive=True)]
        memory = []
        for each in family:
            try:
                memory.append(each.memory_info().rss >> 20)
            except psutil.NoSuchProcess:
                continue
        return {
            "processes": len(family),
            "threads": server.num_threads(),
            "server MB": memory[0],
            "all MB": sum(memory),
            "open files": server.num_fds(),
            "temporary files": sum(1 for path in self.tempdir.rglob("*") if path.is_file()),
        }


@contextmanager
def served(mode: str = "public", limits: Mapping[str, float] = MANY, page: bool = False) -> Iterator[Server]:
    """Starts `workbench serve`, or the page, with those limits; ends it with SIGTERM and prints what it left behind."""
    with tempfile.TemporaryDirectory(prefix="served-") as name:
        folder = Path(name)
        tempdir = folder / "tmp"
        tempdir.mkdir()
        file = folder / "limits.toml"
        file.write_text("".join(f"{limit} = {value}\n" for limit, value in limits.items()))
        port = free_port() if page else 0
        command = ["app", "--port", str(port)] if page else ["serve", "--port", "0"]
        process = subprocess.Popen(
            [sys.executable, "-m", "workbench", *command, "--mode", mode, "--limits", str(file)],
            env={**os.environ, "TMPDIR": str(tempdir), "GRADIO_TEMP_DIR": str(tempdir / "files")},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        server = Server(f"http://127.0.0.1:{port}", process, folder, tempdir)
        threading.Thread(target=_read_lines, args=(server,), daemon=True).start()
        try:
            _wait(server)
            yield server
        finally:
            process.send_signal(signal.SIGTERM)
            status = process.wait(120)
            print("the server ended with status", status, "and left", [path.name for path in tempdir.rglob("*")][:20])


def free_port() -> int:
    """Returns a port of this machine that no program listens on."""
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _read_lines(server: Server) -> None:
    for line in server.process.stderr or ():
        server.lines.append(line)
        if "/v1" in line and "answer" in line:
            server.url = line.split("/v1")[0]


def _wait(server: Server) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and server.process.poll() is None:
        try:
            if httpx.get(f"{server.url}/health", timeout=5).is_success:
                return
        except httpx.HTTPError:
            time.sleep(0.2)
    raise SystemExit(f"the server did not start: {''.join(server.lines[-5:])}")


def transcribe(client: httpx.Client, model: str, path: Path) -> tuple[int, str]:
    """Returns the status and the text of one transcription."""
    with path.open("rb") as file:
        answer = client.post("/v1/audio/transcriptions", data={"model": model}, files={"file": (path.name, file)})
    return answer.status_code, answer.json()["text"] if answer.is_success else answer.text[:200]


def short_recordings(count: int = 4) -> list[Path]:
    """Returns the shortest sample recordings, of a few seconds each."""
    return sorted(SAMPLES.glob("*.wav"), key=lambda path: path.stat().st_size)[:count]


def long_recording(folder: Path, seconds: float) -> Path:
    """Writes sample recordings one after another until they have that length; returns the file."""
    sounds = [read(path).samples for path in short_recordings()]
    pause = np.zeros(SAMPLE_RATE, np.float32)
    once = np.concatenate([part for sound in sounds for part in (sound, pause)])
    path = folder / "long.wav"
    write_wav(path, np.tile(once, int(seconds * SAMPLE_RATE / len(once)) + 1)[: int(seconds * SAMPLE_RATE)])
    return path
