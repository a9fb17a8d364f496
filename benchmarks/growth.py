"""Growth of a server's resources: `python -m benchmarks.growth`, the page in public mode.

It prints memory, processes, threads, open files and temporary files: before, after 1,000 transcriptions in a row, after
5,000 calls of one-time visitors (the page, an endpoint, a refused call, an upload), and after four JSON bodies of 200
MB for the page and the routes (`--mode local` takes them, public mode refuses them).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from collections.abc import Iterator

import httpx

from benchmarks.served import Server, served, short_recordings, transcribe

MODEL = "demo/sensevoice"
WARM = 100  # calls before the first figures
PIECE = b'"' + b"x" * (1 << 20) + b'",'


def print_resources(server: Server, label: str, started: float) -> None:
    """Prints the server's resources."""
    time.sleep(2.0)  # for processes that end after the last answer
    print(f"{label} ({time.monotonic() - started:.0f} s): {json.dumps(server.resources())}", flush=True)


def visit(client: httpx.Client, number: int) -> None:
    """Sends one visitor's request, of several kinds in turn."""
    kind, session = number % 5, f"visitor{number}"
    request: dict[str, object]
    if kind == 0:
        client.get("/").raise_for_status()
    elif kind == 1:
        request = {"data": [], "session_hash": session}
        event = client.post("/gradio_api/call/models", json=request).json()["event_id"]
        client.get(f"/gradio_api/call/models/{event}").raise_for_status()
    elif kind == 2:
        refused = ["/etc/passwd", MODEL, "pytorch", {}, "", "basic", {}]
        request = {"data": refused, "session_hash": session}
        event = client.post("/gradio_api/call/transcribe", json=request).json()["event_id"]
        client.get(f"/gradio_api/call/transcribe/{event}")
    elif kind == 3:
        client.get("/v1/models").raise_for_status()
    else:
        client.post("/gradio_api/upload", files={"files": ("a.wav", b"x" * 1000)}).raise_for_status()


def body(megabytes: int) -> Iterator[bytes]:
    """Returns a list of texts as JSON, of that size."""
    yield b'{"model": "demo/qwen3", "data": ['
    for _ in range(megabytes):
        yield PIECE
    yield b'""]}'


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--mode", choices=("public", "local"), default="public")
    parser.add_argument("--transcriptions", type=int, default=1000)
    parser.add_argument("--calls", type=int, default=5000)
    options = parser.parse_args()
    [short] = short_recordings(1)
    with served(options.mode, page=True) as server, httpx.Client(base_url=server.url, timeout=600) as client:
        started = time.monotonic()
        for number in range(WARM):
            visit(client, number)
            transcribe(client, MODEL, short)
        print_resources(server, "before", started)
        texts = set()
        for number in range(options.transcriptions):
            texts.add(transcribe(client, MODEL, short))
            if number + 1 in (options.transcriptions // 2, options.transcriptions):
                print_resources(server, f"after {number + 1} transcriptions, {len(texts)} different answers", started)
        for number in range(options.calls):
            visit(client, WARM + number)
            if number + 1 in (options.calls // 2, options.calls):
                print_resources(server, f"after {number + 1} calls", started)
        for path in (
            "/v1/chat/completions",
            "/gradio_api/queue/join",
            "/v1/completions",
            "/gradio_api/call/transcribe",
        ):
            with contextlib.suppress(httpx.HTTPError):  # refused before the end of the body
                answer = client.post(path, content=body(200), headers={"content-type": "application/json"})
                print(f"200 MB to {path}: {answer.status_code} {answer.text[:100]}")
        print_resources(server, "after four bodies of 200 MB", started)


if __name__ == "__main__":
    main()
