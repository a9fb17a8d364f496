"""Options of a family, declared once as a frozen dataclass. Flags, page inputs and keyword arguments are made from it.

An option is a dataclass field. Its metadata carries `help`, the `choices` where the values are few, and the limits of a
number; the command line, Python and the page all read them from there. This file knows neither argparse's parser nor
the page. It turns names and values into a checked dataclass.
"""

from __future__ import annotations

import difflib
import functools
import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_type_hints

from workbench.core.errors import BadInput


def option(
    default: Any,
    help: str,
    choices: Sequence[str] = (),
    minimum: float | None = None,
    maximum: float | None = None,
    above: float | None = None,
    smallest: float | None = None,
    runtimes: Sequence[str] = (),
    file: bool = False,
) -> Any:
    """Returns a dataclass field for an option of the user.

    Args:
        default: the value if the user sets none.
        help: what the option does, for users.
        choices: the allowed texts, if they are few.
        minimum: the smallest allowed number.
        maximum: the largest allowed number.
        above: the number must be greater than this; replaces `minimum`.
        smallest: the smallest allowed number except 0, which has a special meaning; replaces `minimum`.
        runtimes: the runtimes that have the option; empty for all.
        file: whether the text is the path of a file, which users of the page upload.
    """
    limits = {"minimum": minimum, "maximum": maximum, "above": above, "smallest": smallest}
    texts = {"help": help, "choices": tuple(choices), "runtimes": tuple(runtimes), "file": file}
    return field(default=default, metadata={**texts, **limits})


MAX_SEGMENT_SECONDS = 600.0  # attention over ten minutes takes gigabytes, and grows with the square of the time
FULL_SCALE = 32768.0  # of int16 samples; a larger dither drowns the recording
MAX_SILENCE_MS = 60_000  # a minute; a longer silence would hardly ever end a segment
MAX_BATCH_SIZE = 512  # segments in one batch; more fill the memory before they fill any processor
MAX_TOKENS = 1 << 20  # longer than the context of any model here; each model checks its own context as well


@dataclass(frozen=True)
class ListeningOptions:
    """The options that say how a recording reaches the model. Every family that takes audio has them."""

    vad: str = option(
        "auto",
        "voice activity detection: auto (silero, for recordings longer than one segment), silero, none, "
        "or the id, directory or GGUF file of an FSMN-VAD model",
    )
    max_segment_seconds: float = option(
        30.0,
        "longest segment in seconds; the model's card may name less",
        minimum=1.0,
        maximum=MAX_SEGMENT_SECONDS,
    )
    end_silence_ms: int | None = option(
        None,
        "for an FSMN-VAD: silence in ms that ends a segment of speech (default: 800; 0: 2000 at first, less in long "
        "segments)",
        minimum=0,
        maximum=MAX_SILENCE_MS,
    )
    dither: float = option(
        0.0,
        "amplitude of the noise added before the filter bank, in int16 steps; replaces the checkpoint's",
        minimum=0.0,
        maximum=FULL_SCALE,
    )
    cmvn: str = option("checkpoint", "apply the checkpoint's CMVN as configured, or not", ("checkpoint", "off"))


@dataclass(frozen=True)
class TimedOptions(ListeningOptions):
    """The options of families that know when each token was spoken."""

    timestamps: bool = option(True, "find the time of each token")


MODALITIES = ("auto", "text", "audio", "text_audio")


@dataclass(frozen=True)
class ConversingOptions:
    """The options of every call that answers a conversation."""

    modalities: str = option("auto", "what the answer has: text, audio or both; auto: the model chooses", MODALITIES)

    def check_text_alone(self, what: str) -> None:
        """Raises `BadInput` if `modalities` asks for speech; `what` names the model, which answers in text."""
        if self.modalities not in ("auto", "text"):
            raise BadInput(f"option modalities is {self.modalities}, and {what} answers in text; expected text or auto")


@dataclass(frozen=True)
class OptionSpec:
    """One option, as a user interface needs it."""

    name: str
    kind: type  # str, bool, int, float; tuple for a list of texts
    default: Any
    help: str
    choices: tuple[str, ...]
    minimum: float | None
    maximum: float | None = None
    above: float | None = None
    smallest: float | None = None
    runtimes: tuple[str, ...] = ()  # the runtimes that have it; empty for all
    file: bool = False  # whether it is the path of a file

    @property
    def limits(self) -> str:
        """The allowed numbers in words, such as "1 to 64" or "more than 0, at most 1"; empty without limits."""
        minimum = self.smallest if self.minimum is None else self.minimum
        if minimum is not None and self.maximum is not None:
            text = f"{_number(minimum)} to {_number(self.maximum)}"
        else:
            bounds = (("at least", minimum), ("more than", self.above), ("at most", self.maximum))
            text = ", ".join(f"{word} {_number(bound)}" for word, bound in bounds if bound is not None)
        return text if self.smallest is None else f"0, or {text}"

    @property
    def help_with_limits(self) -> str:
        """The help text with the limits of a number."""
        return self.help_with(self.limits)

    def help_with(self, *notes: str) -> str:
        """Returns the help text with the non-empty notes, inside the parentheses at its end if it has some."""
        text = "; ".join(filter(None, notes))
        if not text:
            return self.help
        return f"{self.help[:-1]}; {text})" if self.help.endswith(")") else f"{self.help} ({text})"

    def allows(self, number: float) -> bool:
        """Returns whether a number is within the limits."""
        if self.smallest is not None and number == 0:
            return True
        minimums = [bound for bound in (self.minimum, self.smallest) if bound is not None]
        return (
            all(number >= bound for bound in minimums)
            and (self.above is None or number > self.above)
            and (self.maximum is None or number <= self.maximum)
        )


def _number(bound: float) -> str:
    """Returns a limit as text: whole numbers with all their digits."""
    return str(int(bound)) if bound == int(bound) else f"{bound:g}"


def option_specs(options_class: type) -> tuple[OptionSpec, ...]:
    """Returns the options of a family in declaration order."""
    hashable: Any = options_class
    return _read(hashable)


@functools.cache
def _read(options_class: Any) -> tuple[OptionSpec, ...]:
    hints = get_type_hints(options_class)
    return tuple(
        OptionSpec(
            f.name,
            _kind(hints[f.name]),
            f.default,
            f.metadata.get("help", ""),
            f.metadata.get("choices", ()),
            **{name: f.metadata.get(name) for name in ("minimum", "maximum", "above", "smallest")},
            runtimes=f.metadata.get("runtimes", ()),
            file=f.metadata.get("file", False),
        )
        for f in fields(options_class)
    )


def _kind(hint: Any) -> type:
    """Returns the type of an option's values: `tuple` for a list of texts, `int` for `int | None`."""
    if isinstance(hint, UnionType):
        hint = next(each for each in get_args(hint) if each is not NoneType)
    return hint if isinstance(hint, type) else tuple


Options = TypeVar("Options")


def conversation_options_class(options_class: type[Any]) -> type[Any]:
    """Returns the options class for conversations with a family: its own options and those of every conversation.

    If not all its own options are for conversations, its attribute `CONVERSING` is a class of those that are.
    """
    conversation_class: Any = getattr(options_class, "CONVERSING", options_class)
    return (
        conversation_class if "modalities" in conversation_class.__dataclass_fields__ else _joined(conversation_class)
    )


@functools.cache
def _joined(options_class: Any) -> type[Any]:
    class_fields = {"__module__": options_class.__module__, "__doc__": "The user's options for a conversation."}
    joined = type(f"Conversing{options_class.__name__}", (options_class, ConversingOptions), class_fields)
    return dataclass(frozen=True)(joined)


def build_options(options_class: type[Options], values_set: Mapping[str, Any], what: str) -> Options:
    """Returns the options dataclass made from names and values.

    Args:
        options_class: the dataclass.
        values_set: the values that the user set, by name.
        what: the name of the model, for messages.

    Raises `BadInput` for an unknown name (and suggests the nearest known one), a value of the wrong type, a value that
    is not among the choices, or a number beyond the limits.
    """
    specs = {spec.name: spec for spec in option_specs(options_class)}
    values = {}
    for name, value in values_set.items():
        if name not in specs:
            close_names = difflib.get_close_matches(name, specs, 1)
            hint = f"did you mean {close_names[0]}?" if close_names else f"it has {', '.join(specs)}."
            raise BadInput(f"{what} has no option {name:.80}; {hint}")
        values[name] = check_value(specs[name], value, f"option {name} of {what} is {value!r:.80}")
    return options_class(**values)


def check_value(spec: OptionSpec, value: Any, where: str) -> Any:
    """Returns the value, converted to the option's type.

    `where` describes the value in messages. Raises `BadInput` as `build_options` does.
    """
    if value is None and spec.default is None:
        return None  # the same as not setting it
    fitted = _fitted(spec.kind, value)
    if spec.choices and (fitted is None or fitted not in spec.choices):
        raise BadInput(f"{where}; expected one of {', '.join(spec.choices)}")
    if fitted is None:
        raise BadInput(f"{where}; expected {_EXPECTED.get(spec.kind, 'a list of texts')}")
    if isinstance(fitted, float) and not math.isfinite(fitted):
        raise BadInput(f"{where}; expected a finite number")
    if spec.limits and not spec.allows(fitted):
        raise BadInput(f"{where}; expected {spec.limits}")
    return fitted


_EXPECTED = {str: "text", bool: "true or false", float: "a number", int: "a whole number"}


def _fitted(kind: type, value: Any) -> Any:
    """Returns the value in the option's type, with numpy's numbers as Python's; None if it is of another kind."""
    if kind is bool or isinstance(value, bool):  # Python counts bool among the numbers
        return value if kind is bool and isinstance(value, bool) else None
    if kind is int:
        return int(value) if isinstance(value, numbers.Integral) else None
    if kind is float:
        try:
            return float(value) if isinstance(value, numbers.Real) else None
        except OverflowError:  # a whole number too large
            return math.inf
    if kind is str:
        return value if isinstance(value, str) else None
    texts = isinstance(value, (list, tuple)) and all(isinstance(each, str) for each in value)
    return tuple(value) if texts else None
