"""The command `workbench options MODEL`: lists the options of the model's calls and the settings of its sessions.

It loads no model. A model that is not on this machine yet has the same options.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.core.options import OptionSpec, option_specs
from workbench.core.runtimes import RUNTIMES
from workbench.families import FAMILIES, Family
from workbench.registry.availability import SERVED
from workbench.registry.cards import Card
from workbench.registry.registry import Registry
from workbench.registry.resolve import options_class
from workbench.registry.settings import settings_for
from workbench.registry.signatures import KINDS, range_of, runtimes_of
from workbench.session.values import CONVERSATION, PROMPT, RECORDING

CALLS: Mapping[str, Sequence[str]] = {RECORDING: ("transcribe",), PROMPT: ("generate", "inject"), CONVERSATION: ()}
COLUMNS = ("flag", "type", "default", "runtimes")


def option_lines(registry: Registry, model: str, as_json: bool = False) -> list[str]:
    """Returns the lines to print; raises `BadInput` for an unknown model."""
    card = registry.card(model)
    found = describe_options(card)
    if as_json:
        return [json.dumps(found, indent=1, ensure_ascii=False)]
    lines = [f"{card.id}: {FAMILIES[card.family].title}, on {', '.join(found['runtimes'])}"]
    lines += ["", f"options of {', '.join(found['calls'])}"]
    lines += _table(found["options"])
    if found["chat_options"]:
        lines += ["", "further options of chat"]
        lines += _table(found["chat_options"])
    if found["settings"]:
        lines += ["", "how it computes"]
        lines += _table(found["settings"])
    lacking = [
        f"  {runtime}: no {part}: {why}"
        for runtime, parts in found["not_inside"].items()
        for part, why in parts.items()
    ]
    if lacking:
        lines += ["", "stages inside a layer, such as X.layers.0.attention.query, that a trace does not have", *lacking]
    return lines


def describe_options(card: Card) -> dict[str, Any]:
    """Returns the options and settings of a model as plain JSON values.

    `calls` are the commands that take the options; `chat` takes `chat_options` too. `runtimes` are those that can run
    the model, whether or not they are installed; `not_inside` says which stages inside a layer they do not show, and
    why. For a setting, `defaults` holds the values from the model's card by
    runtime.
    """
    family = FAMILIES[card.family]
    runtimes = _runtimes(card, family)
    settings: dict[str, dict[str, Any]] = {}
    for runtime in runtimes:
        for spec in settings_for(card, runtime).values():
            entry = _entry(spec)
            known = settings.setdefault(spec.name, {**entry, "defaults": {}, "runtimes": []})
            known["choices"] = list(dict.fromkeys([*known["choices"], *entry["choices"]]))
            known["defaults"][runtime] = card.settings.get(runtime, {}).get(spec.name, spec.default)
            known["runtimes"].append(runtime)
    options = option_specs(options_class(card))
    return {
        "model": card.id,
        "family": family.name,
        "calls": [*CALLS[family.input], *(["chat"] if family.chat_options_class else []), "trace"],
        "runtimes": runtimes,
        "options": [_option(spec, family, runtimes) for spec in options],
        "chat_options": [_option(spec, family, runtimes) for spec in _chat_options(family)],
        "settings": list(settings.values()),
        # Only language models, which have a cache of keys and values, lack such stages.
        "not_inside": {
            name: dict(RUNTIMES[name].missing_inner_stages)
            for name in runtimes
            if name in RUNTIMES and "kv_cache" in settings
        },
    }


def _chat_options(family: Family) -> list[OptionSpec]:
    """Returns the options that only conversations have, not the family's other calls."""
    if family.chat_options_class is None:
        return []
    known = option_specs(family.options_class)
    return [spec for spec in option_specs(family.chat_options_class) if spec not in known]


def _option(spec: OptionSpec, family: Family, runtimes: Sequence[str]) -> dict[str, Any]:
    return {**_entry(spec), "runtimes": [each for each in runtimes_of(spec, family.name) if each in runtimes]}


def _runtimes(card: Card, family: Family) -> list[str]:
    """Returns the runtimes that can run the model once they are installed."""
    found = [name for name in RUNTIMES if family.cell(name).module and name not in card.runtimes]
    if card.kind == "server":
        return [SERVED]
    return [name for name in found if card.kind != "gguf" or RUNTIMES[name].opens_gguf]


def _entry(spec: OptionSpec) -> dict[str, Any]:
    flag = "--" + spec.name.replace("_", "-")
    return {
        "name": spec.name,
        "flag": f"{flag}, --no-{flag[2:]}" if spec.kind is bool else flag,
        "type": KINDS[spec.kind],
        "default": spec.default,
        "choices": list(spec.choices),
        "minimum": spec.minimum,
        "maximum": spec.maximum,
        "range": range_of(spec),
        "help": spec.help,
    }


def _table(entries: Sequence[dict[str, Any]]) -> list[str]:
    """Returns a line for each entry: flag, type, default, runtimes, help."""
    rows = []
    for each in entries:
        defaults = list(dict.fromkeys(map(_value_text, each.get("defaults", {"": each["default"]}).values())))
        meaning = "; ".join(filter(None, (each["help"], each["range"])))
        rows.append((each["flag"], each["type"], "/".join(defaults), ",".join(each["runtimes"]), meaning))
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    return ["  " + "  ".join([*map(str.ljust, row, widths), row[-1]]) for row in rows]


def _value_text(value: Any) -> str:
    if value is None or value in ((), ""):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)
