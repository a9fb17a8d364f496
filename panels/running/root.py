"""The root of the page: Gradio's `Blocks` with an example call of each endpoint and with this project's error messages.

Gradio checks a script's values before any function of this project sees them. Its messages about invalid values name
its classes and folders of the server, so they are replaced.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import gradio as gr
from gradio.block_function import BlockFunction
from gradio.components import FormComponent
from gradio.exceptions import InvalidPathError
from gradio.processing_utils import check_all_files_in_cache
from gradio.routes import fastapi  # the framework under Gradio, which is no requirement of its own
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute

from panels.running.error_boundary import page_error
from panels.running.leaving import LeavingQueue
from panels.running.run_store import RunStore, usual_store
from panels.running.scripts import script_routes
from panels.running.sent_results import SentResults
from panels.widgets.timeline import Timelines
from panels.widgets.timeline_routes import timeline_routes
from workbench.core.errors import BadInput
from workbench.serving.admission.guard import Guard
from workbench.serving.service import Service

ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|//")
CALL = "/gradio_api/call/v2/"  # followed by the name of an endpoint

log = logging.getLogger(__name__)


class Page(gr.Blocks):
    """The whole page.

    `examples` has the values of a working call, by the endpoint's name. `routes` are addresses of tabs that the server
    answers itself, before Gradio. `runs` keeps results, so that links show them again. `guard` says what visitors may
    do. `timelines` has the recordings that users look at, in any tab. `service` answers other programs, if the page has
    their routes. `sent` knows the results that were sent as HTML.
    """

    def __init__(self, **settings: Any):
        super().__init__(**settings)
        self.examples: dict[str, Mapping[str, Any]] = {}
        self.timelines = Timelines()
        self.routes: list[BaseRoute] = [*script_routes(), *timeline_routes(self.timelines)]
        self.runs: RunStore = usual_store()
        self.guard = Guard()
        self.service: Service | None = None
        self.sent = SentResults()

    def hide_progress_from_outputs(self) -> None:
        """Sets that events with hidden progress show it on no component.

        Otherwise Gradio's page updates the status of every output of such an event. At each update it searches all
        components for every output that has a status, which took a fifth of the page's start in the browser.
        """
        for event in self.fns.values():
            if event.show_progress == "hidden":
                event.show_progress_on = []

    def queue(self, *args: Any, **settings: Any) -> Page:
        """Calls Gradio's method, with a queue that ends the work of visitors who leave."""
        super().queue(*args, **settings)
        self._queue.__class__ = LeavingQueue
        return self

    async def preprocess_data(
        self, block_fn: BlockFunction, inputs: list[Any], state: Any, explicit_call: bool = False
    ) -> list[Any]:
        """Calls Gradio's method, and replaces the message for a refused value by one sentence of this project."""
        try:
            if len(inputs) < len(block_fn.inputs):
                raise BadInput(
                    f"{_endpoint_name(block_fn)} got {len(inputs)} values; expected "
                    f"{len(block_fn.inputs)}, one for each parameter"
                )
            self.guard.check_values(_from_visitor(inputs, block_fn), f"the request of {_endpoint_name(block_fn)}")
            refuse_addresses(inputs)
            if not all(map(os.path.exists, _paths_of(inputs))):
                raise _not_uploaded(block_fn)
            refuse_wrong_types(inputs, block_fn)
            values = await super().preprocess_data(block_fn, inputs, state, explicit_call)
            return [
                plain_paths(value) if isinstance(place, gr.File) else value
                for value, place in zip(values, block_fn.inputs, strict=True)
            ]
        except BadInput as error:
            raise page_error(error) from None
        except InvalidPathError:
            raise page_error(_not_uploaded(block_fn)) from None
        except gr.Error as error:  # of a component, such as a choice that it does not offer
            raise page_error(BadInput(f"{_endpoint_name(block_fn)} got a wrong value. {error.message:.200}")) from None
        except Exception as error:
            log.info("the values of %s were refused", _endpoint_name(block_fn), exc_info=error)
            raise page_error(
                BadInput(
                    f"{_endpoint_name(block_fn)} got a value that cannot be read; `Use via API` says what it takes"
                )
            ) from None

    async def call_function(
        self,
        block_fn: BlockFunction | int,
        processed_input: list[Any],
        iterator: Any = None,
        requests: Any = None,
        event_id: str | None = None,
        event_data: gr.EventData | None = None,
        *args: Any,
        **settings: Any,
    ) -> Any:
        """Calls Gradio's method. It checks the files that an event names first, as those of the values are.

        A direct call that names no session gets one that nobody can guess, as a call of the queue does. So it neither
        sees nor stops what other such calls do.
        """
        if isinstance(requests, gr.Request) and requests.session_hash is None:
            requests.session_hash = secrets.token_urlsafe(16)
        try:
            if event_data is not None:
                check_all_files_in_cache(event_data._data)
        except (InvalidPathError, gr.Error):
            function = self.fns[block_fn] if isinstance(block_fn, int) else block_fn
            raise page_error(_not_uploaded(function)) from None
        arguments = (block_fn, processed_input, iterator, requests, event_id, event_data, *args)
        return await super().call_function(*arguments, **settings)

    async def postprocess_data(
        self, block_fn: BlockFunction, predictions: list[Any] | dict[Any, Any], state: Any
    ) -> list[Any]:
        """Calls Gradio's method, and remembers the results that a run is stored with."""
        try:
            values = list(await super().postprocess_data(block_fn, predictions, state))
        except gr.Error:  # an event gave back the visitor's own value, with a path in it
            raise page_error(_not_uploaded(block_fn)) from None
        for value, place in zip(values, block_fn.outputs, strict=False):
            self.sent.add(place, value)
        return values


def _from_visitor(inputs: Sequence[Any], function: BlockFunction) -> list[Any]:
    """Returns the values without results as HTML: the page sends back what this server made, to keep it with a run."""
    pairs = zip(inputs, function.inputs, strict=False)
    return ["" if isinstance(place, gr.HTML) and isinstance(value, str) else value for value, place in pairs]


def plain_paths(value: Any) -> Any:
    """Returns the value of a file component with a plain `str` for each path.

    Gradio gives a subclass of `str`. Another process that receives one imports all of Gradio.
    """
    if isinstance(value, str):
        return str(value)
    return [str(each) for each in value] if isinstance(value, list) else value


def refuse_addresses(arguments: Any) -> None:
    """Raises `BadInput` for a file that is given as a URL, because this server fetches nothing for visitors."""
    if any(map(ADDRESS.match, _paths_of(arguments))):
        raise BadInput("a file is given by an address, and none is fetched here; upload its content")


def _paths_of(arguments: Any) -> Iterator[str]:
    """Yields the path of each file among the values, in lists and objects too."""
    waiting = [arguments]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Mapping):
            path = each.get("path")
            if isinstance(path, str) and "meta" in each:
                yield path
            waiting += each.values()
        elif isinstance(each, (list, tuple)):
            waiting += each


def refuse_wrong_types(inputs: Sequence[Any], function: BlockFunction) -> None:
    """Raises `BadInput` for a value that no user can enter into its component, such as a list for a number."""
    for value, place in zip(inputs, function.inputs, strict=False):
        if value is not None and isinstance(place, FormComponent) and not _can_be_entered(value, place):
            expected = _EXPECTED.get(str(place.api_info().get("type")), "texts")
            raise BadInput(f"{_endpoint_name(function)} got a wrong value, {value!r:.60}; expected {expected}")


_EXPECTED = {"boolean": "true or false", "number": "a number", "integer": "a whole number", "string": "a text"}


def _can_be_entered(value: Any, place: FormComponent) -> bool:
    kind = place.api_info().get("type")
    if kind == "boolean":
        return isinstance(value, bool)
    if kind in ("string", "number", "integer") and isinstance(value, (list, dict)):
        return False
    if isinstance(place, gr.Dropdown) and place.allow_custom_value:  # then Gradio takes any value
        choices = [choice for _, choice in place.choices]
        return all(isinstance(each, str) or each in choices for each in (value if isinstance(value, list) else [value]))
    return True


def _not_uploaded(function: BlockFunction) -> BadInput:
    if function.api_visibility != "public":  # a page that has been open for long names files that are gone
        return BadInput(
            "the server no longer has a file that is chosen here: it has started again, or removed old files; "
            "take the file out and choose it again"
        )
    return BadInput(f"{_endpoint_name(function)} got a file that was not uploaded to this page; upload it first")


def _endpoint_name(function: BlockFunction) -> str:
    return f"/{function.api_name}" if function.api_visibility == "public" else "the page"


async def refuse_call(request: Request, error: Exception) -> JSONResponse:
    """Returns the answer to an HTTP call of an unknown endpoint or with unknown parameters, on which Gradio fails."""
    _, call, name = request.url.path.rstrip("/").rpartition(CALL)
    if not call or "/" in name:
        raise error
    endpoints = request.app.get_blocks().get_api_info()["named_endpoints"]
    if f"/{name}" not in endpoints:
        sentence = f"there is no endpoint /{name:.40}; the endpoints are {', '.join(endpoints)}"
        return JSONResponse({"error": sentence}, 404)
    parameters = endpoints[f"/{name}"]["parameters"]
    required = [each["parameter_name"] for each in parameters if not each["parameter_has_default"]]
    optional = [each["parameter_name"] for each in parameters if each["parameter_has_default"]]
    sentence = (
        f"the parameters of /{name} are {', '.join([*required, *optional]) or 'none'}; required: "
        f"{', '.join(required) or 'none'}; a required one is missing, or an unknown one was given"
    )
    return JSONResponse({"error": sentence}, 422)


async def refuse_name(request: Request, error: Exception) -> JSONResponse:
    """Returns the answer to an HTTP request for a file whose name is too long for the system, on which Gradio fails."""
    if not isinstance(error, OSError) or error.errno != errno.ENAMETOOLONG:
        raise error
    return JSONResponse({"error": f"there is no {request.url.path!r:.60} here"}, 404)


async def refuse_fields(request: Request, error: Exception) -> JSONResponse:
    """Returns the answer to a request whose body or query lacks a field. FastAPI's own would repeat the whole body, and
    fail for one that is not text.
    """
    if not isinstance(error, fastapi.exceptions.RequestValidationError):
        raise error
    first = error.errors()[0]
    place, fault = ".".join(str(part) for part in first["loc"][1:]) or "the body of the request", str(first["msg"])
    sentence = f"{place:.80} is not as this address expects it: {fault[:1].lower()}{fault[1:200]}"
    return JSONResponse({"error": sentence, "detail": sentence}, 422)


HANDLERS = {
    fastapi.exceptions.RequestValidationError: refuse_fields,
    TypeError: refuse_call,
    KeyError: refuse_call,
    OSError: refuse_name,
}
