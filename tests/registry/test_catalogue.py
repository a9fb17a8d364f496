"""Models found by name: shipped, from the user's list, or by path; errors for unknown names."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.support.tiny_checkpoints import tiny_paraformer
from workbench.core.errors import BadInput
from workbench.registry.registry import Registry

MINE = """[[model]]
id = "sensevoice-small"
name = "mine"
family = "sensevoice"
source = {{ directory = "{here}" }}

[[model]]
id = "new"
family = "sensevoice"
source = {{ directory = "beside" }}
"""


def test_the_shipped_models_are_known(registry: Registry) -> None:
    cards = {card.id: card for card in registry.cards()}
    assert {"demo/sensevoice", "demo/paraformer", "sensevoice-small", "paraformer-zh", "fsmn-vad"} <= set(cards)
    assert registry.card("demo/paraformer") == cards["demo/paraformer"]


def test_user_card_replaces_the_shipped_card_of_the_same_id(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models.toml").write_text(MINE.format(here=tmp_path), encoding="utf-8")
    monkeypatch.setenv("WORKBENCH_MODELS", str(tmp_path / "models.toml"))
    ids = [card.id for card in registry.cards()]
    assert len(ids) == len(set(ids)) and ids[-2:] == ["sensevoice-small", "new"]
    assert registry.card("sensevoice-small").name == "mine"
    assert registry.card("new").source == {"directory": str(tmp_path / "beside")}


def test_checkpoint_directory_is_accepted_as_a_model(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_paraformer(tmp_path / "checkpoint")
    monkeypatch.chdir(tmp_path)
    for name in ("checkpoint", "./checkpoint", Path("checkpoint"), str(tmp_path / "checkpoint")):
        card = registry.card(name)
        assert (card.id, card.family, card.tasks) == (str(name), "paraformer", ("transcribe",))
        assert card.source == {"directory": str(tmp_path / "checkpoint")}


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "demo/sensevoise",
            "there is no model 'demo/sensevoise' and no such directory or GGUF file; did you mean demo/sensevoice?",
        ),
        (
            "FunAudioLLM/SenseVoiceSmall",  # a repository of the hub, by its own name
            "there is no model 'FunAudioLLM/SenseVoiceSmall' and no such directory or GGUF file; did you mean "
            "sensevoice-small?",
        ),
        (
            "zzz",
            "there is no model 'zzz' and no such directory or GGUF file; known are demo/sensevoice, demo/paraformer, ",
        ),
        ("", "there is no model '' and no such directory or GGUF file; known are "),
        ("~nobody-here/model", "there is no model '~nobody-here/model' and no such directory or GGUF file; "),
        ("x" * 5000, "there is no model 'xxx"),
        ("a\0b", "there is no model "),
    ],
)
def test_unknown_model_name_raises_one_line_error_with_a_hint(registry: Registry, name: str, sentence: str) -> None:
    with pytest.raises(BadInput) as error:
        registry.card(name)
    assert str(error.value).startswith(sentence)


def test_file_that_is_not_gguf_is_refused_as_a_model(registry: Registry, tmp_path: Path) -> None:
    (tmp_path / "model.pt").touch()
    with pytest.raises(BadInput, match=r"^model\.pt is a file, but not in GGUF format; expected a model id, "):
        registry.open(tmp_path / "model.pt")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every name is Unicode")
def test_directory_whose_name_is_not_utf_8_is_refused(registry: Registry, tmp_path: Path) -> None:
    directory = tmp_path / os.fsdecode(b"caf\xe9") / "it"
    tiny_paraformer(tmp_path / "checkpoint")
    directory.parent.mkdir()
    (tmp_path / "checkpoint").rename(directory)
    with pytest.raises(BadInput, match=r"the path .*caf\\udce9/it is not UTF-8, and torch cannot open files under it"):
        registry.card(directory)


def test_directory_without_a_checkpoint_is_refused_with_the_expected_files(registry: Registry, tmp_path: Path) -> None:
    with pytest.raises(
        BadInput, match=r"belongs to none of the families here: a FunASR checkpoint has a config.yaml beside"
    ):
        registry.open(tmp_path)
