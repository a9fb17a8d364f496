"""Resolves a model, a runtime and settings to the specification of a session, once, before anything loads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.artifacts.vllm_directories import vllm_directory
from workbench.core.errors import BadInput, Unavailable
from workbench.core.options import build_options, option_specs
from workbench.core.progress import OnProgress
from workbench.core.runtimes import RUNTIMES
from workbench.core.settings import SessionSpec, Settings
from workbench.decoding.ctc_options import CtcBeamOptions
from workbench.families import FAMILIES
from workbench.pipelines.detection.voice_activity import BUILT_IN
from workbench.registry.availability import default_runtime, why_not_runnable
from workbench.registry.cards import Card
from workbench.registry.catalogue import find_card, read_catalogue
from workbench.registry.context_length import check_context
from workbench.registry.domains import domain_file
from workbench.registry.settings import checked_settings
from workbench.registry.sources import fetch, local_checkpoint, on_disk
from workbench.registry.weights import gguf_file

NEURAL = "causal_lm"  # the family of language models that score the texts of a beam search


def resolve(
    model: str | Path | Card,
    runtime: str | None = None,
    settings: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    on_progress: OnProgress | None = None,
) -> SessionSpec:
    """Returns the specification of a session, which the session's process uses unchanged.

    Downloads the checkpoint first if the card names a repository, and converts it if the runtime needs that.

    Args:
        model: a card, or a name or path that `find_card` accepts.
        runtime: by default the model's own default runtime.
        settings: by name, see `workbench.core.settings.Settings`; the card has the value of a missing setting.
        options: by name, of the calls that will follow; they are checked before any download.
        on_progress: receives the progress of a download and a conversion, and may raise to stop it.

    Raises `BadInput` for an unknown model, setting or option, or a bad checkpoint, and `Unavailable` if the runtime
    or the source is missing.
    """
    card = model if isinstance(model, Card) else find_card(model, read_catalogue())
    if options is not None:
        check_options(card, options)
    chosen = runtime or default_runtime(card)
    if reason := why_not_runnable(card, chosen):
        raise Unavailable(f"{card.id} cannot run on {chosen}: {reason}")
    computing = checked_settings(settings or {}, card, chosen)
    if card.server is not None:
        return SessionSpec(card.id, card.family, chosen, Path(), computing, card.server, **_limits(card))
    checkpoint = fetch(card, on_progress)
    if RUNTIMES[chosen].opens_gguf:
        checkpoint, computing = gguf_file(card, checkpoint, computing, on_progress)
    if RUNTIMES[chosen].opens_vllm_directory:
        checkpoint = vllm_directory(checkpoint, card.family, on_progress)
    return SessionSpec(card.id, card.family, chosen, checkpoint, computing, **_limits(card))


def _limits(card: Card) -> dict[str, Any]:
    """Returns what a session has to know about its model's training data."""
    return {"domain": domain_file(card), "longest_segment_seconds": card.longest_segment_seconds}


def is_made(card: Card, runtime: str) -> bool:
    """Returns whether `resolve` converts the model's checkpoint for the runtime."""
    return card.kind not in ("gguf", "server") and (
        RUNTIMES[runtime].opens_gguf or RUNTIMES[runtime].opens_vllm_directory
    )


def check_options(card: Card, options: Mapping[str, Any], chat: bool = False) -> None:
    """Raises `BadInput` for an option that the model does not have, or a value that it cannot take.

    Args:
        chat: whether the options are those of conversations. Then a model that answers none is an error, too.
    """
    build_options(chat_options(card) if chat else options_class(card), resolve_options(options), card.id)
    check_context(card, options)


def options_class(card: Card) -> type[Any]:
    """Returns the dataclass of the model's options: of its checkpoint, if that is a directory on this machine."""
    family = FAMILIES[card.family]
    return family.options_class_of(local_checkpoint(card) if family.options_of else None)


def chat_options(card: Card) -> type[Any]:
    """Returns the dataclass of the options of conversations; raises `BadInput` if the model answers none."""
    conversation_options = FAMILIES[card.family].chat_options_class
    if conversation_options is None:
        raise BadInput(f"{card.id} cannot answer conversations; to chat, open a language model or a model that speaks")
    return conversation_options


def resolve_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options as a session takes them: paths of files that do not depend on the folder of a process, and
    the place of the checkpoint for the id of a model.
    """
    resolved = dict(options)
    for name in _FILE_OPTIONS & resolved.keys():
        if isinstance(resolved[name], (str, Path)):
            resolved[name] = str(Path(resolved[name]).absolute())
    return _with_detector(_with_language_model(resolved))


_FILE_OPTIONS = {spec.name for spec in option_specs(CtcBeamOptions) if spec.file}


def _with_language_model(options: dict[str, Any]) -> dict[str, Any]:
    """Returns the options with the place and the runtime of the language model of a beam search."""
    model, runtime = options.get("neural_lm"), options.get("neural_runtime")
    if not isinstance(model, (str, Path)) or not (runtime is None or isinstance(runtime, str)):
        return options
    spec = resolve(model, runtime)
    if spec.family != NEURAL or spec.server is not None:
        description = "a model on a server" if spec.server else f"a model of the family {spec.family}"
        raise BadInput(
            f"option neural_lm is {str(model)!r:.80}, {description}; expected a language model on this machine"
        )
    return {**options, "neural_lm": str(spec.checkpoint.absolute()), "neural_runtime": spec.runtime}


def guest_of(options: Mapping[str, Any]) -> SessionSpec | None:
    """Returns the language model that a call with these resolved options loads into the session's process, or None."""
    model, runtime = options.get("neural_lm"), options.get("neural_runtime")
    if not isinstance(model, str) or not isinstance(runtime, str):
        return None
    return SessionSpec(Path(model).name, NEURAL, runtime, Path(model), Settings())


def _with_detector(options: dict[str, Any]) -> dict[str, Any]:
    vad = options.get("vad")
    if not isinstance(vad, (str, Path)) or vad in BUILT_IN:
        return options
    expected = f"{', '.join(BUILT_IN)}, or the id, directory or GGUF file of an FSMN-VAD"
    catalogue = read_catalogue()
    if on_disk(vad)[1] is None and str(vad) not in catalogue.ids:
        raise BadInput(f"option vad is {str(vad)!r}; expected {expected}")
    card = find_card(vad, catalogue)
    if card.family != "fsmn_vad":
        raise BadInput(f"option vad is {str(vad)!r}, a model of the family {card.family}; expected {expected}")
    return {**options, "vad": str(fetch(card))}
