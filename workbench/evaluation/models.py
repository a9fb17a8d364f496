"""The models of an evaluation: the user names them, and each is resolved once, for all workers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from workbench.artifacts.digests import Digests
from workbench.core.errors import BadInput
from workbench.core.options import OptionSpec, option_specs
from workbench.core.progress import OnProgress, report
from workbench.core.runtimes import RUNTIMES
from workbench.core.settings import Server, SessionSpec
from workbench.core.sides import DTYPES_BY_SHORT_NAME
from workbench.evaluation.store import Model
from workbench.families import FAMILIES
from workbench.registry.availability import default_runtime
from workbench.registry.cards import Card
from workbench.registry.handle import quantization_of
from workbench.registry.registry import Registry
from workbench.registry.resolve import options_class, resolve
from workbench.registry.sources import local_checkpoint
from workbench.session.values import RECORDING
from workbench.system.user_cache import user_cache

SEPARATOR = "|"
DEFAULT_DTYPE = "float32"
# They decide where and how fast a model computes, but not its results, so a continued run may change them.
OF_THE_MACHINE = {"threads", "device", "kv_gigabytes", "tensor_parallel"}
DIGESTS = "digests.json"


@dataclass(frozen=True)
class Chosen:
    """One model of an evaluation."""

    model: Model  # as run.json has it
    card: Card
    spec: SessionSpec  # what is opened on this machine
    settings: Mapping[str, Any]  # as the user set them, for other machines
    servers: tuple[Server, ...] = ()  # servers that all serve this model

    @property
    def key(self) -> str:
        """The model's name in results."""
        return self.model.key

    @property
    def batches(self) -> bool:
        """Whether the model has an option for the number of speech segments that it computes at once."""
        return BATCH in {spec.name for spec in _options(self.card)}


BATCH = "batch_size"


def _options(card: Card) -> tuple[OptionSpec, ...]:
    return option_specs(options_class(card))


def choose_models(
    registry: Registry,
    models: Sequence[str],
    settings: Mapping[str, Any],
    options: Mapping[str, Any],
    servers: Sequence[str] = (),
    on_progress: OnProgress | None = None,
) -> list[Chosen]:
    """Resolves models; downloads and converts their files if needed.

    Args:
        models: each is a card's id or a path. A runtime and a type may follow, as in demo/sensevoice|gguf|q8_0.
        settings: for the models whose runtime has them.
        options: of `transcribe`, for all of them.
        servers: more addresses that serve the models whose cards name a server.

    Raises `BadInput` and `Unavailable` as `workbench.registry.resolve`.
    """
    if not models:
        raise BadInput(
            "no model is named; expected at least one, such as demo/sensevoice, or transcripts of another program"
        )
    chosen: dict[str, Chosen] = {}
    for text in models:
        each = _chosen(registry, text, settings, options, servers, on_progress)
        if each.key in chosen:
            raise BadInput(f"the model {each.key} is named twice; expected each once")
        chosen[each.key] = each
    unknown = [
        name for name in settings if not any(name in RUNTIMES[each.spec.runtime].settings for each in chosen.values())
    ]
    if unknown:
        raise BadInput(f"no model here has the setting {unknown[0]} on its runtime; leave it out")
    if servers and not any(each.servers for each in chosen.values()):
        raise BadInput("--server names addresses, but no model here runs on a server; expected a card with a server")
    return list(chosen.values())


def _chosen(
    registry: Registry,
    text: str,
    settings: Mapping[str, Any],
    options: Mapping[str, Any],
    servers: Sequence[str],
    on_progress: OnProgress | None,
) -> Chosen:
    name, *details = text.split(SEPARATOR)
    if not name.strip():
        raise BadInput(f"{text!r:.80} names no model; expected M, M|RUNTIME or M|RUNTIME|TYPE")
    if len(details) > 2:
        raise BadInput(f"the model {text!r:.80} has {len(details) + 1} parts; expected M, M|RUNTIME or M|RUNTIME|TYPE")
    card = registry.card(name.strip())
    if FAMILIES[card.family].input != RECORDING or "transcribe" not in card.tasks:
        raise BadInput(
            f"{card.id} writes no transcripts of recordings; expected a model that does (see: workbench models)"
        )
    runtime = details[0].strip() if details and details[0].strip() else default_runtime(card)
    if runtime not in RUNTIMES:
        raise BadInput(f"there is no runtime {runtime!r:.40} ({text!r:.80}); expected one of {', '.join(RUNTIMES)}")
    has = RUNTIMES[runtime].settings
    model_settings = {name: value for name, value in settings.items() if name in has}
    if len(details) == 2 and details[1].strip():
        kind = details[1].strip()
        which = "quantization" if "quantization" in has else "dtype"
        model_settings[which] = kind if which == "quantization" else DTYPES_BY_SHORT_NAME.get(kind, kind)
    spec = resolve(card, runtime, model_settings, options, on_progress)
    quantization = quantization_of(spec)
    kind = quantization or ("" if spec.settings.dtype == DEFAULT_DTYPE else spec.settings.dtype)
    key = SEPARATOR.join(filter(None, (card.id, runtime, kind)))
    recorded_settings = {each: value for each, value in model_settings.items() if each not in OF_THE_MACHINE}
    recorded = Model(
        key,
        card.id,
        runtime,
        quantization,
        json.loads(json.dumps(asdict(card), default=dict)),
        checkpoint_digest(card, on_progress),
        recorded_settings,
        json.loads(json.dumps(dict(options), default=str)),
    )
    more_servers = (
        tuple(replace(spec.server, url=url.rstrip("/").removesuffix("/v1")) for url in servers) if spec.server else ()
    )
    all_servers = tuple(dict.fromkeys((spec.server, *more_servers))) if spec.server else ()
    return Chosen(recorded, card, spec, model_settings, all_servers)


def checkpoint_digest(card: Card, on_progress: OnProgress | None = None) -> str | None:
    """The digest of a model's checkpoint on this machine; None for a model on a server."""
    place = local_checkpoint(card)
    if place is None:
        return None
    digests = Digests(user_cache() / "evaluation" / DIGESTS)
    on_share = on_progress or report
    on_read = partial(_reading, on_share, f"reading the weights of {card.id}")
    return digests.of(place, on_read) if place.is_dir() else digests.of_file(place, on_read)


def _reading(on_progress: OnProgress, activity: str, share: float) -> None:
    on_progress(share, activity)


def split_models(texts: Sequence[str]) -> Iterator[str]:
    """Yields the models of flags, each a list with commas."""
    for text in texts:
        yield from (each.strip() for each in text.split(",") if each.strip() or not Path(text).exists())
