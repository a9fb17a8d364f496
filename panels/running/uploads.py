"""Takes uploads in place of Gradio's own route.

It enforces limits, removes uploads that break off, and answers a full disk with a sentence.

It reads forms with Gradio's parser, and answers as Gradio does: a list of paths.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradio import routes
from gradio.route_utils import FileUploadProgress, upload_fn
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from panels.running.error_boundary import FAULT, log
from workbench.core.errors import WorkbenchError
from workbench.core.visitors import current_visitor
from workbench.openai_api.errors import Refusal, error_answer
from workbench.serving.kept_files import KeptFiles, no_room_error
from workbench.serving.routes.request_work import CLIENT_CLOSED_REQUEST

if TYPE_CHECKING:
    from panels.running.root import Page

PATH = "/gradio_api/upload"
MAX_FOLLOWED = 1000  # uploads whose progress is remembered
LONGEST_ID = 200  # characters, of an upload whose progress is followed; the page sends 11


class UploadProgress(FileUploadProgress):
    """The progress of the newest uploads. Gradio's own remembers every id that anybody has asked for."""

    async def is_tracked(self, upload_id: str) -> bool:
        """Returns when an upload has begun; raises `TimeoutError` for an id that no page sends."""
        if len(upload_id) > LONGEST_ID:
            raise TimeoutError
        self._forget_oldest()
        return await super().is_tracked(upload_id)

    def track(self, upload_id: str) -> None:
        self._forget_oldest()
        super().track(upload_id)

    def stop_tracking(self, upload_id: str) -> None:
        super().stop_tracking(upload_id)
        self._signals.pop(upload_id, None)

    def _forget_oldest(self) -> None:
        while len(self._signals) >= MAX_FOLLOWED:
            self.stop_tracking(next(iter(self._signals)))


def _followed() -> UploadProgress:
    """Returns the progress that Gradio's route reports, which is an `UploadProgress` from now on."""
    known = routes.file_upload_statuses
    if not isinstance(known, UploadProgress):
        known = vars(routes)["file_upload_statuses"] = UploadProgress()
    return known


def upload_route(page: Page, stored_files: KeptFiles) -> Route:
    """Returns the route that takes files for the page and its endpoints."""

    progress = _followed()

    async def upload(request: Request) -> Response:
        try:
            return JSONResponse(await _store_uploads(page, stored_files, progress, request))
        except ClientDisconnect:
            return Response(status_code=CLIENT_CLOSED_REQUEST)
        except WorkbenchError as error:
            return JSONResponse({"error": str(error), "detail": str(error)}, error_answer(error)[0])
        except Exception as error:
            log.error("an upload failed", exc_info=error)
            return JSONResponse({"error": FAULT, "detail": FAULT}, 500)

    return Route(PATH, upload, methods=["POST"])


async def _store_uploads(page: Page, stored_files: KeptFiles, progress: UploadProgress, request: Request) -> list[str]:
    """Returns the paths of the files in a form."""
    max_bytes = stored_files.limits.file_mb << 20
    length = request.headers.get("content-length", "")
    folder = stored_files.begin(current_visitor(), min(int(length[:20]), max_bytes) if length.isdecimal() else 0)
    complete, upload_id = False, request.query_params.get("upload_id", "")
    followed = 0 < len(upload_id) <= LONGEST_ID
    try:
        paths, moved, places = await upload_fn(
            request, str(folder), max_bytes, upload_id or None, upload_progress=progress if followed else None
        )
        if not paths or moved or places:
            raise Refusal("the form has no files; expected one or several, each with the name files")
        for _ in paths[1:]:  # the request itself counted as the first file
            page.guard.arrived(current_visitor(), upload=True)
        complete = True
    except OSError as error:
        raise no_room_error(error) from error
    except (MultiPartException, HTTPException, KeyError, TypeError, ValueError) as error:
        message = getattr(error, "message", None) or getattr(error, "detail", None) or str(error)
        if "maximum allowed size" in str(message):
            raise Refusal(
                f"a file has more than {stored_files.limits.file_mb} MB, the most that is taken here", status=413
            ) from None
        raise Refusal(f"the form cannot be read: {message!s:.120}; expected multipart/form-data with files") from None
    finally:
        if not complete:
            stored_files.drop(folder)
    stored_files.end(folder)
    names = [str(path) for path in paths]
    page.upload_file_set.update(names)
    return names
