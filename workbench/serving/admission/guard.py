"""The rules for visitors of a server: mode, limits, queue and rates. The page, the routes and MCP ask here.

    guard = pool.guard
    guard.public                        whether visitors are strangers
    guard.owners("unloading a model")   raises `Refused` in public mode
    guard.check_card(card)              raises `Refused` for a model that is not open to visitors
    guard.check_settings(settings)      raises `Refused` for settings of a session in public mode
    with guard.telling(): ...           in public mode, takes folders of the server out of errors
    guard.separate_process()            returns a caller of functions on large arrays, in a process with a memory limit
    guard.draw(function, ...)           calls a function that draws large arrays in a process with a memory limit
    guard.arrived(visitor)              raises `Busy` if a visitor sends too many requests
    with visited_by(visitor): ...       (workbench.core.visitors) says for whom the calls of sessions within are made

A session from a `SessionPool` checks each of its calls by itself (`admitted`): its options and texts. It also takes a
place in the queue and a deadline. So no route has to do that.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
import zipfile
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from workbench.core.errors import BadInput, Busy, Refused, WorkbenchError
from workbench.core.options import OptionSpec
from workbench.core.visitors import Visitor, Work, current_work, seconds_in_words, working
from workbench.serving.admission.call_queue import CallQueue
from workbench.serving.admission.discretion import discreet, for_visitors
from workbench.serving.admission.limits import LOCAL as LOCAL_LIMITS
from workbench.serving.admission.limits import PUBLIC as PUBLIC_LIMITS
from workbench.serving.admission.limits import Limits
from workbench.serving.admission.mode import LOCAL, PUBLIC
from workbench.serving.child_processes.drawing import Drawing
from workbench.serving.child_processes.separate_process import SeparateProcess

if TYPE_CHECKING:
    from workbench.registry.cards import Card


class _OfCard(Protocol):
    @property
    def card(self) -> Card: ...


Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Offered = TypeVar("Offered", bound=_OfCard)
MAX_KNOWN = 10_000  # visitors whose requests are counted
MINUTE, HOUR = 60.0, 3600.0
MIN_GB = 1.0  # of memory, for a process that compares or draws
# Options that cost memory or time, with the limit that holds for each.
BOUNDED = {
    "max_new_tokens": "new_tokens",
    "min_new_tokens": "new_tokens",
    "max_tokens": "new_tokens",
    "beam_size": "beams",
    "nbest": "beams",
}
STANDING = ("demo", "directory", "gguf")  # kinds of models whose files the owner has put on this machine


class Guard:
    """The rules of one server.

    Args:
        mode: `local` or `public`.
        limits: by default those of the mode.
    """

    def __init__(self, mode: str = LOCAL, limits: Limits | None = None):
        self.mode = mode
        self.limits = limits or (PUBLIC_LIMITS if mode == PUBLIC else LOCAL_LIMITS)
        self.places: Callable[[], Iterable[str]] = tuple  # of files and servers of models, which visitors may not see
        self.queue = CallQueue(self.limits)
        self._process_gb = max(self.limits.process_gb, MIN_GB) if self.public else 0.0
        self._comparing = threading.Lock()
        self.drawing = Drawing(self._process_gb)
        self._requests = Rate(self.limits.requests_per_minute, MINUTE, "requests", self.limits.per_address)
        self._uploads = Rate(self.limits.uploads_per_hour, HOUR, "uploads", self.limits.per_address)

    @property
    def public(self) -> bool:
        """Whether visitors are strangers."""
        return self.mode == PUBLIC

    def told(self, text: str) -> str:
        """Returns a text as visitors may read it: in public mode, without folders of this server and addresses of
        models.
        """
        return discreet(text, self.places()) if self.public else text

    def told_error(self, error: WorkbenchError) -> WorkbenchError:
        """Returns an error with a sentence as visitors may read it."""
        return for_visitors(error, self.places()) if self.public else error

    @contextlib.contextmanager
    def telling(self) -> Iterator[None]:
        """Raises errors of the block as `told_error` returns them."""
        try:
            yield
        except WorkbenchError as error:
            told = self.told_error(error)
            if told is error:
                raise
            raise told from error

    def owners(self, subject: str) -> None:
        """Raises `Refused` in public mode; the sentence begins with `subject`, such as "unloading a model"."""
        if self.public:
            raise Refused(f"{subject} is for the owner of this page; it is open to visitors and shared by all of them")

    def check_card(self, card: Card) -> None:
        """Raises `Refused` in public mode for a model that visitors may not open.

        Visitors may open models whose files the owner has put on this machine, models on a server that the owner has
        named, and models of a hub whose card says `visitors = true`.
        """
        if self.public and not open_to_visitors(card):
            raise Refused(
                f"{card.id} is not open to visitors, as it would be downloaded; the owner opens it with "
                "`visitors = true` in its card"
            )

    def open_offers(self, offers: Iterable[Offered]) -> tuple[Offered, ...]:
        """Returns those of the offers that visitors may use."""
        return tuple(each for each in offers if not self.public or open_to_visitors(each.card))

    def check_settings(self, settings: Mapping[str, Any]) -> None:
        """Raises `Refused` in public mode for settings of sessions and engines, which are shared by all."""
        if self.public and settings:
            raise Refused(
                f"{', '.join(settings)} cannot be set here: the settings of models are for the owner of this page"
            )

    def check_values(self, value: Any, name: str) -> None:
        """Raises `BadInput` for a value with texts that are too long, or that is nested too deeply."""
        size, depth = extent(value, self.limits.json_depth)
        if depth > self.limits.json_depth:
            raise BadInput(f"{name} is nested too deeply; expected at most {self.limits.json_depth} levels")
        if size > self.limits.text_kb << 10:
            raise BadInput(f"{name} has {size >> 10} kB of text; expected at most {self.limits.text_kb} kB")

    def bounded(self, spec: OptionSpec) -> OptionSpec:
        """Returns an option with the largest number that `check_options` accepts, for a help text."""
        limit = BOUNDED.get(spec.name)
        if limit is None:
            return spec
        return replace(
            spec, maximum=min(getattr(self.limits, limit), math.inf if spec.maximum is None else spec.maximum)
        )

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Raises `BadInput` for options beyond the limits of this server."""
        for name, limit in BOUNDED.items():
            limit_value, value = getattr(self.limits, limit), options.get(name)
            if isinstance(value, (int, float)) and value > limit_value:
                raise BadInput(f"option {name} is {value}; expected at most {limit_value} on this server")
        for name, value in options.items():
            self.check_values(value, f"option {name:.40}")

    def check_arrays(self, paths: Iterable[str | Path]) -> None:
        """Raises `BadInput` for an archive (.npz, .zip) whose declared unpacked size is over the limit.

        The code that unpacks it reads no more than that size.
        """
        for path in map(Path, paths):
            with contextlib.suppress(OSError, zipfile.BadZipFile, ValueError):  # who reads it says what is wrong
                if not zipfile.is_zipfile(path):
                    continue
                with zipfile.ZipFile(path) as archive:
                    size = sum(each.file_size for each in archive.infolist())
                if size > self.limits.arrays_mb << 20:
                    raise BadInput(
                        f"{path.name} unpacks into {size >> 20} MB; expected at most {self.limits.arrays_mb} MB here"
                    )

    def separate_process(self) -> SeparateProcess:
        """Returns a caller of functions with a process of its own, which has a memory limit in public mode.

        The processes of one server compute one at a time.
        """
        return SeparateProcess(self._comparing, self._process_gb)

    def draw(
        self, function: Callable[Parameters, Result], /, *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        """Returns the result of a function that draws large arrays.

        The process that draws has a memory limit in public mode.

        Waits in the queue, and raises what `turn` and `SeparateProcess` raise.
        """
        with self.turn("picture"):
            return self.drawing(function, *args, **kwargs)

    def arrived(self, visitor: Visitor, upload: bool = False) -> None:
        """Counts a request, or an upload; raises `Busy` if the visitor, or the address, sends too many."""
        (self._uploads if upload else self._requests).count(visitor)

    @contextlib.contextmanager
    def turn(self, kind: str, alone: bool = True) -> Iterator[Work]:
        """Waits in the queue for work that is not a call of one model, such as a comparison, and sets its
        deadline. Work of a kind that is `alone` is done one at a time.
        """
        work = current_work() or Work()
        limited = replace(_until(work, 60 * self.limits.run_minutes), tell=self.told_error)
        with self.queue.turn(work, kind, alone), self.telling(), working(limited):
            yield limited

    @contextlib.contextmanager
    def admitted(
        self, resource: Hashable, alone: bool, options: Mapping[str, Any], texts: Sequence[Any] = ()
    ) -> Iterator[Work]:
        """Entered around one call of a model: checks what it takes, waits for its turn, and sets its deadline.

        Raises `BadInput`, `Busy`, and what `Work.check` raises.
        """
        self.check_options(options)
        for text in texts:
            if isinstance(text, (str, list, tuple)):
                self.check_values(text, "the text")
        work = current_work() or Work()
        with self.queue.turn(work, resource, alone) as turn, self.telling():
            yield _until(replace(work, turn=turn, tell=self.told_error), 60 * self.limits.run_minutes)


def _until(work: Work, seconds: float) -> Work:
    deadline = time.monotonic() + seconds
    if work.deadline is not None and work.deadline <= deadline:
        return work
    return replace(work, deadline=deadline, allowed_seconds=seconds)


def open_to_visitors(card: Card) -> bool:
    """Returns whether visitors of a public server may use the model of this card."""
    return card.kind in STANDING or card.kind == "server" or card.visitors


def extent(content: Any, deepest: int) -> tuple[int, int]:
    """Returns the length of all texts in a value of JSON, in bytes, and how deep its lists and objects are nested.

    It does not count the recordings in a conversation, because the size of a request and the length of audio have
    limits of their own. It stops one level below `deepest`.
    """
    size, depth, level = 0, 0, [content]
    while level and depth <= deepest:
        pending: list[Any] = []
        for each in level:
            if isinstance(each, str):
                size += len(each) if each.isascii() else len(each.encode("utf-8", "replace"))
            elif isinstance(each, Mapping):
                pending += each.keys()
                pending += [_without_sound(value) if name == "input_audio" else value for name, value in each.items()]
            elif isinstance(each, (list, tuple)):
                pending += each
        depth += bool(pending) or any(isinstance(each, (Mapping, list, tuple)) for each in level)
        level = pending
    return size, depth


def _without_sound(part: Any) -> Any:
    """Returns the part `input_audio` of a message without its recording in base64."""
    return {name: value for name, value in part.items() if name != "data"} if isinstance(part, Mapping) else part


class Rate:
    """A limit of requests: `most` of a visitor within `seconds`, and `per_address` times as many of an address."""

    def __init__(self, limit: int, seconds: float, unit: str, per_address: int):
        self._limit, self._seconds, self._unit, self._per_address = limit, seconds, unit, per_address
        self._times: OrderedDict[Hashable, deque[float]] = OrderedDict()
        self._lock = threading.Lock()

    def count(self, visitor: Visitor) -> None:
        """Counts one; raises `Busy` if it is one too many, which then does not count.

        The address comes first: whoever invents a session for each request must not fill the memory with them.
        """
        now = time.monotonic()
        with self._lock:
            counted = []
            sources = (("address", visitor.address, self._limit * self._per_address), ("visitor", visitor, self._limit))
            for source, key, limit in sources:
                times = self._times.setdefault(key, deque())
                self._times.move_to_end(key)
                while times and times[0] <= now - self._seconds:
                    times.popleft()
                if len(times) >= limit:
                    wait = times[0] + self._seconds - now
                    raise Busy(
                        f"this server takes {limit} {self._unit} of one {source} in {seconds_in_words(self._seconds)}, "
                        f"and there were as many; try again in {seconds_in_words(max(wait, 1.0))}",
                        wait,
                    )
                counted.append(times)
            for times in counted:
                times.append(now)
            while len(self._times) > MAX_KNOWN:
                self._times.popitem(last=False)
