"""Files for the tools of MCP: their content in base64, or the id of an upload.

    POST /mcp/files   a form with one file, as `curl -F file=@talk.wav` sends it; answers {"id", "name", "bytes"}

No request can name a file of the server by its path: a client can use only the files that it sent.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath
from typing import Any

from starlette.responses import JSONResponse
from starlette.routing import Route

from workbench.core.errors import BadInput
from workbench.core.visitors import current_visitor
from workbench.openai_api.errors import Refusal
from workbench.serving.kept_files import KeptFiles, no_room_error
from workbench.serving.routes.bodies import read_form
from workbench.serving.service import Call, Service, route
from workbench.system.tempdirs import make_tempdir, remove_tempdir

PATH = "/mcp/files"
LONGEST_NAME = 80
_DATA_URL = re.compile(r"data:[^,]{0,200},")


def file_name(name: str, otherwise: str) -> str:
    """Returns the name that a client gave a file, without folders and with harmless characters only."""
    last = PurePath(name.replace("\\", "/")).name
    return re.sub(r"[^A-Za-z0-9._ -]", "_", last).strip(" .")[-LONGEST_NAME:] or otherwise


def upload_route(service: Service, folder_of: Callable[[], KeptFiles]) -> Route:
    """Returns the route that takes a file which is too large for base64."""

    async def upload(call: Call) -> Any:
        gate = call.service.gate
        async with read_form(call.request, gate.largest_body, gate.largest_text) as form:
            if form.fields:
                raise Refusal(f"the form has the field {form.fields[0][0]:.40}; expected one file and nothing else")
            stored_files, size = folder_of(), form.path.stat().st_size
            folder = await asyncio.to_thread(stored_files.begin, current_visitor(), size)
            try:
                await asyncio.to_thread(shutil.move, form.path, folder / file_name(form.name, form.path.name))
            except BaseException as error:
                stored_files.drop(folder)
                if isinstance(error, OSError):
                    raise no_room_error(error) from error
                raise
            await asyncio.to_thread(stored_files.end, folder)
            return JSONResponse({"id": folder.name, "name": form.name, "bytes": size})

    return route(service, PATH, "POST", "mcp files", upload)


class CallFiles:
    """Makes the files of one call of a tool readable by their paths.

    Args:
        stored_files: where uploads lie.
        largest: bytes of one file that comes as base64.
    """

    def __init__(self, stored_files: KeptFiles, largest: int):
        self._stored_files, self._largest = stored_files, largest

    @contextlib.contextmanager
    def path(self, data: str, upload: str, name: str, parameter: str) -> Iterator[Path]:
        """Yields the path of a file as long as it is needed.

        Args:
            data: its content in base64, with or without a data URL's head; or
            upload: its id.
            name: what the client calls it; its suffix states the format.
            parameter: the name of the parameter, for messages.

        Raises `BadInput` if there is none, or both.
        """
        if bool(data) == bool(upload):
            found = "has data and upload" if data else "is empty"
            raise BadInput(f"{parameter} {found}; expected either data (base64) or upload (an id from POST {PATH})")
        if upload:
            path = self._stored_files.find(upload)
            if path is None:
                raise BadInput(
                    f"{parameter}: there is no upload {upload!r:.60}; expected an id from POST {PATH}. The "
                    "server removes old files"
                )
            yield path
            return
        content = self._content(data, parameter)
        folder = make_tempdir()
        try:
            path = folder / file_name(name, parameter)
            try:
                path.write_bytes(content)
            except OSError as error:
                raise no_room_error(error) from error
            yield path
        finally:
            remove_tempdir(folder)

    def _content(self, data: str, parameter: str) -> bytes:
        head = _DATA_URL.match(data)
        text = "".join(data[head.end() if head else 0 :].split())
        if len(text) // 4 * 3 > self._largest:
            raise BadInput(
                f"{parameter} has {len(text) // 4 * 3 >> 20} MB; expected at most {self._largest >> 20} MB, the "
                "largest file that this server takes"
            )
        try:
            content = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise BadInput(f"{parameter}: data is not base64; expected the file's content in base64") from None
        if not content:
            raise BadInput(f"{parameter}: data is empty; expected the file's content in base64")
        return content
