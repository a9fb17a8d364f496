"""What an attacker sends to a public page, and the limits of that page."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from panels.running.uploads import PATH as UPLOAD
from workbench.serving.admission.limits import PUBLIC

LIMITS = replace(
    PUBLIC,
    file_mb=1,
    body_mb=1,
    disk_mb_per_visitor=1,
    arrays_mb=8,
    requests_per_minute=10_000,
    uploads_per_hour=10_000,
)
SAMPLE = next(Path("assets/samples").glob("*.wav"))
SITE = "https://site.example"  # its pages may use the public page
META = {"_type": "gradio.FileData"}


def upload(client: httpx.Client, content: bytes, name: str = "a.wav") -> httpx.Response:
    return client.post(UPLOAD, files={"files": (name, content)})


def files_in(uploads: Path) -> set[Path]:
    """All files that visitors have on the server."""
    return {Path(place) / name for place, _, names in os.walk(uploads) for name in names}


def call(client: httpx.Client, name: str, *values: Any) -> str:
    """Returns the last event of an endpoint's call as text, or the response to a call that the server refuses."""
    response = client.post(f"/gradio_api/call/{name}", json={"data": list(values)})
    if response.status_code != 200:
        return response.text
    with client.stream("GET", f"/gradio_api/call/{name}/{response.json()['event_id']}") as events:
        return events.read().decode().rpartition("event:")[2]


def transcribe(
    client: httpx.Client, file: Any = None, model: Any = "fake/sense", options: Any = None, engine: Any = None
) -> str:
    path = file or {"path": upload(client, SAMPLE.read_bytes()).json()[0], "meta": META}
    return call(client, "transcribe", path, model, "pytorch", options or {}, "", "basic", engine or {})
