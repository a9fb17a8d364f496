"""The addresses of the scripts in the folders of assets/. Tabs share scripts, so every page has all of them."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles

from workbench.registry.sources import assets

FOLDERS = ("chat", "live", "timeline", "visualise")


class Scripts(StaticFiles):
    """The scripts of one folder. A browser asks each time whether its copy is up to date."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers["Cache-Control"] = "no-cache"
        return response


def script_routes() -> list[BaseRoute]:
    """Returns a route for each folder: `/chat/scripts` has the files of assets/chat."""
    return [Mount(f"/{folder}/scripts", Scripts(directory=assets() / folder)) for folder in FOLDERS]
