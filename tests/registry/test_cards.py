"""Model cards: the shipped list, every key of a card, and errors for invalid lists."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.core.errors import BadInput
from workbench.core.runtimes import RUNTIMES
from workbench.core.settings import Server
from workbench.families import FAMILIES
from workbench.registry.cards import KEYS, SHIPPED, Card, read_cards

GOOD = """
[[model]]
id = "mine"
family = "sensevoice"
source = { directory = "checkpoint" }
"""


def write(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_the_shipped_cards_are_complete() -> None:
    cards = read_cards(SHIPPED)
    assert {"demo/sensevoice", "demo/paraformer", "sensevoice-small"} <= {card.id for card in cards}
    for card in cards:
        assert card.family in FAMILIES
        assert card.runtimes.keys() <= RUNTIMES.keys()
        assert card.name and card.licence and card.about
        assert ("hub" in card.source) == (card.megabytes is not None), "a card with a download states its size"


def test_card_with_required_keys_uses_defaults(tmp_path: Path) -> None:
    [card] = read_cards(write(tmp_path / "models.toml", GOOD))
    assert card == Card("mine", "mine", "sensevoice", {"directory": str(tmp_path / "checkpoint")})
    assert card.tasks == ("transcribe",)


@pytest.mark.parametrize(
    ("family", "tasks"),
    [
        ("paraformer", ("transcribe",)),
        ("fsmn_vad", ("vad",)),
        ("funasr_nano", ("transcribe", "converse")),
        ("speechlm", ("converse",)),
        ("causal_lm", ("generate", "converse")),
    ],
)
def test_card_without_tasks_has_those_of_its_family(family: str, tasks: tuple[str, ...], tmp_path: Path) -> None:
    [card] = read_cards(write(tmp_path / "models.toml", GOOD.replace("sensevoice", family)))
    assert card.tasks == tasks


def test_every_key_of_a_card_is_read(tmp_path: Path) -> None:
    text = """
        [[model]]
        id = "full"
        name = "All of it"
        family = "paraformer"
        languages = ["zh", "en"]
        tasks = ["transcribe"]
        licence = "MIT"
        source = { hub = "owner/repository" }
        runtimes = { vllm = "it cannot" }
        settings = { pytorch = { dtype = "bfloat16" }, vllm = { max_length = 4096, kv_gigabytes = 4, eager = false } }
        about = "An example."
        megabytes = 12
        visitors = true
        domain = "english-digits"
        longest_segment_seconds = 7.5
    """
    [card] = read_cards(write(tmp_path / "models.toml", text))
    assert card == Card(
        "full",
        "All of it",
        "paraformer",
        {"hub": "owner/repository"},
        ("zh", "en"),
        ("transcribe",),
        "MIT",
        "An example.",
        12,
        {"vllm": "it cannot"},
        {"pytorch": {"dtype": "bfloat16"}, "vllm": {"max_length": 4096, "kv_gigabytes": 4.0, "eager": False}},
        visitors=True,
        domain="english-digits",
        longest_segment_seconds=7.5,
    )
    assert isinstance(card.settings["vllm"]["kv_gigabytes"], float), "the value has its declared type"
    assert all(key in text for key in KEYS)


def test_directory_paths_may_be_relative_absolute_or_in_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    places = {"a": "../below", "b": str(tmp_path / "absolute"), "c": "~/checkpoint"}
    text = "".join(GOOD.replace("mine", name).replace('"checkpoint"', f'"{place}"') for name, place in places.items())
    directories = [card.source["directory"] for card in read_cards(write(tmp_path / "lists" / "models.toml", text))]
    assert directories == [str(tmp_path / name) for name in ("below", "absolute", "home/checkpoint")]


def test_gguf_paths_of_a_card_are_relative_to_the_list_and_keep_link_names(tmp_path: Path) -> None:
    (tmp_path / "blob").touch()
    (tmp_path / "encoder.gguf").symlink_to(tmp_path / "blob")
    text = GOOD.replace('directory = "checkpoint"', 'gguf = "encoder.gguf", language = "../llm.gguf"')
    [card] = read_cards(write(tmp_path / "models.toml", text))
    assert card.source == {"gguf": str(tmp_path / "encoder.gguf"), "language": str(tmp_path.parent / "llm.gguf")}
    assert (card.kind, card.place) == ("gguf", str(tmp_path / "encoder.gguf"))


def server_card(source: str) -> str:
    return GOOD.replace('directory = "checkpoint"', source)


@pytest.mark.parametrize(
    "address", ["http://host:8000", "http://host:8000/", " http://host:8000/v1", "http://host:8000/v1/"]
)
def test_server_address_is_stored_without_v1(tmp_path: Path, address: str) -> None:
    [card] = read_cards(write(tmp_path / "models.toml", server_card(f'server = "{address}"')))
    assert (card.kind, card.place, card.server) == ("server", "http://host:8000", Server("http://host:8000", "", ""))


def test_server_card_may_name_a_model_and_a_key_variable(tmp_path: Path) -> None:
    source = 'server = "https://[::1]/models/a", model = "org/name", key = "MY_KEY"'
    [card] = read_cards(write(tmp_path / "models.toml", server_card(source)))
    assert card.server == Server("https://[::1]/models/a", "org/name", "MY_KEY")


def test_shipped_cards_have_no_server() -> None:
    assert not [card.id for card in read_cards(SHIPPED) if card.server]


def test_literal_key_in_the_list_is_refused_without_repeating_it(tmp_path: Path) -> None:
    source = 'server = "http://host:8000", key = "sk-very-secret"'
    with pytest.raises(BadInput, match=r"the key in the source of .* is not a name; expected an environment") as caught:
        read_cards(write(tmp_path / "models.toml", server_card(source)))
    assert "secret" not in str(caught.value)


def test_a_file_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    assert [card.id for card in read_cards(write(tmp_path / "m.toml", b"\xef\xbb\xbf" + GOOD.encode()))] == ["mine"]


def test_empty_list_file_gives_no_cards(tmp_path: Path) -> None:
    assert read_cards(write(tmp_path / "models.toml", "# none yet\n")) == []


BROKEN = {
    "no TOML": ("id: mine\n", r"models\.toml is not valid TOML: .*line 1"),
    "bytes": (b"\xff\xfe\x00[[model]]", r"models\.toml cannot be read"),
    "misspelt table": (GOOD.replace("[[model]]", "[[models]]"), r"unknown entry models; expected \[\[model\]\] tables"),
    "one table": (GOOD.replace("[[model]]", "[model]"), r"begin each with \[\[model\]\]"),
    "list of texts": ('model = ["mine"]\n', r"begin each with \[\[model\]\]"),
    "no id": (GOOD.replace('id = "mine"', ""), "a model in models.toml has no id"),
    "number as id": (GOOD.replace('"mine"', "7"), "a model in models.toml has no id"),
    "twice": (GOOD + GOOD, "model 'mine' appears more than once"),
    "unknown key": (GOOD + 'language = "en"\n', "model 'mine' in models.toml has the unknown key language; known are"),
    "no family": (GOOD.replace('family = "sensevoice"', ""), "needs a family"),
    "family of the wrong kind": (GOOD.replace('"sensevoice"', "1"), "has family = 1; expected text"),
    "no source": (
        GOOD.replace("source", "about").replace('{ directory = "checkpoint" }', '"x"'),
        "needs a source: one of",
    ),
    "two sources": (GOOD.replace("{ ", '{ hub = "a/b", '), "needs a source: one of demo, directory, gguf, hub"),
    "unknown source": (GOOD.replace("directory", "url"), "needs a source: one of demo, directory, gguf, hub"),
    "source of the wrong kind": (GOOD.replace('"checkpoint"', "5"), "has the source directory = 5; expected text"),
    "empty source": (GOOD.replace('"checkpoint"', '""'), "has the source directory = ''; expected text"),
    "language file of a directory": (
        GOOD.replace('"checkpoint"', '"checkpoint", language = "llm.gguf"'),
        "has a language file beside its directory; expected one beside a gguf only",
    ),
    **{
        f"address {place}": (
            GOOD.replace('directory = "checkpoint"', f'server = "{place}"'),
            "has the source server = .*; expected an address such as http://localhost:8000",
        )
        for place in (
            "host:8000",
            "ftp://host",
            "http://",
            "http://host:port",
            "http://host:99999",
            "http://me:secret@host",
            "http://host/?key=1",
            "http://the host",
        )
    },
    "name on a server of a directory": (
        GOOD.replace('"checkpoint"', '"checkpoint", model = "a"'),
        "has a model name beside its directory; expected one beside a server only",
    ),
    "language file of a server": (
        GOOD.replace('directory = "checkpoint"', 'server = "http://host", language = "llm.gguf"'),
        "has a language file beside its server; expected one beside a gguf only",
    ),
    "name on a server of the wrong kind": (
        GOOD.replace('directory = "checkpoint"', 'server = "http://host", model = 5'),
        "has the source model = 5; expected text",
    ),
    "language file of nothing": (GOOD.replace("directory", "language"), "needs a source: one of demo, directory, gguf"),
    "language file of the wrong kind": (
        GOOD.replace('directory = "checkpoint"', 'gguf = "a.gguf", language = 5'),
        "has the source language = 5; expected text",
    ),
    "languages as text": (
        GOOD + 'languages = "en"\n',
        r"has languages = 'en'; expected a list of texts, such as \[\"en\"\]",
    ),
    "languages as numbers": (GOOD + "languages = [1]\n", r"has languages = \[1\]; expected a list of texts"),
    "runtimes as a list": (GOOD + 'runtimes = ["vllm"]\n', "expected a sentence per runtime"),
    "settings as a list": (GOOD + "settings = [1]\n", r"has settings = \[1\]; expected a table per runtime, such as"),
    "settings without a runtime": (GOOD + 'settings = { dtype = "auto" }\n', "expected a table per runtime"),
    "settings of an unknown runtime": (
        GOOD + "settings = { onnx = { threads = 1 } }\n",
        "has settings for onnx; expected one of pytorch, gguf, vllm",
    ),
    "unknown setting": (
        GOOD + "settings = { vllm = { device = 1 } }\n",
        "has the setting device of vllm; expected one of threads, dtype, max_length, kv_gigabytes, tensor_parallel",
    ),
    "a quantization by default": (
        GOOD + 'settings = { gguf = { quantization = "f16" } }\n',
        "has the setting quantization of gguf; expected one of threads, kv_cache",
    ),
    "setting of the wrong kind": (
        GOOD + 'settings = { vllm = { eager = "no" } }\n',
        r"has settings\.vllm\.eager = 'no'; expected true or false",
    ),
    "setting that is no choice": (
        GOOD + 'settings = { vllm = { dtype = "float64" } }\n',
        r"has settings\.vllm\.dtype = 'float64'; expected one of auto, float32, bfloat16, float16",
    ),
    "setting that is too small": (
        GOOD + "settings = { vllm = { tensor_parallel = 0 } }\n",
        r"has settings\.vllm\.tensor_parallel = 0; expected 1 to 64",
    ),
    "setting without end": (
        GOOD + "settings = { vllm = { kv_gigabytes = inf } }\n",
        r"has settings\.vllm\.kv_gigabytes = inf; expected a finite number",
    ),
    "segments of no length": (
        GOOD + "longest_segment_seconds = 0\n",
        "has longest_segment_seconds = 0; expected a number of seconds from 1 to 600",
    ),
    "megabytes as text": (GOOD + 'megabytes = "many"\n', "has megabytes = 'many'; expected a whole number"),
}


@pytest.mark.parametrize(("text", "message"), BROKEN.values(), ids=BROKEN.keys())
def test_invalid_list_raises_one_line_error_with_the_file_name(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        read_cards(write(tmp_path / "models.toml", text))
    assert "models.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_folder_in_place_of_the_list_raises_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        read_cards(tmp_path)
