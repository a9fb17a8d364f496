"""A Hugging Face hub small enough to run inside a test: one repository, served on this machine."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import PurePosixPath

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class FakeHub(ThreadingHTTPServer):
    """Serves `files` as the repository `name`; answers 404 for any other and counts what was asked.

    `breaks_off` names a file whose every download ends half-way; `status`, if set, is the answer to everything.
    """

    daemon_threads = True

    def __init__(self, name: str, files: Mapping[str, bytes]):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.name, self.files = name, dict(files)
        self.breaks_off: str | None = None
        self.status: int | None = None
        self.downloads: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def fake_hub(name: str, files: Mapping[str, bytes]) -> Iterator[FakeHub]:
    """A running hub, stopped at the end."""
    with FakeHub(name, files) as hub:
        thread = threading.Thread(target=hub.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield hub
        hub.shutdown()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: FakeHub

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        hub = self.server
        path = self.path.split("?")[0].lstrip("/")
        if hub.status is not None:
            self._answer(hub.status, b"trouble")
        elif path.startswith(f"api/models/{hub.name}/tree/"):
            entries = [{"type": "file", "path": p, "size": len(d), "oid": _digest(d)} for p, d in hub.files.items()]
            self._answer(200, json.dumps(entries).encode())
        elif path == f"api/models/{hub.name}" or path.startswith(f"api/models/{hub.name}/revision/"):
            siblings = [{"rfilename": p} for p in hub.files]
            self._answer(200, json.dumps({"id": hub.name, "sha": COMMIT, "siblings": siblings}).encode())
        elif path.startswith(f"{hub.name}/resolve/"):
            self._file(str(PurePosixPath(*PurePosixPath(path).parts[4:])))
        else:
            self._answer(404, b"not found", {"X-Error-Code": "RepoNotFound"})

    def _file(self, name: str) -> None:
        data = self.server.files[name]
        headers = {"ETag": f'"{_digest(data)}"', "X-Repo-Commit": COMMIT}
        if self.command == "GET":
            self.server.downloads.append(name)
        if self.command == "GET" and name == self.server.breaks_off:
            self._answer(200, data[: len(data) // 2], {**headers, "Content-Length": str(len(data))})
            self.close_connection = True
        else:
            self._answer(200, data, headers)

    def _answer(self, status: int, body: bytes, headers: Mapping[str, str] = {}) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _digest(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()
