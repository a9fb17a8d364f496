"""The models and runtimes that the page and the routes offer: which can be chosen, and why others cannot.

It asks the registry and shows nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from workbench.core.errors import BadInput
from workbench.core.options import build_options, option_specs
from workbench.core.runtimes import RUNTIMES
from workbench.pipelines.detection.voice_activity import BUILT_IN
from workbench.registry.cards import Card
from workbench.registry.registry import Registry
from workbench.registry.resolve import NEURAL
from workbench.registry.weights import AUTO, Weights

SEPARATOR = "|"


@dataclass(frozen=True)
class ModelOnRuntime:
    """A model on a runtime, in one quantisation if the runtime has several."""

    model: str
    runtime: str
    quantization: str = ""

    @property
    def value(self) -> str:
        """The model on a runtime as one string, which `parse` reads."""
        return SEPARATOR.join(filter(None, (self.model, self.runtime, self.quantization)))

    @property
    def how(self) -> str:
        """The runtime's name on the page: `PyTorch`, `GGUF q8_0`."""
        return " ".join(filter(None, (runtime_title(self.runtime), self.quantization)))

    @classmethod
    def parse(cls, value: str) -> ModelOnRuntime:
        """Reads a model on a runtime from a string such as `demo/sensevoice|gguf|q8_0`; the default is PyTorch."""
        model, _, runtime_part = value.partition(SEPARATOR)
        runtime, _, quantization = runtime_part.partition(SEPARATOR)
        return cls(model.strip(), runtime.strip() or "pytorch", quantization.strip())


@dataclass(frozen=True)
class RuntimeOffer:
    """A model on a runtime as the page offers it."""

    cell: ModelOnRuntime
    card: Card
    ready: bool  # it can run now, perhaps after a conversion
    fetches: bool = False  # it can run after a download
    reason: str = ""  # why it is not ready
    weights: Weights | None = None  # the file, if the runtime opens GGUF files

    @property
    def possible(self) -> bool:
        return self.ready or self.fetches

    @property
    def elsewhere(self) -> bool:
        """Whether a server on another machine runs the model and receives the recordings."""
        return self.card.kind == "server"

    @property
    def title(self) -> str:
        return f"{self.card.name} · {self.cell.how}"


def runtime_title(runtime: str) -> str:
    """Returns the runtime's name on the page."""
    return RUNTIMES[runtime].title if runtime in RUNTIMES else runtime


def offers(registry: Registry, task: str = "transcribe") -> tuple[RuntimeOffer, ...]:
    """Returns every model for the task, on every runtime in every quantisation, those that can run first."""
    found = []
    for card in registry.cards():
        if task not in card.tasks:
            continue
        for runtime in RUNTIMES:
            state = registry.availability(card, runtime)
            known = registry.weights(card, runtime) if state.ready or state.fetches else ()
            for weights in known or (None,):
                cell = ModelOnRuntime(card.id, runtime, weights.quantization if weights else "")
                found.append(RuntimeOffer(cell, card, state.ready, state.fetches, state.reason or "", weights))
    return tuple(sorted(found, key=lambda offer: (not offer.ready, not offer.fetches)))


def chosen_offers(values: Iterable[str], all_offers: Sequence[RuntimeOffer]) -> tuple[RuntimeOffer, ...]:
    """Returns the offers of the values that a user sent, in their order, each once.

    A value without a quantisation means the default one. Raises `BadInput` if there is no value, or if one is not
    listed or cannot run: a public page opens no directory by its path.
    """
    found = [_offer(ModelOnRuntime.parse(value), all_offers) for value in values]
    if not found:
        raise BadInput("no model is chosen; tick at least one")
    return tuple({offer.cell: offer for offer in found}.values())


def _offer(cell: ModelOnRuntime, all_offers: Sequence[RuntimeOffer]) -> RuntimeOffer:
    runtime_offers = [
        offer for offer in all_offers if (offer.cell.model, offer.cell.runtime) == (cell.model, cell.runtime)
    ]
    if not runtime_offers:
        models = ", ".join(dict.fromkeys(offer.cell.model for offer in all_offers))
        raise BadInput(f"there is no {cell.model!r:.80} on {cell.runtime!r:.40} here; the models are {models}")
    if not runtime_offers[0].possible:
        raise BadInput(f"{runtime_offers[0].title} cannot run: {runtime_offers[0].reason}")
    if cell.quantization in ("", AUTO):
        usual = (offer for offer in runtime_offers if offer.weights is None or offer.weights.default)
        return next(usual, replace(runtime_offers[0], cell=replace(cell, quantization=AUTO), weights=None))
    for offer in runtime_offers:
        if offer.cell == cell:
            return offer
    quantizations = ", ".join(offer.cell.quantization for offer in runtime_offers) or "as the checkpoint has them"
    raise BadInput(
        f"there is no {cell.quantization!r:.40} of {cell.model} on {cell.runtime}; its weights are {quantizations}"
    )


def vad_choices(registry: Registry) -> tuple[str, ...]:
    """Returns the values of the option `vad` on the page: the built-in names and the listed FSMN-VAD models."""
    return (*BUILT_IN, *(card.id for card in registry.cards() if "vad" in card.tasks))


def neural_choices(registry: Registry) -> tuple[str, ...]:
    """Returns the values of the option `neural_lm` on the page: the listed language models on this machine."""
    return tuple(card.id for card in registry.cards() if card.family == NEURAL and card.server is None)


def options_for(
    registry: Registry, model: str, options: Mapping[str, Any], uploaded: Callable[[Any], bool] = lambda path: False
) -> dict[str, Any]:
    """Returns those of the options that the model has, with checked values.

    Args:
        uploaded: whether a value is the path of a file that the user has uploaded.

    Raises `BadInput` for an invalid value. Paths of this machine are invalid, except those of uploaded files, as the
    page may be open to other machines.
    """
    options_class = registry.options_class(model)
    names = options_class.__dataclass_fields__
    own_options = {name: value for name, value in options.items() if name in names}
    check_places(registry, own_options)
    for spec in option_specs(options_class):
        if spec.file and own_options.get(spec.name) is not None and not uploaded(own_options[spec.name]):
            raise BadInput(
                f"option {spec.name} is {own_options[spec.name]!r:.80}; expected a file that was uploaded to this page"
            )
    build_options(options_class, own_options, model)
    return own_options


def check_places(registry: Registry, options: Mapping[str, Any]) -> None:
    """Raises `BadInput` for options that name another model by a path, not by a name of the catalogue."""
    if options.get("vad") not in (None, *vad_choices(registry)):
        raise BadInput(f"option vad is {options['vad']!r:.80}; expected one of {', '.join(vad_choices(registry))}")
    if options.get("neural_lm") not in (None, *neural_choices(registry)):
        raise BadInput(
            f"option neural_lm is {options['neural_lm']!r:.80}; expected one of {', '.join(neural_choices(registry))}"
        )


def check_options_known(registry: Registry, models: Iterable[str], options: Mapping[str, Any]) -> None:
    """Raises `BadInput` for an option that none of the models has."""
    known = {name for model in models for name in registry.options_class(model).__dataclass_fields__}
    for name in options:
        if name not in known:
            raise BadInput(
                f"none of the chosen models has an option {name!r:.80}; they have {', '.join(sorted(known))}"
            )
