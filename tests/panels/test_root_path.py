"""A page behind a proxy: each address is found, whether the proxy has removed the path of the page or not."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.testclient import TestClient

from panels.running.root_path import RootPath


@pytest.mark.parametrize("root", ["", "/sub", "https://page.example/sub/"])
def test_addresses_are_found_with_and_without_the_path_of_the_page(root: str, tmp_path: Path) -> None:
    async def url(request: Request) -> PlainTextResponse:
        return PlainTextResponse(request.url.path)

    (tmp_path / "a.js").write_text("script")
    routes = [Mount("/scripts", StaticFiles(directory=tmp_path)), Route("/url", url)]
    client = TestClient(Starlette(routes=routes, middleware=[Middleware(RootPath)]), root_path=root)
    path = "/sub" if root else ""
    for before in {"", path}:
        assert client.get(f"{before}/scripts/a.js").text == "script"
        assert client.get(f"{before}/url").text == f"{path}/url"
    assert client.get("/subway").status_code == 404
