"""Common parts of all routes of a server: the sessions, the gate, the figures, and the answers to errors.

Errors have OpenAI's form and a fitting status: 400 for a bad request, 404 for an unknown model or route, 405, 413, 415,
429, 503 for a runtime that is not available, and 500 for a fault, whose traceback goes only to the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from workbench.core.errors import BadInput, Cancelled, Unavailable, WorkbenchError
from workbench.core.progress import listening
from workbench.openai_api.errors import Refusal, error_answer
from workbench.openai_api.kept_answers import KeptAnswers
from workbench.registry.handle import OpenSession
from workbench.serving.admission.gate import Gate
from workbench.serving.figures import Figures
from workbench.serving.kept_files import known_error
from workbench.serving.offers import SEPARATOR, ModelOnRuntime, RuntimeOffer, chosen_offers, offers
from workbench.serving.routes.request_work import CLIENT_CLOSED_REQUEST, ClientGone
from workbench.serving.sessions import SessionPool
from workbench.serving.work import follower, opened

FAULT = "an error occurred inside the workbench; the log of the server has the details"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
KNOWN_SECONDS = 5.0  # how long what can run is remembered

log = logging.getLogger(__name__)
Answer = Callable[["Call"], Awaitable[Any]]
OnActivity = Callable[[str], None]


def ignore_activity(activity: str) -> None:
    """Ignores the progress of a load or a wait."""


class Service:
    """The models of a registry as a server offers them.

    Args:
        pool: the sessions, which the page may share.
        gate: limits the work at a time.
    """

    def __init__(self, pool: SessionPool, gate: Gate | None = None):
        self.pool = pool
        self.gate = gate or Gate(pool.guard.limits)
        self.kept_answers = KeptAnswers()
        self.figures = Figures(pool)
        self.started = int(time.time())
        self._offers: dict[str, tuple[float, tuple[RuntimeOffer, ...]]] = {}

    def offers(self, task: str) -> tuple[RuntimeOffer, ...]:
        """Returns the models for a task, each on every runtime where it can run."""
        return tuple(offer for offer in self._known(task) if offer.possible)

    def _known(self, task: str) -> tuple[RuntimeOffer, ...]:
        """Returns all offers for a task, remembered for a moment, because finding them reads many files."""
        found, now = self._offers.get(task), time.monotonic()
        if found is None or now - found[0] > KNOWN_SECONDS:
            found = self._offers[task] = (now, self.pool.guard.open_offers(offers(self.pool.registry, task)))
        return found[1]

    def offer(self, name: Any, task: str, fits: Callable[[RuntimeOffer], bool] = lambda offer: True) -> RuntimeOffer:
        """Returns the model of a request, which may name its runtime and quantisation: `demo/sensevoice|gguf|q8_0`.

        Args:
            fits: whether the refusal of an unknown model names this one; by default it names all for the task.

        Raises `Refusal` for one that this server does not have, or that cannot run.
        """
        if not isinstance(name, str) or not name.strip():
            raise Refusal("model is missing; /v1/models lists them", "model", "missing_required_parameter")
        registry = self.pool.registry
        cell = ModelOnRuntime.parse(name)
        if SEPARATOR not in name:
            card = next((each for each in registry.cards() if each.id == cell.model), None)
            cell = cell if card is None else ModelOnRuntime(card.id, registry.default_runtime(card))
        known = self._known(task)
        if not any((each.cell.model, each.cell.runtime) == (cell.model, cell.runtime) for each in known):
            names = ", ".join(dict.fromkeys(each.cell.model for each in known if each.possible and fits(each)))
            raise Refusal(
                f"the server has no model {name!r:.80} for this route; it has {names or 'none'}",
                "model",
                "model_not_found",
                status=404,
            )
        try:
            return chosen_offers([cell.value], known)[0]
        except BadInput as error:
            raise Refusal(str(error), "model", "model_not_found", status=404) from None

    def open(
        self, offer: RuntimeOffer, stop: threading.Event, on_activity: OnActivity = ignore_activity
    ) -> OpenSession:
        """Returns the session of a model, opened if needed. Setting `stop` ends the wait."""
        return opened(self.pool, offer.cell, stop, on_activity)

    def waiting(
        self, stop: threading.Event, on_activity: OnActivity = ignore_activity
    ) -> contextlib.AbstractContextManager[None]:
        """Ends the waits of this thread for a busy model when `stop` is set; `on_activity` receives their progress."""
        return listening(follower(stop, on_activity))


class Call:
    """One request to a route, with the values that are counted."""

    def __init__(self, service: Service, request: Request, kind: str):
        self.service, self.request, self.kind = service, request, kind
        self.model = ""  # of the registry, once it is known
        self.seconds = 0.0  # of audio
        self._started_at = time.perf_counter()
        self._resources = contextlib.ExitStack()
        self.lasts = False  # whether the answer is not complete when the route returns

    async def choose(
        self, name: Any, task: str, fits: Callable[[RuntimeOffer], bool] = lambda offer: True
    ) -> RuntimeOffer:
        """Returns the model that the request names; see `Service.offer`."""
        offer = await asyncio.to_thread(self.service.offer, name, task, fits)
        self.model = offer.cell.value
        return offer

    def begin(self) -> None:
        """Takes a slot for the work, until the answer is complete."""
        self._resources.enter_context(self.service.gate.working())
        self._resources.enter_context(self.service.figures.running(self.kind))

    def last(self) -> None:
        """Declares that the answer is not complete when the route returns; the code that completes it calls `end`."""
        self.lasts = True

    def end(self, status: int) -> None:
        """Frees the slot, and counts the request."""
        self._resources.close()
        self.service.figures.answered(
            self.kind, self.model, status, time.perf_counter() - self._started_at, self.seconds
        )

    def returned(self, status: int) -> None:
        """Ends the call when the route returns, unless the answer is not complete yet."""
        if not self.lasts:
            self.end(status)


def route(service: Service, path: str, methods: str, kind: str, answer: Answer) -> Route:
    """Returns a route. Other methods than `methods` (one, or several with commas) are refused in OpenAI's form."""
    allowed = methods.split(",")

    async def endpoint(request: Request) -> Any:
        call = Call(service, request, kind)
        try:
            if request.method not in allowed:
                raise Refusal(f"{request.url.path:.80} takes {methods}, not {request.method:.20}", status=405)
            response = await answer(call)
        except (ClientGone, ClientDisconnect):
            response = Response(status_code=CLIENT_CLOSED_REQUEST)
        except Exception as error:
            response = error_response(error)
            if response.status_code == 405:
                response.headers["allow"] = methods
        call.returned(response.status_code)
        return response

    return Route(path, endpoint, methods=METHODS, name=f"serving {kind}")


def error_reply(error: BaseException) -> tuple[int, Mapping[str, Any]]:
    """Returns (status, body) for an error; logs unexpected errors."""
    error = known_error(error)
    if isinstance(error, Cancelled):
        return error_answer(Unavailable(f"the work was stopped before its end: {error}"))
    if isinstance(error, WorkbenchError):
        return error_answer(error)
    log.error("a request failed in an unexpected way", exc_info=error)
    return error_answer(WorkbenchError(FAULT))


def error_response(error: BaseException) -> JSONResponse:
    """Returns the answer to a request that failed."""
    status, body = error_reply(error)
    seconds = max(1, round(getattr(error, "retry_seconds", 2.0)))
    headers = {"retry-after": str(seconds)} if status in (429, 503) else None
    return JSONResponse(body, status, headers)
