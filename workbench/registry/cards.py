"""Model cards, the list of models as data. Shipped cards lie beside this file; users have a file of the same form."""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from workbench.core.errors import BadInput
from workbench.core.options import MAX_SEGMENT_SECONDS
from workbench.core.runtimes import RUNTIMES
from workbench.core.settings import Server, check_setting
from workbench.families import FAMILIES
from workbench.system.user_cache import user_config

SHIPPED = Path(__file__).with_name("cards.toml")
KEYS = {
    "id",
    "name",
    "family",
    "languages",
    "tasks",
    "licence",
    "source",
    "runtimes",
    "settings",
    "about",
    "megabytes",
    "visitors",
    "domain",
    "longest_segment_seconds",
}
SOURCES = {"demo", "directory", "gguf", "hub", "server"}
FURTHER_KEYS = {  # further keys of a source, and what each is
    "gguf": {"language": "language file"},
    "server": {"model": "model name", "key": "key"},
}
NOT_IN_IDS = "|"  # stands between a model's id and its runtime on the page
MAX_MEGABYTES = 10**9


@dataclass(frozen=True)
class Card:
    """One model: what it is, and where its checkpoint comes from."""

    id: str
    name: str
    family: str
    source: Mapping[str, str]  # one of SOURCES with its place, and maybe further keys from FURTHER_KEYS
    languages: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ("transcribe",)
    licence: str = ""
    about: str = ""
    megabytes: int | None = None  # size of the download, if it comes from a hub
    runtimes: Mapping[str, str] = field(default_factory=dict)  # per runtime, why this model does not run there
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # per runtime, the defaults of a session
    visitors: bool = False  # whether visitors of a public server may have it downloaded
    domain: str = ""  # what it was made for: the name of a file in assets/domains, or the path of another such file
    longest_segment_seconds: float | None = None  # the longest segment that it was trained on

    @property
    def kind(self) -> str:
        """Which of SOURCES the model comes from."""
        return next(kind for kind in self.source if kind in SOURCES)

    @property
    def place(self) -> str:
        """The model's place: a folder of assets/, a local directory or file, a hub repository, or an address."""
        return self.source[self.kind]

    @property
    def server(self) -> Server | None:
        """The server that runs the model; None if it runs on this machine."""
        if self.kind != "server":
            return None
        return Server(self.place, self.source.get("model", ""), self.source.get("key", ""))


@dataclass(frozen=True)
class BadCard:
    """A card that cannot be used, or an error of the list itself."""

    id: str  # empty if the card has none, or if the error is in the list itself
    reason: str  # a sentence that names the list, and the card if there is one

    def to_dict(self) -> dict[str, Any]:
        """Returns plain JSON values with the keys of a usable card; it is ready on no runtime."""
        return {
            "id": self.id,
            "name": self.id,
            "family": "",
            "languages": [],
            "tasks": [],
            "licence": "",
            "source": {},
            "runtimes": {name: {"ready": False, "reason": self.reason} for name in RUNTIMES},
        }


def user_cards_path() -> Path:
    """Returns the file of the user's own cards: $WORKBENCH_MODELS, or models.toml in the configuration folder."""
    value = os.environ.get("WORKBENCH_MODELS")
    return Path(value) if value else user_config() / "models.toml"


def read_cards(path: Path) -> list[Card]:
    """Returns the cards in a file of `[[model]]` tables; raises `BadInput` with the file, the card and the key."""
    cards, bad = read_list(path)
    if bad:
        raise BadInput(bad[0].reason)
    return cards


def read_list(path: Path) -> tuple[list[Card], list[BadCard]]:
    """Returns the usable cards in a file of `[[model]]` tables, and the errors of the other cards and of the file.

    If several cards have the same id, none of them is usable, because it is unclear which one is meant.
    """
    try:
        content = _parsed(path)
    except BadInput as error:
        return [], [BadCard("", str(error))]
    tables = content.pop("model", [])
    bad = [
        BadCard("", f"the model list {path} has the unknown entry {name:.80}; expected [[model]] tables only")
        for name in content
    ]
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        sentence = f"in the model list {path}, model is not a list of tables; begin each with [[model]]"
        return [], [*bad, BadCard("", sentence)]
    ids = [table.get("id") for table in tables]
    cards = []
    for number, table in enumerate(tables):
        try:
            card = _card(table, path)
            if ids.count(card.id) == 1:
                cards.append(card)
            elif ids.index(card.id) == number:
                bad.append(BadCard(card.id, f"model {card.id!r} appears more than once in {path}"))
        except BadInput as error:
            bad.append(BadCard(ids[number] if isinstance(ids[number], str) else "", str(error)))
    return cards, bad


def _parsed(path: Path) -> dict[str, Any]:
    """What the file says; raises `BadInput` that names the line that is not TOML."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # reading a FIFO or a device would never end
            raise BadInput(f"the model list {path} cannot be read: it is not an ordinary file")
        content = path.read_bytes()
    except OSError as error:
        raise BadInput(f"the model list {path!s:.200} cannot be read: {error.strerror or error}") from error
    try:
        return tomllib.loads(content.decode("utf-8-sig"))  # editors of Windows begin files with a mark
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BadInput(f"the model list {path} cannot be read: line {line} is not UTF-8") from error
    except ValueError as error:  # not TOML, or a number with too many digits
        raise BadInput(f"the model list {path} is not valid TOML: {error}") from error
    except RecursionError as error:
        raise BadInput(f"the model list {path} is not valid TOML: its brackets are nested too deeply") from error


def _card(table: Mapping[str, Any], path: Path) -> Card:
    name = table.get("id")
    if not isinstance(name, str) or not name:
        raise BadInput(f"a model in {path.name} has no id")
    where = f"model {name!r:.80} in {path.name}"
    if not name.isprintable() or name != name.strip() or NOT_IN_IDS in name:
        raise BadInput(f"{where} has an id that cannot be asked for; expected letters, digits and signs without |")
    unknown = set(table) - KEYS
    if unknown:
        raise BadInput(f"{where} has the unknown key {min(unknown):.80}; known are {', '.join(sorted(KEYS))}")
    for key, (fits, expected) in _EXPECTED.items():
        if key in table and not fits(table[key]):
            raise BadInput(f"{where} has {key} = {_value_text(table[key])}; expected {expected}")
    if "family" not in table:
        raise BadInput(f"{where} needs a family, such as sensevoice")
    source = _source(table.get("source"), path, where)
    known = FAMILIES.get(table["family"])  # the catalogue checks whether the family exists
    return Card(
        id=name,
        name=table.get("name", name),
        family=table["family"],
        source=source,
        languages=tuple(table.get("languages", ())),
        tasks=tuple(table.get("tasks", known.tasks if known else ("transcribe",))),
        licence=table.get("licence", ""),
        about=table.get("about", ""),
        megabytes=table.get("megabytes"),
        visitors=table.get("visitors", False),
        domain=_domain(table.get("domain", ""), path.parent),
        longest_segment_seconds=table.get("longest_segment_seconds"),
        runtimes=dict(table.get("runtimes", {})),
        settings={
            runtime: _settings(card_settings, runtime, where)
            for runtime, card_settings in table.get("settings", {}).items()
        },
    )


def _value_text(value: Any) -> str:
    """Returns a value in a form that fits into a message."""
    try:
        return f"{value!r:.80}"
    except ValueError:  # a whole number with more digits than Python writes
        return "a number with thousands of digits"


def _settings(settings: Mapping[str, Any], runtime: str, where: str) -> dict[str, Any]:
    """Returns the settings of a card on a runtime, each with its type."""
    if runtime not in RUNTIMES:
        raise BadInput(f"{where} has settings for {runtime:.80}; expected one of {', '.join(RUNTIMES)}")
    known = [name for name in RUNTIMES[runtime].settings if name != "quantization"]  # chosen by itself
    for name in settings:
        if name not in known:
            raise BadInput(f"{where} has the setting {name:.80} of {runtime}; expected one of {', '.join(known)}")
    return {
        name: check_setting(name, value, f"{where} has settings.{runtime}.{name} = {_value_text(value)}", runtime)
        for name, value in settings.items()
    }


def _source(source: Any, path: Path, where: str) -> dict[str, str]:
    """Returns the source of a card with absolute paths."""
    kinds = (
        set(source) - {name for names in FURTHER_KEYS.values() for name in names}
        if isinstance(source, Mapping)
        else set()
    )
    if len(kinds) != 1 or not kinds <= SOURCES:
        raise BadInput(f"{where} needs a source: one of {', '.join(sorted(SOURCES))}")
    [kind] = kinds
    for key in sorted(set(source) - {kind} - FURTHER_KEYS.get(kind, {}).keys()):
        having = next(kind_of_key for kind_of_key in FURTHER_KEYS if key in FURTHER_KEYS[kind_of_key])
        raise BadInput(
            f"{where} has a {FURTHER_KEYS[having][key]} beside its {kind}; expected one beside a {having} only"
        )
    for name, place in source.items():
        if not isinstance(place, str) or not place:
            raise BadInput(f"{where} has the source {name} = {_value_text(place)}; expected text")
        if "\0" in place:
            raise BadInput(f"{where} has a null character in its source {name}; expected text without one")
    if kind == "server":
        return _server(source, where)
    try:
        return {name: _absolute(name, path.parent, place) for name, place in source.items()}
    except RuntimeError as error:  # the home of a user who is not there
        raise BadInput(
            f"{where} has the source {kind} = {_value_text(source[kind])}, and there is no such user"
        ) from error


def _server(source: Mapping[str, str], where: str) -> dict[str, str]:
    """Returns the source of a card on a server; its address ends before /v1."""
    address = source["server"].strip()
    try:
        parts = urlsplit(address)
        is_address = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or re.search(r"\s", address) or "@" in parts.netloc or parts.query or parts.fragment:
        raise BadInput(
            f"{where} has the source server = {address!r:.200}; expected an address such as http://localhost:8000"
        )
    if "key" in source and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", source["key"]):
        raise BadInput(  # does not show the value, which may be the key itself
            f"the key in the source of {where} is not a name; expected an environment variable that holds the key"
        )
    return {**source, "server": address.rstrip("/").removesuffix("/v1").rstrip("/")}


def _absolute(kind: str, folder: Path, place: str) -> str:
    """Returns the absolute path of a directory or a file; returns other places unchanged."""
    if kind == "directory":
        return os.path.realpath(folder / Path(place).expanduser())
    if kind in ("gguf", "language"):
        path = folder / Path(place).expanduser()
        return str(Path(os.path.realpath(path.parent)) / path.name)  # keeps a link's name, as in the hub's cache
    return place


def _domain(domain: str, folder: Path) -> str:
    """Returns a domain's name, or the absolute path of a file if the card names one."""
    return _absolute("gguf", folder, domain) if domain.endswith(".safetensors") else domain


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_list_of_text(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _is_table_of_text(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_text, value.values()))


def _is_table_of_tables(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(each, dict) for each in value.values())


def _is_megabytes(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_MEGABYTES


def _is_length(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 1 <= value <= MAX_SEGMENT_SECONDS


_EXPECTED: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("name", "family", "licence", "about", "domain"), (_is_text, "text")),
    **dict.fromkeys(("languages", "tasks"), (_is_list_of_text, 'a list of texts, such as ["en"]')),
    "runtimes": (_is_table_of_text, 'a sentence per runtime, such as { vllm = "why not" }'),
    "settings": (_is_table_of_tables, "a table per runtime, such as { vllm = { max_length = 4096 } }"),
    "megabytes": (_is_megabytes, f"a whole number of at most {MAX_MEGABYTES}"),
    "longest_segment_seconds": (_is_length, f"a number of seconds from 1 to {MAX_SEGMENT_SECONDS:g}"),
    "visitors": (lambda value: isinstance(value, bool), "true or false"),
}
