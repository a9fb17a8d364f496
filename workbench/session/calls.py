"""The table of the calls that sessions may have.

A capability is a protocol of `workbench.session.protocols` and one entry in `CAPABILITIES`. Proxies read this table to
carry a call to another process, and handles read it to carry a call to a session. This file calls no model.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_origin, get_type_hints

from workbench.core.errors import BadInput
from workbench.embeddings.prompt import read_embeddings
from workbench.session.messages import check_messages
from workbench.session.protocols import (
    Converses,
    Detects,
    FindsNeighbours,
    Generates,
    NamesTokens,
    ScoresTexts,
    Traces,
    Transcribes,
    checked_ids,
    checked_recording,
    checked_recordings,
    checked_texts,
)
from workbench.session.values import CONVERSATION, RECORDING, AudioSource
from workbench.trace.write import discard_partial, trace_place

Kind = TypeVar("Kind", bound=type[Any])


@dataclass(frozen=True)
class Capability:
    """An ability that some sessions have."""

    protocol: type[Any]
    calls: tuple[str, ...]  # methods of the protocol that sessions define; its other methods only use these
    activity: str  # the activity while a call runs, for messages
    predicate: str  # the predicate after a model's name, in messages about another capability
    missing_message: str  # for a model without it: {model} is its id, {does} what it does instead

    def held_by(self, session: object) -> bool:
        """Returns whether a session has all the calls."""
        return all(hasattr(session, name) for name in self.calls)


CAPABILITIES = (  # messages name the first one that a session has
    Capability(
        Detects, ("detect",), "finding speech", "finds speech", "{model} {does}; to find speech, open an FSMN-VAD"
    ),
    Capability(
        Transcribes,
        ("stream", "stream_batch"),
        "transcribing",
        "transcribes speech",
        "{model} {does}; to transcribe, open a speech model",
    ),
    Capability(
        Generates,
        ("generate_stream",),
        "generating",
        "writes text",
        "{model} {does}; to generate from text, open a language model",
    ),
    Capability(
        Converses,
        ("converse_stream",),
        "answering",
        "answers conversations",
        "{model} {does}; to chat, open a language model or a model that speaks",
    ),
    Capability(
        Traces, ("trace",), "tracing", "shows its stages", "{model} {does} and shows no stages; open another model"
    ),
    Capability(
        FindsNeighbours,
        ("neighbours", "token_embeddings"),
        "looking up tokens",
        "has a table of embeddings",
        "{model} is not a language model; open one to see its tokens near an embedding",
    ),
    Capability(
        NamesTokens,
        ("token_texts",),
        "looking up tokens",
        "writes tokens",
        "{model} {does} and shows no token texts; open another model",
    ),
    Capability(
        ScoresTexts,
        ("score_texts",),
        "scoring texts",
        "scores texts",
        "{model} {does} and cannot score texts; open a language model on this machine",
    ),
)


@dataclass(frozen=True)
class Call:
    """One method of a session that proxies carry to another process."""

    name: str
    capability: Capability

    @property
    def function(self) -> Callable[..., Any]:
        """The method as the protocol declares it."""
        function: Callable[..., Any] = getattr(self.capability.protocol, self.name)
        return function

    @functools.cached_property
    def streams(self) -> bool:
        """Whether the call yields events one by one; otherwise it returns one result."""
        return get_origin(get_type_hints(self.function)["return"]) is Generator

    @property
    def has_segments(self) -> bool:
        """Whether other calls may run between two of its segments, which it announces with `Progress`."""
        return self.streams and self.capability.protocol is Transcribes

    def prepared(
        self, arguments: tuple[Any, ...], options: Mapping[str, Any], source: str = RECORDING
    ) -> inspect.BoundArguments:
        """Returns the arguments for another process: with absolute paths, and with embeddings read from their files.

        Args:
            source: what the model traces (see `workbench.session.values.INPUTS`).

        Raises `BadInput` for an argument that cannot be used.
        """
        bound = inspect.signature(self.function).bind(None, *arguments, **options)
        bound.apply_defaults()
        for name, prepare in PREPARE.items():
            if name in bound.arguments:
                bound.arguments[name] = prepare(bound.arguments[name])
        if "source" in bound.arguments and source in SOURCES:
            bound.arguments["source"] = SOURCES[source](bound.arguments["source"])
        if not bound.arguments.get("steps") and bound.arguments.get("follow") is None:
            for name in ("steps", "follow"):  # models that take no steps do not know the names
                bound.arguments.pop(name, None)
        for mapping in (bound.arguments, bound.arguments.get("options", {})):
            if "embeddings" in mapping and not _replace_embeddings(mapping):
                del mapping["embeddings"]  # models that take none do not know the name
        return bound

    def clean_up(self, prepared: inspect.BoundArguments) -> None:
        """Removes the unfinished file of a failed call, because its process may have ended without removing it."""
        if prepared.arguments.get("out") is not None:
            discard_partial(prepared.arguments["out"])


CALLS: Mapping[str, Call] = {name: Call(name, capability) for capability in CAPABILITIES for name in capability.calls}


def with_calls(kind: Kind) -> Kind:
    """Adds every call of the table to a class, and the protocols' methods that use these calls.

    A call becomes `self._make_call(call, arguments, options)`. Methods that the class defines itself stay.
    """
    for capability in CAPABILITIES:
        for name, function in vars(capability.protocol).items():
            if name.startswith("_") or not inspect.isfunction(function) or name in vars(kind):
                continue
            setattr(kind, name, _call_method(CALLS[name]) if name in CALLS else function)
    return kind


def _call_method(call: Call) -> Callable[..., Any]:
    @functools.wraps(call.function)
    def method(self: Any, /, *arguments: Any, **options: Any) -> Any:
        return self._make_call(call, arguments, options)

    return method


def call_of(session: Any, name: str) -> Callable[..., Any]:
    """Returns a session's method; if it has none, raises `BadInput` that says what the model does instead."""
    method: Callable[..., Any] | None = getattr(session, name, None)
    if method is None:
        does = next((each.predicate for each in CAPABILITIES if each.held_by(session)), "does something else")
        raise BadInput(CALLS[name].capability.missing_message.format(model=session.model, does=does))
    return method


def _absolute_path(audio: AudioSource) -> AudioSource:
    """Returns paths as absolute strings, because another process may have another working folder.

    An empty one stays empty, for the code that reads it to refuse it: it would become the working folder.
    """
    return str(Path(audio).absolute()) if isinstance(audio, (str, os.PathLike)) and audio != "" else audio


def _recording(audio: Any) -> AudioSource:
    return _absolute_path(checked_recording(audio))


def _recordings(audios: Any) -> list[AudioSource]:
    return [_absolute_path(audio) for audio in checked_recordings(audios)]


def _replace_embeddings(mapping: dict[str, Any]) -> bool:
    """Replaces embeddings, which may be files, by arrays; returns whether the call has any."""
    mapping["embeddings"] = read_embeddings(mapping["embeddings"])
    return bool(mapping["embeddings"])


def _place(out: Any) -> Path | None:
    return None if out is None else trace_place(out)


PREPARE: Mapping[str, Callable[[Any], Any]] = {
    "audio": _recording,
    "audios": _recordings,
    "messages": check_messages,
    "texts": checked_texts,
    "ids": checked_ids,
    "given": _absolute_path,
    "follow": _absolute_path,
    "out": _place,
}
"""The functions that prepare arguments, by the argument names of the protocols."""

SOURCES: Mapping[str, Callable[[Any], Any]] = {RECORDING: _recording, CONVERSATION: check_messages}
"""The functions that prepare what a model traces, by its family's input. A prompt is sent as it is."""
