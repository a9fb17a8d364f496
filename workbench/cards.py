"""Model cards: the list of models, as data. Shipped cards lie beside this file, users' own in a file like it."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.errors import BadInput

SHIPPED = Path(__file__).with_name("cards.toml")
KEYS = {"id", "name", "family", "languages", "tasks", "licence", "source", "runtimes", "about", "megabytes"}
SOURCES = {"demo", "directory", "hub"}


@dataclass(frozen=True)
class Card:
    """One model: what it is, and where its checkpoint comes from."""

    id: str
    name: str
    family: str
    source: Mapping[str, str]  # one of SOURCES: a folder of assets/, a local directory, a hub repository
    languages: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ("transcribe",)
    licence: str = ""
    about: str = ""
    megabytes: int | None = None  # to download, where it comes from a hub
    runtimes: Mapping[str, str] = field(default_factory=dict)  # per runtime, why this model does not run there


def user_cards_path() -> Path:
    """Where users put their own cards: $WORKBENCH_MODELS, or models.toml in the configuration folder."""
    named = os.environ.get("WORKBENCH_MODELS")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "speech-workbench" / "models.toml"


def read_cards(path: Path) -> list[Card]:
    """The cards of a file of `[[model]]` tables; raises `BadInput` that names the file, the card and the key."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8")).get("model", [])
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"the model list {path} cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"the model list {path} is not valid TOML: {error}") from error
    if not isinstance(tables, list):
        raise BadInput(f"the model list {path} has no [[model]] tables")
    return [_card(table, path) for table in tables]


def _card(table: Mapping[str, Any], path: Path) -> Card:
    name = table.get("id")
    where = f"model {name!r} in {path.name}"
    if not isinstance(name, str) or not name:
        raise BadInput(f"a model in {path.name} has no id")
    unknown = set(table) - KEYS
    if unknown:
        raise BadInput(f"{where} has the unknown key {sorted(unknown)[0]}; known are {', '.join(sorted(KEYS))}")
    source = table.get("source")
    if not isinstance(source, Mapping) or len(source) != 1 or not set(source) <= SOURCES:
        raise BadInput(f"{where} needs a source: one of {', '.join(sorted(SOURCES))}")
    kind, place = next(iter(source.items()))
    if kind == "directory":
        place = str((path.parent / Path(place).expanduser()).resolve())
    if not isinstance(table.get("family"), str):
        raise BadInput(f"{where} needs a family, such as sensevoice")
    return Card(
        id=name,
        name=str(table.get("name", name)),
        family=table["family"],
        source={kind: str(place)},
        languages=tuple(table.get("languages", ())),
        tasks=tuple(table.get("tasks", ("transcribe",))),
        licence=str(table.get("licence", "")),
        about=str(table.get("about", "")),
        megabytes=table.get("megabytes"),
        runtimes=dict(table.get("runtimes", {})),
    )
