"""Reads the bodies of requests within limits: JSON, or a form with one recording, which goes to a file of its own."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, NoReturn

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import Request
from starlette.types import Message, Receive

from workbench.formats.json_values import count_values
from workbench.openai_api.errors import Refusal
from workbench.serving.kept_files import no_room_error
from workbench.system.memory import size
from workbench.system.tempdirs import make_tempdir, remove_tempdir

MAX_FIELDS = 200
PIECE = 1 << 20
MAX_VALUES = 1 << 19  # in a text of JSON
MAX_DIGITS = 308  # of a whole number: so many fit a float
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # an escaped surrogate; a character needs two


@dataclass(frozen=True)
class Form:
    """A form that was sent: its recording as a file of this server, and the texts beside it."""

    path: Path
    name: str  # of the recording, as the client calls it
    fields: list[tuple[str, str]]


async def whole_body(receive: Receive) -> list[Message] | None:
    """Returns the messages of a whole body; None if the client leaves before its end. Raises what `receive` raises."""
    messages = [await receive()]
    while messages[-1]["type"] == "http.request" and messages[-1].get("more_body"):
        messages.append(await receive())
    return messages if messages[-1]["type"] == "http.request" else None


def once_more(messages: list[Message], receive: Receive) -> Receive:
    """Returns a `receive` that first repeats the messages of a body, and then calls the original one."""
    waiting = deque(messages)

    async def give() -> Message:
        return waiting.popleft() if waiting else await receive()

    return give


def too_large(limit: int) -> Refusal:
    """Returns the refusal of a body of more than `limit` bytes."""
    return Refusal(f"the request has more than {size(limit)}, the most that this server takes", status=413)


def check_values(*pieces: bytes | bytearray | str) -> None:
    """Raises `Refusal` for a JSON text in pieces that has too many values."""
    if count_values(*pieces) > MAX_VALUES:
        raise Refusal(f"the request has more than {MAX_VALUES:,} values, the most that this server reads", status=413)


def parsed(content: str | bytes | bytearray) -> Any:
    """Returns the value of a JSON text; the value can be written as JSON again.

    Raises `ValueError` for invalid JSON, for NaN and numbers out of range such as 1e999, for lone surrogates, and for
    too deep nesting. Raises `Refusal` for too many values.
    """
    check_values(content)
    try:
        text = content if isinstance(content, str) else content.decode(json.detect_encoding(content))
        found = json.loads(text, parse_constant=_no_number, parse_float=_finite, parse_int=_whole)
        if _SURROGATE.search(text):
            json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("a text holds half a character") from None
    except RecursionError:
        raise ValueError("the nesting is too deep") from None
    return found


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number")


def _finite(text: str) -> float:
    if math.isinf(found := float(text)):
        raise ValueError(f"{text:.20} is too large")
    return found


def _whole(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"{text:.20} is too large")
    return int(text)


async def read_json(request: Request, limit: int) -> dict[str, Any]:
    """Returns the JSON object in the body of a request; raises `Refusal` for anything else."""
    _check_headers(request, limit)
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > limit:
            raise too_large(limit)
    try:
        found = await asyncio.to_thread(parsed, body) if len(body) > PIECE else parsed(body)
    except ValueError as error:
        raise Refusal(
            f"the body of the request is not JSON ({error}); expected an object with model and the other fields"
        ) from None
    if not isinstance(found, dict):
        raise Refusal("the body of the request is not a JSON object; expected model and the other fields by name")
    return found


def _check_headers(request: Request, limit: int) -> None:
    """Raises `Refusal` for a body of more than `limit` bytes, and for a compressed one."""
    coding = request.headers.get("content-encoding", "").strip().lower()
    if coding not in ("", "identity"):
        raise Refusal(f"the body is compressed with {coding!s:.40}; send it without a Content-Encoding", status=415)
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > limit:
        raise too_large(limit)


@asynccontextmanager
async def read_form(request: Request, limit: int, largest_text: int) -> AsyncIterator[Form]:
    """Yields a form with one recording; its file is gone afterwards. Raises `Refusal` for anything else.

    Args:
        limit: bytes of the form.
        largest_text: bytes of one field beside the recording; all of them are read into memory.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "multipart/form-data":
        raise Refusal(f"the content type is {kind or 'not given'!s:.80}; expected multipart/form-data", status=415)
    _check_headers(request, limit)
    received = 0

    async def counted() -> Message:
        nonlocal received
        message = await request.receive()
        received += len(message.get("body", b""))
        if received > limit:
            raise too_large(limit)
        return message

    try:
        form = await Request(request.scope, counted).form(
            max_files=2, max_fields=MAX_FIELDS, max_part_size=largest_text
        )
    except (MultiPartException, HTTPException) as error:
        message_text = error.detail if isinstance(error, HTTPException) else error.message
        raise Refusal(f"the form cannot be read: {message_text!s:.200}") from None
    except (ValueError, KeyError, UnicodeError):
        raise Refusal("the form cannot be read; expected multipart/form-data with its boundary") from None
    except OSError as error:
        raise no_room_error(error) from error
    folder = None
    try:
        fields = [(name, value) for name, value in form.multi_items() if isinstance(value, str)]
        files = [(name, value) for name, value in form.multi_items() if isinstance(value, UploadFile)]
        if any(name == "file" for name, _ in fields):
            raise Refusal("file is a text; expected the content of a recording, with its name", "file", "invalid_type")
        if [name for name, _ in files] != ["file"]:
            found = (
                f"the form has the files {', '.join(f'{name:.40}' for name, _ in files)}"
                if files
                else "file is missing"
            )
            raise Refusal(f"{found}; expected one recording as file", "file", "missing_required_parameter")
        upload = files[0][1]
        if not upload.size:
            raise Refusal("file is empty; expected a recording", "file", "invalid_value")
        folder = make_tempdir()
        name = PurePath((upload.filename or "recording").replace("\\", "/")).name[-80:] or "recording"
        ending = "".join(each for each in PurePath(name).suffix[1:9] if each.isascii() and each.isalnum())
        path = folder / f"recording.{ending or 'wav'}"
        await asyncio.to_thread(_keep, upload, path)
        yield Form(path, name, fields)
    finally:
        await form.close()
        if folder is not None:
            remove_tempdir(folder)


def _keep(upload: UploadFile, path: Path) -> None:
    try:
        with path.open("wb") as file:
            upload.file.seek(0)
            while piece := upload.file.read(PIECE):
                file.write(piece)
    except OSError as error:
        raise no_room_error(error) from error
