"""The settings that a model has on a runtime, and their choices: one rule lists them and checks them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from workbench.core.errors import BadInput
from workbench.core.options import OptionSpec
from workbench.core.runtimes import RUNTIMES
from workbench.core.settings import Settings, check_setting, settings_of
from workbench.families import FAMILIES
from workbench.formats.quantization import AUTO, TYPES
from workbench.registry.cards import Card
from workbench.registry.weights import check_quantization

HALF_PRECISION = ("bfloat16", "float16")  # what `stepwise` computes in
FULL_PRECISION = ("float32", "float64")  # what a whole network computes in otherwise
OF_LANGUAGE_MODELS = ("kv_cache",)  # settings that apply to nothing else


def settings_for(card: Card, runtime: str) -> dict[str, OptionSpec]:
    """Returns the settings of a model on a runtime, by name, with their choices; none for a model on a server."""
    if card.kind == "server":
        return {}
    specs = dict(settings_of(runtime))
    if "dtype" in specs:
        steps = (False, True) if "stepwise" in specs else (False,)
        possible = {name for stepwise in steps for name in dtypes_for(card, runtime, stepwise)}
        choices = tuple(name for name in specs["dtype"].choices if name in possible)
        specs["dtype"] = replace(specs["dtype"], choices=choices)
    if "quantization" in specs:
        specs["quantization"] = replace(specs["quantization"], choices=(AUTO, *TYPES))
    return {name: spec for name, spec in specs.items() if _applies(name, card)}


def dtypes_for(card: Card, runtime: str, stepwise: bool) -> tuple[str, ...]:
    """Returns the types of arithmetic that a model has on a runtime, with the setting `stepwise` on or off.

    Without a language model, only some families compute in 16 bits when they do not do so stepwise.
    """
    dtypes = RUNTIMES[runtime].dtypes
    if stepwise:
        return tuple(name for name in dtypes if name in HALF_PRECISION)
    family = FAMILIES[card.family]
    return (
        dtypes
        if family.has_language_model or family.mixed
        else tuple(name for name in dtypes if name in FULL_PRECISION)
    )


def checked_settings(arguments: Mapping[str, Any], card: Card, runtime: str) -> Settings:
    """Returns the caller's settings; a setting that is None takes the card's value.

    Raises `BadInput` for an invalid value, or for one that this model cannot have on this runtime.
    """
    own_settings = {
        name: check_setting(name, value, f"{name} is {value!r:.80}")
        for name, value in arguments.items()
        if value is not None
    }
    settings = Settings(**{**card.settings.get(runtime, {}), **own_settings})
    for setting in fields(settings):
        value = getattr(settings, setting.name)
        if value != setting.default:
            _check(setting.name, value, setting.default, settings, card, runtime)
    return settings


def _check(name: str, value: Any, default: Any, settings: Settings, card: Card, runtime: str) -> None:
    """Raises `BadInput` for a value that a setting cannot have. The value is not the default."""
    if card.kind == "server":
        raise BadInput(f"{name} is {value}, and the server of {card.id} decides that; leave it out")
    if not RUNTIMES[runtime].accepts(name, value):
        lack = "does not compute in it" if name in RUNTIMES[runtime].settings else "has no such setting"
        runtimes = " or ".join(each for each in RUNTIMES if RUNTIMES[each].accepts(name, value))
        raise BadInput(f"{name} is {value}, and {runtime} {lack}; leave it out, or choose {runtimes}")
    if name == "quantization":
        check_quantization(card, value)
    if name == "stepwise" and settings.dtype not in dtypes_for(card, runtime, stepwise=True):
        raise BadInput(
            f"stepwise is on, and dtype is {settings.dtype}; expected {' or '.join(HALF_PRECISION)} beside it"
        )
    wrong_type = name == "dtype" and not settings.stepwise and value not in dtypes_for(card, runtime, stepwise=False)
    if wrong_type:
        expected = " or ".join(dtypes_for(card, runtime, stepwise=False))
        raise BadInput(f"{name} is {value}, and {card.id} does not compute in it; expected {expected}")
    if name in OF_LANGUAGE_MODELS and not _applies(name, card):
        raise BadInput(
            f"{name} is {value}, and {card.id} has no language model that it would apply to; expected {default}"
        )


def _applies(name: str, card: Card) -> bool:
    """Returns whether a setting of the runtime has an effect on a model."""
    if name == "quantization":
        return card.kind != "gguf"  # the file has one
    return name not in OF_LANGUAGE_MODELS or FAMILIES[card.family].has_language_model
