"""The user's own list of model cards in the registry: its place, its errors, and what it leaves usable."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.registry.test_cards import BROKEN, GOOD, write
from tests.support.processes import FAKE_CHILD
from workbench.core.errors import BadInput
from workbench.core.settings import Settings
from workbench.isolation import serial
from workbench.registry import cards
from workbench.registry.cards import KEYS, BadCard, read_list, user_cards_path
from workbench.registry.registry import Registry

KNOWN = ("directory", "gguf", "language", "hub", "server", "key", "pytorch", "vllm", "threads", "dtype")


def test_user_list_path_is_in_the_configuration_folder_or_workbench_models(
    user_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert user_cards_path() == user_folders / "config" / "speech-workbench" / "models.toml"
    monkeypatch.setenv("WORKBENCH_MODELS", "/elsewhere/list.toml")
    assert user_cards_path() == Path("/elsewhere/list.toml")


def test_user_cards_come_after_the_shipped_cards(registry: Registry) -> None:
    shipped = [card.id for card in registry.cards()]
    write(user_cards_path(), GOOD)
    assert [card.id for card in registry.cards()] == [*shipped, "mine"]
    assert registry.card("mine").family == "sensevoice"


def test_user_card_replaces_the_shipped_card_of_the_same_id(registry: Registry) -> None:
    write(user_cards_path(), GOOD.replace("mine", "sensevoice-small"))
    assert "directory" in registry.card("sensevoice-small").source
    assert [card.id for card in registry.cards()].count("sensevoice-small") == 1


OF_THE_LIST = ("no TOML", "bytes", "one table", "list of texts")  # lists without a single readable card


@pytest.mark.parametrize("name", [name for name in BROKEN if name not in OF_THE_LIST])
def test_invalid_card_gives_one_line_and_other_cards_stay_usable(tmp_path: Path, name: str) -> None:
    text, message = BROKEN[name]
    good, [bad_card] = read_list(write(tmp_path / "models.toml", str(text) + GOOD.replace("mine", "other")))
    assert [card.id for card in good] == ["other"]
    assert re.search(message, bad_card.reason) and "\n" not in bad_card.reason


def test_unreadable_source_makes_a_bad_card_with_the_reason(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "locked").mkdir()
    os.mkfifo(tmp_path / "fifo")
    look = os.scandir

    def scandir(path: Any) -> Any:
        if Path(path).name == "locked":  # which root may read all the same
            raise PermissionError(13, "Permission denied", str(path))
        return look(path)

    monkeypatch.setattr(os, "scandir", scandir)
    sources = {
        "long": (
            f'directory = "{"x" * 5000}"',
            r"directory /.*x\.\.\. \(\d+ characters\) cannot be read: File name too",
        ),
        "locked": ('directory = "locked"', "its checkpoint directory .*locked cannot be read: Permission denied"),
        "loop": ('directory = "loop"', "its checkpoint directory .*loop cannot be read: Too many levels"),
        "file": ('directory = "models.toml"', "its checkpoint directory .*models.toml is not a directory"),
        "looped": ('gguf = "loop"', "its GGUF file .*loop cannot be read: Too many levels"),
        "fifo": ('gguf = "fifo"', "its GGUF file .*fifo cannot be read: it is not an ordinary file"),
        "device": ('gguf = "/dev/zero"', "its GGUF file /dev/zero cannot be read: it is not an ordinary file"),
        "halved": ('gguf = "/etc/hostname", language = "fifo"', "its GGUF file .*fifo cannot be read"),
        "null": ('gguf = "a\\u0000b"', "has a null character in its source gguf"),
        "nobody": ('directory = "~nobody-here/x"', "and there is no such user"),
        "long name": (f'gguf = "{"x" * 300}"', "cannot be read: File name too long"),
    }
    text = "".join(
        GOOD.replace("mine", name).replace('directory = "checkpoint"', source) for name, (source, _) in sources.items()
    )
    write(tmp_path / "models.toml", text + GOOD)
    monkeypatch.setenv("WORKBENCH_MODELS", str(tmp_path / "models.toml"))
    assert registry.cards()[-1].id == "mine" and not {card.id for card in registry.cards()} & sources.keys()
    reasons = {each.id: each.reason for each in registry.bad_cards()}
    assert reasons.keys() == sources.keys()
    for name, (_, message) in sources.items():
        assert re.search(message, reasons[name]) and len(reasons[name]) < 600
        with pytest.raises(BadInput) as caught:
            registry.open(name)
        assert str(caught.value) == reasons[name]
    monkeypatch.undo()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('id = "a|b"', "has an id that cannot be asked for"),
        ('id = "a\\nb"', "has an id that cannot be asked for"),
        ('family = "whisper"', "its card names the family 'whisper'; expected one of sensevoice"),
        (f"megabytes = 0x{'f' * 6000}", "megabytes = a number with thousands of digits; expected a whole number of"),
    ],
)
def test_odd_card_values_give_one_line_reasons(registry: Registry, line: str, message: str) -> None:
    key = line.split(" ")[0]
    text = "\n".join(each for each in GOOD.splitlines() if not each.startswith(key)) + f"\n{line}\n"
    write(user_cards_path(), text)
    [reason] = [each.reason for each in registry.bad_cards()]
    assert re.search(message, reason) and "\n" not in reason and len(reason) < 600


def test_bad_user_card_with_a_shipped_id_raises_an_error(registry: Registry) -> None:
    write(user_cards_path(), GOOD.replace("mine", "demo/sensevoice") + "languages = 3\n")
    assert "demo/sensevoice" not in {card.id for card in registry.cards()}
    with pytest.raises(BadInput, match=r"model 'demo/sensevoice' in models\.toml has languages = 3"):
        registry.card("demo/sensevoice")


def test_invalid_toml_list_keeps_the_shipped_models(registry: Registry, caplog: pytest.LogCaptureFixture) -> None:
    write(user_cards_path(), "[[model]]\nid = 'x'\nfamily = \n")
    reason = f"the model list {user_cards_path()} is not valid TOML: Invalid value (at line 3, column 10)"
    assert registry.bad_cards() == [BadCard("", reason)]
    for _ in range(2):
        assert registry.card("demo/sensevoice").family == "sensevoice"
    assert caplog.messages == [reason], "the reason is logged once"
    with pytest.raises(BadInput, match=r"there is no model 'x' .* is not valid TOML: Invalid value"):
        registry.card("x")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a = " + b"[" * 10_000, "its brackets are nested too deeply"),
        (b"# one\n# two \xff\n", "line 2 is not UTF-8"),
        (b"a = " + b"9" * 5000, "is not valid TOML"),
    ],
)
def test_malicious_lists_give_one_line_reasons(tmp_path: Path, content: bytes, message: str) -> None:
    cards, [bad] = read_list(write(tmp_path / "models.toml", content))
    assert not cards and message in bad.reason and "\n" not in bad.reason


def test_unreadable_list_keeps_the_shipped_models(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = registry.cards()
    os.mkfifo(tmp_path / "fifo")
    for place, message in (
        ("fifo", "not an ordinary file"),
        ("x" * 300, "File name too long"),
        ("none", "no such file"),
    ):
        monkeypatch.setenv("WORKBENCH_MODELS", str(tmp_path / place))
        [bad_list] = registry.bad_cards()
        assert registry.cards() == shipped and message in bad_list.reason


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8) | st.sampled_from(KNOWN), inner),
    max_leaves=4,
)


@settings(max_examples=50)
@given(st.dictionaries(st.sampled_from(sorted(KEYS)) | st.text(max_size=8), VALUES))
def test_arbitrary_card_values_do_not_break_the_list(table: dict[str, Any]) -> None:
    sound = {"id": "sound", "family": "sensevoice", "source": {"demo": "demo-sensevoice"}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cards, "_parsed", lambda path: {"model": [table, sound]})
        good, bad = read_list(Path("/models.toml"))
    assert table.get("id") == "sound" or (good[-1].id == "sound" and len(good) + len(bad) == 2)
    assert all("\n" not in each.reason for each in bad)


def test_card_with_a_missing_directory_is_not_ready_with_a_reason(registry: Registry, tmp_path: Path) -> None:
    write(user_cards_path(), GOOD)
    state = registry.availability(registry.card("mine"), "pytorch")
    assert not state.ready and not state.fetches
    assert "checkpoint directory" in str(state.reason) and "is missing" in str(state.reason)


def test_session_uses_card_settings_unless_overridden(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serial, "CHILD", FAKE_CHILD)
    card = GOOD.replace("sensevoice", "funasr_nano").replace('"checkpoint"', f'"{tmp_path}"')
    write(
        user_cards_path(),
        card + 'settings = { pytorch = { threads = 1, dtype = "bfloat16" }, vllm = { threads = 3 } }\n',
    )

    def settings(**overrides: Any) -> Settings:
        with registry.open("mine", **overrides) as session:
            return session.session.spec.settings  # type: ignore[attr-defined,no-any-return]

    assert settings() == Settings(threads=1, dtype="bfloat16")
    assert settings(dtype="float32", threads=2) == Settings(threads=2, dtype="float32")
    assert settings(device="cuda", dtype=None) == Settings(threads=1, dtype="bfloat16", device="cuda")


def test_card_setting_unsupported_by_the_family_is_refused(registry: Registry, tmp_path: Path) -> None:
    card = GOOD.replace('"checkpoint"', f'"{tmp_path}"').replace("sensevoice", "fsmn_vad")
    write(user_cards_path(), card + 'settings = { pytorch = { dtype = "bfloat16" } }\n')
    with pytest.raises(BadInput, match=r"^dtype is bfloat16, and mine does not compute in it; expected float32 or"):
        registry.open("mine")
