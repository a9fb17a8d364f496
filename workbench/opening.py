"""Opens a session in this process: family and runtime to the cell's module."""

from __future__ import annotations

import time
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from workbench.errors import BadInput, Unavailable
from workbench.families import FAMILIES
from workbench.runtimes import RUNTIMES
from workbench.session import Session

DTYPES = ("auto", "float32", "bfloat16", "float16")
KV_CACHES = ("f32", "f16", "q8_0")


@dataclass(frozen=True)
class Settings:
    """How a session computes, as opposed to what."""

    threads: int | None = None  # None: as many as the runtime takes by itself
    device: str = "cpu"  # a device name of the runtime: cpu, cuda, cuda:1
    dtype: str = "float32"  # one of DTYPES: of a language model's arithmetic; auto: as it is stored
    quantization: str = "auto"  # of the weights, where the runtime keeps them quantised; auto: as it sees fit
    kv_cache: str = "f32"  # one of KV_CACHES: of a language model's keys and values
    language_file: Path | None = None  # the language half of a speech language model, where it is a GGUF file by itself
    max_length: int | None = None  # most positions of one request; None: as many as the model has
    kv_gigabytes: float | None = None  # memory for the keys and values of all requests; None: as the runtime sees fit
    tensor_parallel: int = 1  # devices that share the model
    eager: bool = True  # no compiled graphs: a quick start, and stages can be seen; compiled ones serve faster on a GPU


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


def why_not(family: str, runtime: str) -> str | None:
    """Why the family cannot run on that runtime here, or None where it can. Raises `BadInput` for unknown names."""
    if runtime not in RUNTIMES:
        raise BadInput(f"there is no runtime {runtime!r}; there are {', '.join(RUNTIMES)}")
    if family not in FAMILIES:
        raise BadInput(f"there is no family {family!r}; there are {', '.join(FAMILIES)}")
    cell = FAMILIES[family].cell(runtime)
    return cell.reason if cell.module is None else RUNTIMES[runtime].missing()


def open_here(spec: SessionSpec) -> Session:
    """Loads the model in this process. Raises `Unavailable` for an empty cell, `BadInput` for a bad checkpoint."""
    reason = why_not(spec.family, spec.runtime)
    if reason:
        raise Unavailable(reason)
    begun = time.perf_counter()
    module = import_module(str(FAMILIES[spec.family].cell(spec.runtime).module))
    session = module.open_session(spec.checkpoint, spec.name, spec.settings)
    session.load_seconds = time.perf_counter() - begun
    return session
