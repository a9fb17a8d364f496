"""Parses the sides of a comparison: `pytorch`, `gguf:q8_0`, `vllm:bfloat16`, a GGUF file, or a trace file.

Settings and options for one side may follow: `pytorch+cmvn=off`, `gguf:f32+threads=1+dither=1`. They can reproduce
known causes of a divergence on purpose.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from workbench.core.errors import BadInput
from workbench.core.options import OptionSpec, build_options, option_specs
from workbench.core.runtimes import RUNTIMES
from workbench.core.settings import SETTINGS, check_setting

DTYPES_BY_SHORT_NAME = {"f32": "float32", "f64": "float64", "bf16": "bfloat16", "f16": "float16"}
"""Types of arithmetic by their short names."""
GGUF_SUFFIX = ".gguf"
_BOOLEANS = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}


@dataclass(frozen=True)
class Side:
    """One computation of a comparison: a runtime with its settings and options, or a trace from a file."""

    name: str  # as the user wrote it
    runtime: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    path: Path | None = None  # path of a trace
    file: Path | None = None  # a GGUF file of the model that somebody else has made; it runs in the model's place

    def with_default(self, **settings: Any) -> Side:
        """Returns the side with additional settings, if its runtime has them and the side does not set them."""
        if self.runtime is None:
            return self
        names = [name for name in RUNTIMES[self.runtime].settings if name != "quantization" or self.file is None]
        accepted = {name: value for name, value in settings.items() if name in names}
        return replace(self, settings={**accepted, **self.settings})


def read_sides(
    texts: str | Iterable[str | Side], options_class: type, model: str, gguf_files: bool = False
) -> list[Side]:
    """Returns the sides of a list, or of a text with commas between them. Raises `BadInput` for an empty list."""
    parts = texts.split(",") if isinstance(texts, str) else texts
    parts_read = [part if isinstance(part, Side) else str(part).strip() for part in parts]
    sides = [read_side(part, options_class, model, gguf_files) for part in parts_read if part]
    if not sides:
        raise BadInput(f"no candidate is named; expected one of {_expected()}")
    return sides


def read_side(text: str | Side, options_class: type, model: str, gguf_files: bool = False) -> Side:
    """Returns the side for `runtime[:type][+name=value...]`, or for the path of a trace or GGUF file.

    Args:
        text: the notation; a `Side` is returned unchanged.
        options_class: the model's options; names that are neither a setting nor an option are refused.
        model: its id, for messages.
        gguf_files: whether a side may be a GGUF file.

    Raises `BadInput`, which names the fault.
    """
    if isinstance(text, Side):
        return text
    first, *changes = text.split("+")
    runtime, colon, kind = (part.strip() for part in first.partition(":"))
    if runtime not in RUNTIMES:
        path = existing_path(text)
        if path is not None:
            if gguf_files and path.suffix.lower() == GGUF_SUFFIX:
                return Side(text, "gguf", file=path)
            _refuse_model(path)
            return Side(text, path=path)
        raise BadInput(f"{text!r:.80} is neither a runtime nor an existing trace; expected {_expected()}")
    settings: dict[str, Any] = {}
    options: dict[str, Any] = {}
    if colon:
        name = "quantization" if "quantization" in RUNTIMES[runtime].settings else "dtype"
        value = kind if name == "quantization" else DTYPES_BY_SHORT_NAME.get(kind, kind)
        settings[name] = check_setting(name, value, f"the type in {text!r:.80} is {kind!r:.40}")
    specs = {spec.name: spec for spec in option_specs(options_class)}
    for change in changes:
        name, equals, value = (part.strip() for part in change.partition("="))
        name = name.replace("-", "_")
        if not equals or (name not in RUNTIMES[runtime].settings and name not in specs):
            known_names = ", ".join(dict.fromkeys((*RUNTIMES[runtime].settings, *specs)))
            raise BadInput(
                f"{change!r:.80} in {text!r:.80} is not understood; expected NAME=VALUE, and the names that {model} "
                f"has on {runtime} are {known_names}"
            )
        if name in RUNTIMES[runtime].settings:
            settings[name] = check_setting(name, _value(SETTINGS[name], value), f"{name} in {text!r:.80} is {value!r}")
        else:
            options[name] = _value(specs[name], value)
    build_options(options_class, options, model)
    return Side(text, runtime, settings, options)


def runtime_of(text: str) -> str | None:
    """Returns the runtime with which the text of a side begins; None for another text, such as a path."""
    runtime = text.partition("+")[0].partition(":")[0].strip()
    return runtime if runtime in RUNTIMES else None


def with_changes(text: str, changes: Mapping[str, str | None]) -> str:
    """Returns the text of a side with other settings and options: each replaced or added, or removed if it is None.

    A setting that its runtime does not have is not added, and a text that does not begin with a runtime stays
    unchanged.
    """
    runtime = runtime_of(text)
    if runtime is None:
        return text
    first, *parts = text.split("+")
    unchanged = [part for part in parts if part.partition("=")[0].strip().replace("-", "_") not in changes]
    setting_names = RUNTIMES[runtime].settings
    added = [
        f"{name}={value}"
        for name, value in changes.items()
        if value and (name in setting_names or name not in SETTINGS)
    ]
    return "+".join([first, *unchanged, *added])


def existing_path(text: str) -> Path | None:
    """Returns the path if it exists; accepts any text."""
    try:
        path = Path(text).expanduser()
        return path if text and path.exists() else None
    except (OSError, RuntimeError, ValueError):  # too long for a path, an unknown user, or a null character
        return None


def _refuse_model(path: Path) -> None:
    """Raises `BadInput` for a checkpoint instead of a trace, with advice."""
    if path.suffix.lower() == GGUF_SUFFIX or any((path / name).is_file() for name in ("config.yaml", "config.json")):
        raise BadInput(
            f"{path} is a model, not a trace; to compare it, trace it first: workbench trace AUDIO --model {path} "
            "--out FILE.safetensors (with --given REFERENCE.safetensors for a run with --isolated), and name that file"
        )


def _value(spec: OptionSpec, text: str) -> Any:
    """Returns the text as the option's type. A text that does not fit stays a text, which the later check refuses."""
    if spec.kind is bool:
        return _BOOLEANS.get(text.lower(), text)
    if spec.kind in (int, float):
        try:
            return spec.kind(text)
        except ValueError:
            return text
    return text if spec.kind is str else [text]


def _expected() -> str:
    return f"{', '.join(RUNTIMES)}, a type behind a colon as in gguf:q8_0, or the path of a trace"
