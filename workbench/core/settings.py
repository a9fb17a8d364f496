"""The settings of a session by runtime, and the specification that opens it.

This file opens nothing; `workbench.isolation.loader` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from workbench.core.options import MAX_TOKENS, OptionSpec, check_value, option, option_specs
from workbench.core.runtimes import RUNTIMES

DTYPES = tuple(dict.fromkeys(name for runtime in RUNTIMES.values() for name in runtime.dtypes))
KV_CACHES = ("f32", "f16", "q8_0")


MAX_THREADS = 1024  # the largest machines have that many processors; more threads take memory and do no work
MAX_GIGABYTES = 10_000  # no machine has more memory
MAX_DEVICES = 64  # more than one machine has
MAX_ORDERS = 1_000_000


@dataclass(frozen=True)
class Settings:
    """Settings of how a session computes, not of what. `workbench.core.runtimes` lists them by runtime."""

    threads: int | None = option(
        None, "processor threads; by default the runtime decides", minimum=1, maximum=MAX_THREADS
    )
    device: str = option("cpu", "cpu, cuda, cuda:1 ...")
    dtype: str = option(
        "float32",
        "type of the arithmetic; a 16-bit type is used for products, and for all steps of a language model; auto: the "
        "checkpoint's type for a language model, otherwise bfloat16 if this machine has units for it",
        DTYPES,
    )
    quantization: str = option(
        "auto", "type of the weights: f32, f16, q8_0, q4_0 ...; auto: f32 unless that file is too large"
    )
    kv_cache: str = option("f32", "type of a language model's keys and values", KV_CACHES)
    max_length: int | None = option(
        None,
        "largest number of tokens in one request, including its recording; by default as many as the model and the "
        "memory allow",
        minimum=1,
        maximum=MAX_TOKENS,
    )
    kv_gigabytes: float | None = option(
        None,
        "memory for the keys and values of all requests; by default 1 on a CPU, and all that is left on a GPU",
        minimum=0.001,
        maximum=MAX_GIGABYTES,
    )
    tensor_parallel: int = option(1, "devices that share the model", minimum=1, maximum=MAX_DEVICES)
    eager: bool = option(
        True, "run without compiled graphs, which start slowly, run faster on a GPU and allow no traces"
    )
    stepwise: bool = option(
        False,
        "with a 16-bit dtype: use it in all networks, the audio encoder too, and round every step of the attention, as "
        "ports do; for reference traces",
    )
    weights: str = option(
        "",
        "which weights to use: bfloat16 or float16 rounds those of the checkpoint, the path of a GGUF file loads its "
        "weights; for reference traces",
    )
    summation: int = option(
        0,
        "order of the sums in linear layers: 0 for the order of the library; another number is the seed of a random "
        "order, which changes with each trace; for reference traces",
        minimum=0,
        maximum=MAX_ORDERS,
    )
    language_file: Path | None = None  # the language model of a speech language model, if it is a separate GGUF file


SETTINGS: Mapping[str, OptionSpec] = {spec.name: spec for spec in option_specs(Settings) if spec.help}
"""The settings that a user may set, by name."""


def settings_of(runtime: str) -> Mapping[str, OptionSpec]:
    """Returns the settings of a runtime by name, with the choices that this runtime has."""
    runtime_entry = RUNTIMES[runtime]
    specs = {name: SETTINGS[name] for name in runtime_entry.settings}
    return {
        name: replace(spec, choices=runtime_entry.dtypes) if name == "dtype" else spec for name, spec in specs.items()
    }


def check_setting(name: str, value: Any, where: str, runtime: str | None = None) -> Any:
    """Returns the value of a setting in its type; `where` describes the value in messages.

    Raises `BadInput` for a value of the wrong type, a number beyond the limits, or a value that is not among the
    choices. If `runtime` is set, the choices are those of the runtime, which must have the setting.
    """
    return check_value((settings_of(runtime) if runtime else SETTINGS)[name], value, where)


@dataclass(frozen=True)
class Server:
    """A remote server that runs a model."""

    url: str  # the part before /v1
    model: str  # the model's name on the server; empty if the server has only one
    key: str = ""  # the environment variable that holds the server's key


@dataclass(frozen=True)
class SessionSpec:
    """Everything needed to open a session, in this process or another."""

    name: str  # the model's id in results
    family: str
    runtime: str
    checkpoint: Path  # the model's directory, or a GGUF file
    settings: Settings = Settings()
    server: Server | None = None  # the server of a remote model; `checkpoint` then has no meaning
    domain: Path | None = None  # the file about the recordings that the model was made for, if its card names one
    longest_segment_seconds: float | None = None  # the longest segment in the model's training, if its card says it
