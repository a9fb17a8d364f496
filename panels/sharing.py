"""What a link to the page shows elsewhere: a title, a sentence, a picture; and the page's small picture in a browser.

Gradio writes such tags itself, but with the address of its own project and without a picture. They are replaced in the
page's HTML as it is sent, because a picture needs the whole address under which a visitor reached the page.
"""

from __future__ import annotations

import re
from functools import partial

from gradio.route_utils import get_root_url
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from panels.widgets.templates import render
from workbench.registry.sources import assets
from workbench.serving.admission.addresses import route_path

SENTENCE = (
    "Compare speech models: transcribe, talk, look inside, and find the first layer at which two runtimes differ. "
    "It runs on a laptop."
)
PICTURE, PICTURE_SIZE = "link.png", (1200, 630)  # pixels: a size that all readers of such tags accept
_TAGS = re.compile(rb'\s*<meta\s+(?:property="og:|name="twitter:)[^>]*>')


def sharing_routes() -> list[BaseRoute]:
    """Returns the route that serves the picture."""
    return [Route(f"/{PICTURE}", partial(_file, PICTURE), methods=["GET", "HEAD"])]


async def _file(name: str, request: Request) -> Response:
    return FileResponse(assets() / name, headers={"Cache-Control": "max-age=3600"})


class LinkTags:
    """Middleware that replaces the tags for links in the page's HTML, and passes everything else on.

    Args:
        title: the title of the page.
    """

    def __init__(self, app: ASGIApp, title: str):
        self._app, self._title = app, title

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD") or route_path(scope) not in ("", "/"):
            await self._app(scope, receive, send)
            return
        address = get_root_url(Request(scope), "/", scope.get("root_path") or None)
        held: list[Message] = []

        async def rewrite(message: Message) -> None:
            held.append(message)
            if message["type"] == "http.response.start" or message.get("more_body"):
                return
            start, body = held[0], b"".join(each.get("body", b"") for each in held[1:])
            if body:
                body = with_tags(body, self._title, address)
                headers = [(name, value) for name, value in start["headers"] if name.lower() != b"content-length"]
                start["headers"] = [*headers, (b"content-length", str(len(body)).encode())]
            await send(start)
            await send({"type": "http.response.body", "body": body})

        await self._app(scope, receive, rewrite)


def with_tags(html: bytes, title: str, address: str) -> bytes:
    """Returns a page's HTML with this project's tags in place of Gradio's.

    Args:
        address: the page's address as a visitor sees it, without a slash at its end.
    """
    before, head, after = _TAGS.sub(b"", html).partition(b"</head>")
    tags = render("widgets/head.html", "link_tags", title, SENTENCE, address, f"{address}/{PICTURE}", *PICTURE_SIZE)
    return before + (tags.encode() if head else b"") + head + after
