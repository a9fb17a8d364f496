"""How a session computes: its settings by runtime, and all that is needed to open it.

This file opens nothing; `workbench.isolation.loader` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from workbench.core.options import MOST_TOKENS, OptionSpec, check_value, option, option_specs
from workbench.core.runtimes import RUNTIMES

DTYPES = tuple(dict.fromkeys(name for runtime in RUNTIMES.values() for name in runtime.dtypes))
KV_CACHES = ("f32", "f16", "q8_0")


MOST_THREADS = 1024  # the largest machines have so many processors; more threads take memory and do no work
MOST_GIGABYTES = 10_000  # no machine has more memory
MOST_DEVICES = 64  # of one machine, with room to spare


@dataclass(frozen=True)
class Settings:
    """How a session computes, as opposed to what. `workbench.core.runtimes` says which runtime has which."""

    threads: int | None = option(
        None, "processor threads; by itself a runtime takes as many as it sees fit", minimum=1, maximum=MOST_THREADS
    )
    device: str = option("cpu", "cpu, cuda, cuda:1 ...")
    dtype: str = option(
        "float32", "of a language model's arithmetic; auto: as it is stored; float64: of every network's", DTYPES
    )
    quantization: str = option(
        "auto", "of the weights: f32, f16, q8_0, q4_0 ...; auto: f32 where that file is not too large"
    )
    kv_cache: str = option("f32", "of a language model's keys and values", KV_CACHES)
    max_length: int | None = option(
        None,
        "most tokens of one request, with those of its recording; by itself, all the model has or the memory holds",
        minimum=1,
        maximum=MOST_TOKENS,
    )
    kv_gigabytes: float | None = option(
        None,
        "memory for the keys and values of all requests; by itself, 1 on a processor, on a GPU what is left",
        minimum=0.001,
        maximum=MOST_GIGABYTES,
    )
    tensor_parallel: int = option(1, "devices that share the model", minimum=1, maximum=MOST_DEVICES)
    eager: bool = option(
        True, "no compiled graphs, which start slowly, serve faster on a GPU and let no stages be seen"
    )
    stepwise: bool = option(
        False,
        "with a dtype of 16 bits: in all networks, what hears too, and with attention written out, as ports have it; "
        "for traces to judge ports by",
    )
    language_file: Path | None = None  # the language half of a speech language model, where it is a GGUF file by itself


SETTINGS: Mapping[str, OptionSpec] = {spec.name: spec for spec in option_specs(Settings) if spec.help}
"""What a user may set, by name."""


def settings_of(runtime: str) -> Mapping[str, OptionSpec]:
    """The settings that a runtime has, by name, with the choices that it has."""
    found = RUNTIMES[runtime]
    specs = {name: SETTINGS[name] for name in found.settings}
    return {name: replace(spec, choices=found.dtypes) if name == "dtype" else spec for name, spec in specs.items()}


def check_setting(name: str, value: Any, where: str, runtime: str | None = None) -> Any:
    """The value of a setting in its type; `where` says in messages what was given.

    Raises `BadInput` for a value of the wrong type, below the least there is, or none of the choices: of the runtime,
    where one is named, which then must have the setting.
    """
    return check_value((settings_of(runtime) if runtime else SETTINGS)[name], value, where)


@dataclass(frozen=True)
class Server:
    """A server of a model somewhere else."""

    url: str  # up to and without /v1
    model: str  # the name that the server has for it; empty for the only one it serves
    key: str = ""  # the environment variable with the key that the server wants


@dataclass(frozen=True)
class SessionSpec:
    """All that is needed to open a session, here or in another process."""

    name: str  # the model's id in results
    family: str
    runtime: str
    checkpoint: Path  # its directory, or a GGUF file
    settings: Settings = Settings()
    server: Server | None = None  # that runs it, where it does not run here; `checkpoint` then says nothing
