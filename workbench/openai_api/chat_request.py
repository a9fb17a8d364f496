"""Reads a request for a chat completion: its messages, its options, and the form of the answer.

A field that OpenAI's API has and a model here cannot follow is refused by name, so that nothing is silently left out.
Options that OpenAI has no field for are fields of their own, by their names in `workbench options MODEL`. Messages may
have texts and recordings inside the request, and never paths: a server reads no file for its clients.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workbench.core.options import MODALITIES
from workbench.openai_api.errors import Refusal
from workbench.openai_api.kept_answers import KeptAnswers
from workbench.openai_api.sound_formats import PCM, WAV, check_format

LEAVE_OUT = "leave it out"
# Fields whose values are refused, but for those that change nothing: these values, and why others cannot be followed.
UNFOLLOWED: Mapping[str, tuple[Sequence[Any], str]] = {
    "n": ((1,), "a request has one answer; send several requests"),
    "logprobs": ((False,), "this model's chats have no log-probabilities"),
    "top_logprobs": ((0,), "this model's chats have no log-probabilities"),
    "top_p": ((1,), "this model draws by temperature and top-k alone; set text_top_k and audio_top_k"),
    "frequency_penalty": ((0,), "this model has no penalties"),
    "presence_penalty": ((0,), "this model has no penalties"),
    "logit_bias": (({},), "this model takes no biases"),
    "stop": (([], ""), "this model ends an answer by itself"),
    "tools": (([],), "this model calls no tools"),
    "tool_choice": (("none", "auto"), "this model calls no tools"),
    "functions": (([],), "this model calls no functions"),
    "function_call": (("none", "auto"), "this model calls no functions"),
    "response_format": (({"type": "text"},), "this model writes free text"),
    "reasoning_effort": (("none",), "this model has no such setting"),
    "verbosity": (("medium",), "this model has no such setting"),
    "prediction": ((), "this model takes no prediction"),
    "web_search_options": ((), "this model searches nothing"),
    "store": ((False,), "this server stores no chats"),
}
# Fields that say something about the caller and nothing about the answer.
ABOUT_THE_CALLER = (
    "user",
    "metadata",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "parallel_tool_calls",
)
OWN_FIELDS = (
    "model",
    "messages",
    "modalities",
    "audio",
    "stream",
    "stream_options",
    "temperature",
    "seed",
    "max_completion_tokens",
    "max_tokens",
    "return_token_ids",
)
FollowedField = Callable[[Any, str], Any]
"""Reads the value of a field, whose name is given too; raises `Refusal`."""
MESSAGE_FIELDS = ("role", "content", "name", "audio")  # the name says something about the caller alone
ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


@dataclass(frozen=True, eq=False)
class ChatRequest:
    """A request with a valid form; the values of options are checked later."""

    model: str
    messages: Sequence[Mapping[str, Any]]  # as `workbench.session.messages` takes them
    options: Mapping[str, Any]  # of the model, by name; those that the request sets
    format: str = WAV  # of the audio
    stream: bool = False
    include_usage: bool = False  # a stream ends with the usage
    token_ids: bool = False  # the answer has all its ids, those of the codec streams too
    notes: tuple[str, ...] = ()  # what the client should know about how the request was read
    extensions: Mapping[str, Any] = field(default_factory=dict)  # the fields that this server alone follows

    @property
    def modalities(self) -> str:
        """The modalities of the answer, one of `workbench.core.options.MODALITIES`."""
        return str(self.options["modalities"])

    @property
    def wants_speech(self) -> bool:
        """Whether the request asks for speech: then the text is the transcript of the speech."""
        return self.modalities in ("audio", "text_audio")


def read_chat_request(
    body: Any,
    models: Sequence[str],
    options: Collection[str],
    answers: KeptAnswers,
    followed: Mapping[str, FollowedField] | None = None,
    parts: Sequence[str] = ("text", "input_audio"),
) -> ChatRequest:
    """Returns the request in a body of JSON.

    Args:
        models: the names of the server's models; a request without a name means the first one.
        options: the names of the model's options.
        answers: the server's earlier answers.
        followed: fields that this server follows for this model although others do not, each with a function that
            reads its value. What they return is in the request's `extensions`, by name.
        parts: the types of parts that the model takes, for the refusal of another type.

    Raises `Refusal` for anything that cannot be followed. The values of options are not checked here.
    """
    if not isinstance(body, Mapping):
        raise Refusal("the request is not a JSON object; expected model and messages by name")
    fields = {name: value for name, value in body.items() if value is not None}
    model = _model(fields, models)
    followed = followed or {}
    extensions = {name: read(fields[name], name) for name, read in followed.items() if name in fields}
    _check_fields({name: value for name, value in fields.items() if name not in followed}, options)
    stream = read_flag(fields, "stream")
    audio = _mapping(fields, "audio", ("voice", "format"))
    modalities = _modalities(fields.get("modalities", ["text"]))
    chosen = {name: fields[name] for name in options if name in fields}
    limit = "max_new_tokens" if "max_new_tokens" in options else "max_tokens"
    chosen |= {"modalities": modalities, **_limit(fields, limit)}
    sound = check_format(audio.get("format") or (PCM if stream else WAV), "audio.format")
    if stream and sound != PCM and modalities != "text":
        raise Refusal(f"audio.format is {sound}, and streamed audio is {PCM}; set it to {PCM}", "audio.format")
    notes = []
    if modalities != "text" and audio.get("voice") not in (None, "default"):
        notes.append(f"the model has one voice, so the voice {audio['voice']!r:.80} was not used")
    return ChatRequest(
        model=model,
        messages=_messages(fields.get("messages"), answers, parts),
        options=chosen,
        format=sound,
        stream=stream,
        include_usage=read_include_usage(fields, stream),
        token_ids=read_flag(fields, "return_token_ids"),
        notes=tuple(notes),
        extensions=extensions,
    )


def _model(fields: Mapping[str, Any], models: Sequence[str]) -> str:
    name = fields.get("model", models[0])
    if name not in models:
        raise Refusal(
            f"the server has no model {name!r:.80}; it has {', '.join(models)}", "model", "model_not_found", status=404
        )
    return str(name)


def _check_fields(fields: Mapping[str, Any], options: Collection[str]) -> None:
    known_names = {*OWN_FIELDS, *UNFOLLOWED, *ABOUT_THE_CALLER, *options}
    for name, value in fields.items():
        if name not in known_names:
            raise unknown_field(str(name), known_names)
        if name in UNFOLLOWED and name not in options:
            harmless, why = UNFOLLOWED[name]
            if not any(value == each and isinstance(value, bool) == isinstance(each, bool) for each in harmless):
                raise Refusal(f"{name} is {value!r:.80}, and {why}", name, "unsupported_value")


def read_flag(fields: Mapping[str, Any], name: str) -> bool:
    """Returns a field that is true or false, by default false; raises `Refusal` for anything else."""
    value = fields.get(name, False)
    if not isinstance(value, bool):
        raise Refusal(f"{name} is {value!r:.80}; expected true or false", name, "invalid_type")
    return value


def _mapping(fields: Mapping[str, Any], name: str, keys: Sequence[str]) -> Mapping[str, Any]:
    value = fields.get(name, {})
    if not isinstance(value, Mapping):
        raise Refusal(f"{name} is {value!r:.80}; expected an object with {' and '.join(keys)}", name, "invalid_type")
    for key in value:
        if key not in keys:
            raise Refusal(f"{name} has the unknown key {key!s:.80}; expected {' and '.join(keys)}", name)
    return value


def unknown_field(name: str, known: Collection[str]) -> Refusal:
    """Returns the refusal of a field of the request that is not among the known ones."""
    return Refusal(f"the request has the unknown field {name:.80}; {_hint(name, known)}", name, "unknown_parameter")


def read_include_usage(fields: Mapping[str, Any], stream: bool) -> bool:
    """Returns whether a stream ends with the usage; raises `Refusal` for `stream_options` that cannot be followed."""
    stream_options = _mapping(fields, "stream_options", ("include_usage", "include_obfuscation"))
    if stream_options and not stream:
        raise Refusal("stream_options is set, and stream is not; set stream to true", "stream_options")
    if stream_options.get("include_obfuscation"):
        raise Refusal(
            f"stream_options.include_obfuscation is on, and this server adds nothing; {LEAVE_OUT}", "stream_options"
        )
    return read_flag(stream_options, "include_usage")


def _modalities(value: Any) -> str:
    """Returns the name of the modalities, from OpenAI's list or from one of this project's names."""
    if isinstance(value, str) and value in MODALITIES:
        return value
    if isinstance(value, list) and value and all(each in ("text", "audio") for each in value):
        return "text_audio" if len({*value}) == 2 else str(value[0])
    raise Refusal(
        f'modalities is {value!r:.80}; expected ["text"], ["audio"] or ["text", "audio"], or one of the names '
        f"{', '.join(MODALITIES)}",
        "modalities",
        "invalid_value",
    )


def _limit(fields: Mapping[str, Any], option: str) -> dict[str, Any]:
    """Returns the model's option for OpenAI's limit of an answer, which has two names in the API."""
    names = [name for name in ("max_completion_tokens", "max_tokens") if name in fields]
    if len(names) == 2:
        raise Refusal("max_tokens and max_completion_tokens are both set; leave out max_tokens", "max_tokens")
    for name in names:
        value = fields[name]
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise Refusal(f"{name} is {value!r:.80}; expected a whole number of at least 1", name, "invalid_value")
    return {option: fields[names[0]]} if names else {}


def _messages(messages: Any, answers: KeptAnswers, parts: Sequence[str]) -> list[Mapping[str, Any]]:
    if not isinstance(messages, list) or not messages:
        raise Refusal("messages is not a list of messages; expected at least one from the user", "messages")
    return [_message(each, f"messages[{number}]", answers, parts) for number, each in enumerate(messages)]


def _message(message: Any, where: str, answers: KeptAnswers, expected: Sequence[str]) -> Mapping[str, Any]:
    if not isinstance(message, Mapping):
        raise Refusal(f"{where} is {message!r:.80}; expected an object with role and content", where, "invalid_type")
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise Refusal(f"{where}.role is {role!r:.80}; expected one of {', '.join(ROLES)}", f"{where}.role")
    for name in ("tool_calls", "function_call", "refusal"):
        if message.get(name):
            raise Refusal(f"{where} has {name}, which this model cannot read; {LEAVE_OUT}", f"{where}.{name}")
    _check_known(message, MESSAGE_FIELDS, where)
    content, audio = message.get("content"), message.get("audio")
    if audio is None:
        if content is None:
            raise Refusal(f"{where} has no content; expected a text or a list of parts", f"{where}.content")
        return {"role": ROLES[role], "content": _content(content, role, where, expected)}
    if role != "assistant":
        raise Refusal(
            f"{where} of the {role} has audio; give a recording as a part of type input_audio", f"{where}.audio"
        )
    earlier = _earlier(audio, f"{where}.audio", answers)
    parts: list[Any] = [{"type": "text", "text": earlier.text}] if earlier.text else []
    if content:
        parts = (
            [{"type": "text", "text": content}]
            if isinstance(content, str)
            else _content(content, role, where, expected)
        )
    if earlier.streams is not None:
        speech = [{"type": "audio", "streams": earlier.streams}]
        parts = [*speech, *parts] if earlier.speaks_first else [*parts, *speech]
    return {"role": "assistant", "content": parts or ""}


def _check_known(fields: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    """Refuses a field that would have no effect. One without a value changes nothing, such as `annotations: []`."""
    for name, value in fields.items():
        if value and name not in known:
            raise Refusal(
                f"{where} has the unknown field {name!s:.80}; {_hint(name, known)}",
                f"{where}.{name:.80}",
                "unknown_parameter",
            )


def _hint(name: str, known: Collection[str]) -> str:
    close_matches = difflib.get_close_matches(name, known, 1)
    return f"did you mean {close_matches[0]}?" if close_matches else f"{LEAVE_OUT}."


def _earlier(audio: Any, where: str, answers: KeptAnswers) -> Any:
    name = audio.get("id") if isinstance(audio, Mapping) else None
    if not isinstance(name, str):
        raise Refusal(f'{where} has no id; expected {{"id": ...}} of an earlier answer', where)
    answer = answers.get(name)
    if answer is None:
        raise Refusal(
            f"{where}.id is {name!r:.80}, and this server keeps no audio of that id, or no longer; send the answer's "
            "text in its place",
            f"{where}.id",
            "audio_not_found",
        )
    return answer


def _content(content: Any, role: str, where: str, expected: Sequence[str]) -> Any:
    """Returns the text or the parts of a message; refuses a part that would name a file of the server."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise Refusal(f"{where}.content is {content!r:.80}; expected a text or a list of parts", f"{where}.content")
    parts = []
    for number, part in enumerate(content):
        place = f"{where}.content[{number}]"
        kind = part.get("type") if isinstance(part, Mapping) else None
        spoken_before = kind == "audio" and role == "assistant" and "streams" in part
        if kind not in ("text", "input_audio") and not spoken_before:
            raise Refusal(f"{place} is of type {kind!r:.80}; expected {' or '.join(expected)}", place, "invalid_value")
        key = "streams" if spoken_before else kind
        _check_known(part, ("type", str(key)), place)
        if kind == "input_audio" and isinstance(part.get(key), Mapping):
            _check_known(part[key], ("data", "format"), f"{place}.{key}")
        parts.append({"type": kind, key: part.get(key)})
    return parts
