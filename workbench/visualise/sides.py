"""Parses the second side of a picture: another runtime, another type of weights, or another model.

`gguf`, `gguf:q8_0`, `pytorch:bf16` and `gguf+threads=1` are the same model elsewhere, as for `workbench parity`; `q8_0`
is short for `gguf:q8_0`; `demo/paraformer` is another model, and `demo/paraformer@gguf:q8_0` that model elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.core.errors import BadInput
from workbench.core.runtimes import RUNTIMES
from workbench.core.sides import Side, read_side
from workbench.formats.quantization import TYPES
from workbench.registry.cards import Card
from workbench.registry.registry import Registry
from workbench.registry.resolve import options_class
from workbench.visualise.scene import Scene

AT = "@"  # between a model and where it runs


def read_other(registry: Registry, text: str, card: Card) -> tuple[Card, Side]:
    """Returns the model and the side that a text names; the model is that of `card` unless the text names another.

    If the text names only a model, the side has no runtime.

    Raises `BadInput` for a text that is neither a runtime, a type of weights nor a model.
    """
    if not isinstance(text, str):
        raise BadInput(f"the second side is of type {type(text).__name__}; expected a text such as gguf:q8_0")
    side_text = text.strip()
    if side_text in TYPES:
        side_text = f"gguf:{side_text}"
    model, separator, place = side_text.rpartition(AT)
    if separator and _runs(place):
        card, side_text = registry.card(model), place
    elif not _runs(side_text):
        return _model(registry, side_text), Side(side_text)
    side = read_side(side_text, options_class(card), card.id)
    kind = side.settings.get("quantization", "auto")
    if kind not in (*TYPES, "auto"):
        raise BadInput(f"{kind!r:.40} in {text!r:.80} is not a type of weights; expected one of {', '.join(TYPES)}")
    return card, side


def _runs(text: str) -> bool:
    """Returns whether a text begins with the name of a runtime."""
    return text.partition("+")[0].partition(":")[0].strip() in RUNTIMES


def _model(registry: Registry, text: str) -> Card:
    try:
        return registry.card(text)
    except BadInput as error:
        raise BadInput(
            f"{text!r:.80} is neither a runtime ({', '.join(RUNTIMES)}, with a type as in gguf:q8_0) nor a type of "
            f"weights, and {error}"
        ) from error


def name_of(scene: Scene) -> str:
    """Returns the text that names an open session as a second side."""
    session = scene.session
    place = ":".join(filter(None, (session.runtime, session.quantization)))
    return f"{session.model}{AT}{'+'.join((place, *scene.changes))}"


def changes_of(settings: Mapping[str, Any], options: Mapping[str, Any] | None = None) -> tuple[str, ...]:
    """Returns settings and options as a side writes them, such as `dtype=bfloat16`; the quantisation is left out."""
    values = {**settings, **(options or {})}
    return tuple(f"{name}={_text_of(value)}" for name, value in values.items() if name != "quantization")


def _text_of(value: Any) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
