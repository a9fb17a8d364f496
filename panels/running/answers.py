"""Answers to requests that do not go through Gradio: in a thread, with errors as `{"error": sentence}`.

This file knows no tab.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from dataclasses import replace

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from panels.running.error_boundary import FAULT, log
from workbench.core.errors import BadInput, Busy, WorkbenchError
from workbench.core.visitors import Work, current_work, working
from workbench.openai_api.errors import error_answer
from workbench.serving.admission.guard import Guard
from workbench.serving.routes.request_work import CLIENT_CLOSED_REQUEST, ClientGone, all_events


async def answered(
    work: Callable[[bytes, Request], Response], largest: int, request: Request, guard: Guard | None = None
) -> Response:
    """Reads the body of a request, at most `largest` bytes, and works on it in a thread.

    Args:
        guard: whose queue the work waits in. It then has a thread of its own, and ends if the client leaves. Work that
            takes long needs that: all short work shares a few threads.
    """
    try:
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > largest:
                raise BadInput(f"the file is larger than {largest >> 20} MB; expected a shorter recording")
        if guard is None:
            return await asyncio.to_thread(work, bytes(body), request)
        [answer] = await all_events(request, lambda stop: _in_turn(guard, stop, lambda: work(bytes(body), request)))
        return answer
    except (ClientDisconnect, ClientGone):
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    except Busy as error:
        status, _ = error_answer(error)
        return JSONResponse({"error": str(error)}, status, {"retry-after": str(max(1, round(error.retry_seconds)))})
    except WorkbenchError as error:
        return JSONResponse({"error": str(error)}, 400)
    except Exception as error:
        log.error("a request of the page failed", exc_info=error)
        return JSONResponse({"error": FAULT}, 500)


def _in_turn(guard: Guard, stop: threading.Event, work: Callable[[], Response]) -> Generator[Response, None, None]:
    with working(replace(current_work() or Work(), stop=stop)), guard.turn("recording", alone=False):
        yield work()
