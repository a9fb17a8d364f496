"""Middleware before all routes of a server, the page's and the API's: decides who may send a request, and how large.

It checks in this order: the size of the headers, the name of the server (in DNS rebinding, a page of another site asks
by a name that the owner does not know), the origin of requests that change something, unused routes, keys,
rates, and the size and pace of the body. Every refusal is one sentence with its status. The answers carry headers that
let no other scripts than the page's own run. During a request, `workbench.core.visitors` knows who asks.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from workbench.core.errors import BadInput, Unavailable, WorkbenchError
from workbench.core.visitors import NOBODY, Visitor, visited_by
from workbench.openai_api.errors import Refusal
from workbench.serving.admission.addresses import address_of, forwarded_host, is_host, names_this_machine, route_path
from workbench.serving.admission.guard import Guard
from workbench.serving.admission.keys import Keys
from workbench.serving.admission.refusals import API, refuse
from workbench.serving.admission.subprotocols import offered_key

BODY_SECONDS = 30.0  # how long the next piece of a body may take to come
BODY_PACE = 1000  # bytes a second; after the first `BODY_SECONDS`, a body may not come slower
ENDING = Unavailable("the server ends before the answer is ready; send the request again in a moment")
# The page's routes beside Gradio's, and the routes of Gradio that do not ask for a name and a password themselves.
OWN_ROUTES = ("/chat/", "/visualise/", "/timeline/", "/evaluate/", "/live", "/gradio_api/upload", "/gradio_api/info")
UPLOADS = ("/gradio_api/upload", "/mcp/files")
WITH_FILES = (*UPLOADS, "/v1/audio/transcriptions", "/chat/")  # routes whose bodies may hold recordings
FILES = "/gradio_api/file="
# Gradio's routes that this page does not use: they fetch addresses, keep states on the disk, or show figures.
UNUSED_ROUTES = re.compile(
    r"/(gradio_api/)?(proxy=|deep_link|dev/|vibe|undo-vibe|process_recording|monitoring|run-history|runs|profiling"
    r"|component_server|custom_component|file/|file=[a-z][a-z0-9+.-]*:|file=//|stream/|queue/status|token|pwa_icon/"
    r"|svelte/)"
)
GRADIO_SERVER = b"x-gradio-server"  # a header by which another server of Gradio names itself; there is none here
LONGEST_PATH = 4096  # characters; as long as the path of a file may be
_ONE_RANGE = re.compile(rb"bytes=(\d{1,18}-\d{0,18}|-\d{1,18})")  # what Gradio reads; for any other it fails
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
ASKING = re.compile(r"/gradio_api/(run/|api/|call/|queue/join)|/v1/|/mcp|/chat/|/live|/login")
# Addresses whose answers take tens of milliseconds to write: the page, its description, pictures, reports.
COSTLY = re.compile(r"/?$|/config|/gradio_api/(info|openapi)|/visualise/(picture|sound|file)/|/evaluate/[a-z]+/")
# Distinguishes the browsers behind one address, such as those of a class. Those that send no cookie count as one.
COOKIE = re.compile(r"(?:^|; ?)workbench-visitor=([A-Za-z0-9_-]{22})(?:;|$)")
HARMLESS = ("GET", "HEAD", "OPTIONS")
log = logging.getLogger(__name__)
_SCRIPT = re.compile(rb"<script(?=[\s>])")


class AccessMiddleware:
    """The middleware.

    Args:
        app: the application behind the middleware.
        guard: the mode, the limits and the rates.
        hosts: names of the server beside loopback's and addresses; in public mode, any name if there are none.
        origins: other sites whose pages may send requests, such as `https://example.org`.
        keys: the API keys of programs; without any, requests need no key.
        signed_in: whether a request's visitor has signed in, where the page asks for a name and a password.
        embedders: sites that may show the page in a frame.
        scripts: digests of the scripts in the page's head, in the form of a content security policy.
        page: whether the server has a page. Without one, the routes in `OWN_ROUTES` need a key, too.
    """

    def __init__(
        self,
        app: ASGIApp,
        guard: Guard,
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
        keys: Keys | None = None,
        signed_in: Callable[[Scope], bool] | None = None,
        embedders: Iterable[str] = (),
        scripts: Iterable[str] = (),
        page: bool = True,
    ):
        self._app, self._guard, self._page = app, guard, page
        self._hosts = tuple(name.lower() for name in hosts)
        self._origins = tuple(origin.lower().rstrip("/") for origin in origins)
        self._keys = keys if keys is not None else Keys()  # one without keys may get some later
        self._signed_in = signed_in
        self._scripts = "".join(f" '{digest}'" for digest in scripts)
        local_origins = () if guard.public else ("http://localhost:*", "http://127.0.0.1:*")
        self._ancestors = " ".join(("'self'", *local_origins, *embedders))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        scope["headers"] = _understood(scope)
        headers = Headers(scope=scope)
        try:
            visitor = self._let_in(scope, headers)
            largest = self._largest_body(scope, headers)
        except WorkbenchError as error:
            await refuse(scope, receive, send, error, self._allowing(headers))
            return
        if _is_preflight(scope, headers):
            await _answer_preflight(headers, send, self._allowing(headers))
            return
        nonce = secrets.token_urlsafe(16)
        answer = _Answer(send, self._own_headers(scope, nonce), nonce) if scope["type"] == "http" else None
        body = _Body(receive, largest) if scope["type"] == "http" else None
        with visited_by(visitor, self._guard.told_error):
            try:
                await self._app(scope, body or receive, answer or send)
            except WorkbenchError as error:
                if answer is None or answer.started:
                    raise
                await refuse(scope, receive, answer, error, {})
            except asyncio.CancelledError:  # the server ends, and has waited long enough for this answer
                if answer is not None and not answer.started:
                    await refuse(scope, receive, answer, ENDING, {})

    def _let_in(self, scope: Scope, headers: Headers) -> Visitor:
        """Returns the visitor who sends the request; raises `Refusal` or `Busy` for a request that is not answered."""
        guard, path = self._guard, route_path(scope)
        target_bytes = len(scope.get("raw_path", b"")) + len(scope.get("query_string", b""))
        if (
            target_bytes + sum(len(name) + len(value) for name, value in scope["headers"])
            > guard.limits.header_kb << 10
        ):
            raise Refusal(f"the address and the headers have more than {guard.limits.header_kb} kB", status=431)
        if len(path) > LONGEST_PATH:
            raise Refusal(f"the address has {len(path)} characters; expected at most {LONGEST_PATH}", status=414)
        for name, host in (("Host", headers.get("host", "")), ("X-Forwarded-Host", _forwarded_host(headers))):
            if not is_host(host):
                raise Refusal(f"the header {name} is {host!r:.80}; expected the name of a server", status=400)
        strict = not guard.public or self._hosts
        if strict and not names_this_machine(headers.get("host", ""), self._hosts):
            raise Refusal(
                f"this server does not know the name {headers.get('host', '')!r:.80}; ask for it by its address, or "
                "start it with --allow-host NAME",
                status=421,
            )
        works = scope["type"] == "websocket" or scope["method"] not in HARMLESS
        preflight = _is_preflight(scope, headers)
        signs_out = path.rstrip("/") == "/logout"  # a visitor signs out with GET
        if (works or preflight or signs_out) and not self._same_site(headers):
            raise Refusal("the request comes from a page of another site", status=403)
        # The pattern of a route also matches its path with a line end, which no check here knows. Gradio makes
        # addresses from paths, and fails for those with characters that no address has.
        if _CONTROL.search(path) or UNUSED_ROUTES.match(path):
            raise Refusal(f"there is no {path!r:.60} here", status=404)
        if preflight:  # a browser shows no key in it; the request that follows is counted
            return NOBODY
        key = self._key(scope, headers, path)
        host = (scope.get("client") or ("", 0))[0]
        cookie = COOKIE.search(headers.get("cookie", ""))
        visitor = Visitor(address_of(host), cookie[1] if cookie else "", key)
        if (path in UPLOADS or ASKING.match(path)) if works else COSTLY.match(path):
            guard.arrived(visitor, upload=path in UPLOADS)
        return visitor

    def _same_site(self, headers: Headers) -> bool:
        origin = headers.get("origin")
        if origin is None:  # a browser sends none with GET
            return headers.get("sec-fetch-site", "none") in ("same-origin", "none")
        site = origin.lower().partition("://")[2]
        own_hosts = (headers.get("host", "").lower(), _forwarded_host(headers).lower())
        return bool(site) and (site in own_hosts or origin.lower() in self._origins)  # "null" has no site

    def _key(self, scope: Scope, headers: Headers, path: str) -> str:
        """Returns the name of the key that a program sends; raises `Refusal` if it needs one and sends none."""
        scheme, _, key = headers.get("authorization", "").partition(" ")
        key = key.strip() if scheme.lower() == "bearer" else offered_key(scope)
        for_programs = path.startswith(API if self._page else (*API, *OWN_ROUTES))
        try:
            name, needs_key = self._keys.name_of(key) if key else "", for_programs and bool(self._keys)
        except BadInput as error:  # it names a file of the server
            log.error("%s", error)
            raise Unavailable("the keys of this server cannot be read; its log has the details") from None
        if for_programs:
            signed_in = self._signed_in is not None and self._signed_in(scope)
            if (needs_key and not name and not signed_in) or (self._signed_in and not signed_in and not name):
                raise Refusal(
                    "this server takes requests with an API key of its owner; send one as `Authorization: Bearer KEY`",
                    code="invalid_api_key",
                    status=401,
                )
        elif self._signed_in and path.startswith(OWN_ROUTES) and not self._signed_in(scope):
            raise Refusal("sign in on the page first", status=401)
        return name

    def _largest_body(self, scope: Scope, headers: Headers) -> int:
        limits, path = self._guard.limits, route_path(scope)
        max_bytes = (limits.file_mb if path.startswith(WITH_FILES) else limits.body_mb) << 20
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length[:20]) > max_bytes + (1 << 16):
            raise _too_large(max_bytes)
        return max_bytes + (1 << 16)  # the frame of a form

    def _own_headers(self, scope: Scope, nonce: str) -> Mapping[bytes, bytes]:
        path = route_path(scope)
        if path.startswith(FILES):  # what visitors have uploaded or received: never a page
            policy = "default-src 'none'; style-src 'unsafe-inline'; media-src 'self'; img-src 'self'; sandbox"
        else:
            policy = page_policy(nonce, self._ancestors, self._scripts)
        found = {
            b"content-security-policy": policy.encode(),
            b"x-content-type-options": b"nosniff",
            b"referrer-policy": b"same-origin",
            b"cross-origin-opener-policy": b"same-origin-allow-popups",
        }
        if self._ancestors == "'self'":
            found[b"x-frame-options"] = b"SAMEORIGIN"
        if path in ("", "/") and not COOKIE.search(Headers(scope=scope).get("cookie", "")):
            framed = "SameSite=None; Secure; Partitioned" if scope.get("scheme") == "https" else "SameSite=Lax"
            found[b"set-cookie"] = (
                f"workbench-visitor={secrets.token_urlsafe(16)}; Path=/; HttpOnly; Max-Age=86400; {framed}".encode()
            )
        return {**found, **self._allowing(Headers(scope=scope))}

    def _allowing(self, headers: Headers) -> Mapping[bytes, bytes]:
        """Returns the headers that let a page of another site read the answer, if its origin is allowed."""
        origin = headers.get("origin", "")
        if origin.lower() not in self._origins:
            return {}
        return {
            b"access-control-allow-origin": origin.encode("latin-1"),
            b"access-control-expose-headers": b"retry-after, mcp-session-id",
            b"vary": b"Origin",
        }


def _understood(scope: Scope) -> list[tuple[bytes, bytes]]:
    """Returns the headers without those that Gradio would misunderstand. A server may ignore Range (RFC 9110, 14.2)."""
    files = route_path(scope).startswith(FILES)
    return [
        (name, value)
        for name, value in scope["headers"]
        if name != GRADIO_SERVER and not (files and name == b"range" and not _ONE_RANGE.fullmatch(value))
    ]


def _forwarded_host(headers: Headers) -> str:
    return forwarded_host(headers.get("x-forwarded-host", ""))


def _is_preflight(scope: Scope, headers: Headers) -> bool:
    """Returns whether the request is a CORS preflight (WHATWG Fetch) for a page of another site."""
    return scope.get("method") == "OPTIONS" and "origin" in headers and "access-control-request-method" in headers


async def _answer_preflight(headers: Headers, send: Send, allowing: Mapping[bytes, bytes]) -> None:
    found = {
        **allowing,
        b"access-control-allow-methods": b"GET, POST, DELETE",
        b"access-control-allow-headers": headers.get("access-control-request-headers", "").encode("latin-1"),
        b"access-control-max-age": b"600",
    }
    if headers.get("access-control-request-private-network") == "true":
        found[b"access-control-allow-private-network"] = b"true"
    await send({"type": "http.response.start", "status": 204, "headers": list(found.items())})
    await send({"type": "http.response.body", "body": b""})


def page_policy(nonce: str, ancestors: str = "'self'", scripts: str = "") -> str:
    """Returns the content security policy of the page.

    Gradio makes functions of texts (`unsafe-eval`) and writes styles into elements; scripts in markup, and handlers in
    attributes, run nowhere but in the page's own HTML.
    """
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src 'self' 'nonce-{nonce}'{scripts} 'unsafe-eval' blob:",
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data: blob:",
            "media-src 'self' data: blob:",
            "font-src 'self' data:",
            "connect-src 'self' data: blob:",
            "worker-src 'self' blob:",
            "manifest-src 'self'",
            "frame-src 'self' blob:",
            "form-action 'self'",
            "base-uri 'self'",
            "object-src 'none'",
            f"frame-ancestors {ancestors}",
        )
    )


def script_digests(html: str) -> tuple[str, ...]:
    """Returns the digests of the scripts in a piece of HTML, in the form of a content security policy."""
    found = re.findall(r"<script[^>]*>(.*?)</script>", html, re.DOTALL)
    return tuple(f"sha256-{base64.b64encode(hashlib.sha256(each.encode()).digest()).decode()}" for each in found)


class _Body:
    """The body of a request, whose size and time are limited."""

    def __init__(self, receive: Receive, largest: int):
        self._receive, self._largest = receive, largest
        self._received_bytes, self._complete = 0, False
        self._waited = 0.0  # seconds in which the client could send

    async def __call__(self) -> Message:
        if self._complete:
            return await self._receive()  # when the connection ends
        start = time.monotonic()
        patience = BODY_SECONDS + self._received_bytes / BODY_PACE - self._waited
        try:
            message = await asyncio.wait_for(self._receive(), min(BODY_SECONDS, patience))
        except TimeoutError:
            raise Refusal("the request came too slowly, and was given up", status=408) from None
        self._waited += time.monotonic() - start
        if message["type"] == "http.request":
            self._received_bytes += len(message.get("body", b""))
            if self._received_bytes > self._largest:
                raise _too_large(self._largest)
            self._complete = not message.get("more_body", False)
        return message


class _Answer:
    """The answer with the headers of the middleware; scripts in the page's own HTML get the nonce."""

    def __init__(self, send: Send, headers: Mapping[bytes, bytes], nonce: str):
        self._send, self._headers, self._nonce = send, headers, nonce.encode()
        self._held_messages: list[Message] | None = None
        self.started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            headers = [(name, value) for name, value in message.get("headers", ()) if name.lower() not in self._headers]
            message = {**message, "headers": [*headers, *self._headers.items()]}
            kind = Headers(raw=message["headers"])
            if kind.get("content-type", "").startswith("text/html") and "content-encoding" not in kind:
                self._held_messages = [message]
                return
        if self._held_messages is None:
            await self._send(message)
            return
        self._held_messages.append(message)
        if message.get("more_body"):
            return
        start, body = self._held_messages[0], b"".join(each.get("body", b"") for each in self._held_messages[1:])
        body = _SCRIPT.sub(b'<script nonce="' + self._nonce + b'"', body)
        sized = any(name.lower() == b"content-length" for name, _ in start["headers"])
        headers = [(name, value) for name, value in start["headers"] if name.lower() != b"content-length"]
        length = [(b"content-length", str(len(body)).encode())] if sized and body else []
        self._held_messages = None
        await self._send({**start, "headers": [*headers, *length]})
        await self._send({"type": "http.response.body", "body": body})


def _too_large(limit: int) -> Refusal:
    return Refusal(f"the request has more than {limit >> 20} MB, the most that this server takes", status=413)
