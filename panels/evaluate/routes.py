"""The addresses of the Evaluate tab: reports, tables, and the sound of a recording.

Results are found by a key that only their user has.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import partial

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route

from panels.evaluate.run import Results
from panels.running.answers import answered
from workbench.audio.read import read
from workbench.core.errors import BadInput
from workbench.evaluation.report.exports import TABLES, write_table
from workbench.evaluation.report.players import flac
from workbench.system.tempdirs import tempdir

MAX_SENT = 1 << 16  # bytes of a request's body, which should be empty
MAX_SECONDS = 120.0  # of a recording's sound; the rest is cut off

Find = Callable[[str], Results]


def evaluate_routes(find: Find) -> list[BaseRoute]:
    """Returns the routes of the tab; `find` returns the results of a key."""
    work = {"report/{key}": _report, "table/{key}": _table, "sound/{key}": _sound}
    return [
        Route(f"/evaluate/{path}", partial(answered, partial(each, find), MAX_SENT), methods=["GET"])
        for path, each in work.items()
    ]


def _report(find: Find, body: bytes, request: Request) -> Response:
    """Returns the report; as a download if the address has `save`."""
    results = find(request.path_params["key"])
    download = "save" in request.query_params
    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    name = "evaluation.html" if download else None
    return FileResponse(results.report, media_type="text/html", filename=name, headers=headers)


def _table(find: Find, body: bytes, request: Request) -> Response:
    results, kind = find(request.path_params["key"]), request.query_params.get("as", "csv")
    if f".{kind}" not in TABLES:
        raise BadInput(f"there is no table as {kind!r:.20}; expected {', '.join(each[1:] for each in TABLES)}")
    with tempdir() as folder:
        content = write_table(results.columns, folder / f"table.{kind}").read_bytes()
    name = f'attachment; filename="evaluation.{kind}"'
    return Response(content, media_type="application/octet-stream", headers={"Content-Disposition": name})


def _sound(find: Find, body: bytes, request: Request) -> Response:
    """Returns the sound of the recording that the query names, as a data URL, which a report may play."""
    results = find(request.path_params["key"])
    recordings = results.recordings()
    try:
        sound = read(recordings.source(results.utterance(request.query_params.get("id", ""))))
    finally:
        recordings.close()
    content = flac(sound.samples[: int(MAX_SECONDS * sound.sample_rate)], sound.sample_rate)
    return JSONResponse({"address": f"data:audio/flac;base64,{base64.b64encode(content).decode('ascii')}"})
