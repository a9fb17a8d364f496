"""Reads the form of a transcription request: its model, its options, and the form of the answer.

As in chats, a field that cannot be followed is refused by name. Options that OpenAI's API has no field for are fields
of their own, by their names in `workbench options MODEL`.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.core.options import OptionSpec
from workbench.openai_api.chat_request import ABOUT_THE_CALLER, LEAVE_OUT
from workbench.openai_api.errors import Refusal

JSON, TEXT, SRT, VTT, VERBOSE = FORMS = ("json", "text", "srt", "vtt", "verbose_json")
WORD, SEGMENT = GRANULARITIES = ("word", "segment")
OWN_FIELDS = (
    "file",
    "model",
    "language",
    "prompt",
    "response_format",
    "temperature",
    "timestamp_granularities",
    "stream",
)
# Fields whose values are refused, but for those that change nothing: these values, and why others cannot be followed.
UNFOLLOWED: Mapping[str, tuple[Sequence[str], str]] = {
    "include": ((), "this server returns no log-probabilities of transcripts"),
    "chunking_strategy": (("auto",), "the option vad says how a recording is cut"),
    "known_speaker_names": ((), "this server does not distinguish speakers"),
    "known_speaker_references": ((), "this server does not distinguish speakers"),
}
TRUTHS = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True)
class TranscriptionRequest:
    """A request with a valid form; the limits of options are checked later."""

    options: Mapping[str, Any]  # of the model, by name; those that the request sets
    form: str = JSON
    words: bool = False  # whether verbose JSON has the time of each word
    segments: bool = True  # whether it has segments
    stream: bool = False
    temperature: float = 0.0


def read_transcription_request(
    fields: Sequence[tuple[str, str]], specs: Sequence[OptionSpec], languages: Sequence[str]
) -> TranscriptionRequest:
    """Returns the request in the fields of a form, each a name and a text. The file and the model are read before.

    Args:
        specs: the model's options.
        languages: the languages that the model's card names; empty if it names none.

    Raises `Refusal` for anything that cannot be followed. The limits of options are not checked here.
    """
    specs_by_name = {spec.name: spec for spec in specs}
    values_by_name: dict[str, list[str]] = {}
    for name, value in fields:
        values_by_name.setdefault(name.removesuffix("[]"), []).append(value)
    _check_fields(values_by_name, specs_by_name)
    single = {name: values[-1] for name, values in values_by_name.items() if name != "timestamp_granularities"}
    options = {
        name: _value(specs_by_name[name], values_by_name[name])
        for name in values_by_name
        if name in specs_by_name and name not in OWN_FIELDS
    }
    options |= _language(single.get("language", ""), specs_by_name, languages)
    options |= _prompt(single.get("prompt", ""), specs_by_name)
    temperature = _temperature(single.get("temperature", ""))
    if "temperature" in specs_by_name and single.get("temperature"):
        options["temperature"] = temperature
    elif temperature:
        raise Refusal(f"temperature is {temperature:g}, and this model draws nothing; {LEAVE_OUT}", "temperature")
    form = single.get("response_format") or JSON
    if form not in FORMS:
        raise Refusal(
            f"response_format is {form!r:.80}; expected one of {', '.join(FORMS)}", "response_format", "invalid_value"
        )
    stream = _truth(single, "stream")
    if stream and form not in (JSON, TEXT):
        raise Refusal(
            f"response_format is {form}, and a stream is of text alone; set it to {JSON}, or stream to false",
            "response_format",
        )
    granularities = _granularities(values_by_name.get("timestamp_granularities", []), form)
    return TranscriptionRequest(
        options, form, WORD in granularities, SEGMENT in granularities or not granularities, stream, temperature
    )


def _check_fields(values_by_name: Mapping[str, Sequence[str]], specs_by_name: Mapping[str, OptionSpec]) -> None:
    several = {"timestamp_granularities", *(name for name, spec in specs_by_name.items() if spec.kind is tuple)}
    for name, values in values_by_name.items():
        whole = name.partition("[")[0]  # clients send an object as fields such as chunking_strategy[type]
        if whole in UNFOLLOWED:
            harmless, why = UNFOLLOWED[whole]
            if any(value and (value not in harmless or name != whole) for value in values):
                raise Refusal(f"{name:.80} is {values[0]!r:.80}, and {why}; {LEAVE_OUT}", whole, "unsupported_value")
        elif name not in {*OWN_FIELDS, *specs_by_name, *ABOUT_THE_CALLER}:
            close_matches = difflib.get_close_matches(name, [*OWN_FIELDS, *specs_by_name], 1)
            hint = f"did you mean {close_matches[0]}?" if close_matches else f"{LEAVE_OUT}."
            raise Refusal(f"the form has the unknown field {name!s:.80}; {hint}", f"{name:.80}", "unknown_parameter")
        elif len(values) > 1 and name not in several:
            raise Refusal(f"the form has the field {name:.80} {len(values)} times; expected it once", name)


def _truth(single: Mapping[str, str], name: str) -> bool:
    value = single.get(name, "false").lower()
    if value not in TRUTHS:
        raise Refusal(f"{name} is {value!r:.80}; expected true or false", name, "invalid_type")
    return TRUTHS[value]


def _temperature(value: str) -> float:
    try:
        found = float(value or 0)
    except ValueError:
        found = -1.0
    if not 0 <= found < float("inf"):
        raise Refusal(f"temperature is {value!r:.80}; expected a number of at least 0", "temperature", "invalid_type")
    return found


def _granularities(values: Sequence[str], form: str) -> Sequence[str]:
    for value in values:
        if value not in GRANULARITIES:
            expected = " or ".join(GRANULARITIES)
            raise Refusal(f"timestamp_granularities has {value!r:.80}; expected {expected}", "timestamp_granularities")
    if values and form != VERBOSE:
        raise Refusal(
            f"timestamp_granularities is set, and response_format is {form}; set it to {VERBOSE}",
            "timestamp_granularities",
        )
    return values


def _language(value: str, specs_by_name: Mapping[str, OptionSpec], languages: Sequence[str]) -> dict[str, Any]:
    """Returns the option for the language; a model without one has it fixed."""
    if not value:
        return {}
    if "language" in specs_by_name:
        return {"language": value}
    if value in languages or not languages:
        return {}
    raise Refusal(f"language is {value!r:.80}, and this model hears {', '.join(languages)}; {LEAVE_OUT}", "language")


def _prompt(value: str, specs_by_name: Mapping[str, OptionSpec]) -> dict[str, Any]:
    """Returns the option for the prompt: words to expect, separated by lines or commas."""
    words = [word.strip() for line in value.splitlines() for word in line.split(",") if word.strip()]
    if not words:
        return {}
    for name in ("hotwords", "boost"):
        if name in specs_by_name and specs_by_name[name].kind is tuple:
            return {name: words}
    raise Refusal(f"prompt is set, and this model takes no words to expect; {LEAVE_OUT}", "prompt", "unsupported_value")


def _value(spec: OptionSpec, values: Sequence[str]) -> Any:
    """Returns the value of an option from its texts in the form; JSON for a list."""
    text = values[-1]
    if spec.kind is tuple:
        if len(values) == 1 and text.lstrip().startswith("["):
            try:
                return json.loads(text)
            except (ValueError, RecursionError):
                raise Refusal(
                    f"{spec.name} is not a list that can be read as JSON", spec.name, "invalid_type"
                ) from None
        return list(values)
    if spec.kind is bool:
        return _truth({spec.name: text}, spec.name)
    if spec.kind in (int, float):
        try:
            return spec.kind(text)
        except ValueError:
            expected = "a whole number" if spec.kind is int else "a number"
            raise Refusal(f"{spec.name} is {text!r:.80}; expected {expected}", spec.name, "invalid_type") from None
    return text
