"""The cache and configuration folders of a user: from the XDG variables, else below the home folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.core.errors import Unavailable
from workbench.system.user_cache import user_cache, user_config


def test_xdg_variables_take_precedence_over_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    assert user_cache() == tmp_path / "cache" / "speech-workbench"
    assert user_config() == tmp_path / "config" / "speech-workbench"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.delenv("XDG_CONFIG_HOME")
    assert user_cache() == Path.home() / ".cache" / "speech-workbench"
    assert user_config() == Path.home() / ".config" / "speech-workbench"


def test_user_without_a_home_folder_gets_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", home)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    with pytest.raises(Unavailable, match=r"^this user has no home folder; set HOME or XDG_CONFIG_HOME to a folder$"):
        user_config()
