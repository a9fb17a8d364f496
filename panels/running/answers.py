"""Answers to requests that do not go through Gradio: in a thread, with errors as `{"error": sentence}`.

This file knows no tab.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from panels.running.error_boundary import FAULT, log
from workbench.core.errors import BadInput, WorkbenchError
from workbench.serving.routes.request_work import CLIENT_CLOSED_REQUEST


async def answered(work: Callable[[bytes, Request], Response], largest: int, request: Request) -> Response:
    """Reads the body of a request, at most `largest` bytes, and works on it in a thread."""
    try:
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > largest:
                raise BadInput(f"the file is larger than {largest >> 20} MB; expected a shorter recording")
        return await asyncio.to_thread(work, bytes(body), request)
    except ClientDisconnect:
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    except WorkbenchError as error:
        return JSONResponse({"error": str(error)}, 400)
    except Exception as error:
        log.error("a request of the page failed", exc_info=error)
        return JSONResponse({"error": FAULT}, 500)
