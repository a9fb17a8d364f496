"""Hiding packages from a process."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from workbench.system.imports import hidden_packages


def test_hidden_package_behaves_as_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "this", raising=False)
    with hidden_packages("this", "sys", "no_such_package"):
        assert importlib.util.find_spec("this") is None
        with pytest.raises(ModuleNotFoundError):
            import this  # noqa: F401
        assert sys.modules["sys"] is sys, "it was there before"
    assert importlib.util.find_spec("this") is not None
    assert not {"this", "no_such_package"} & set(sys.modules)


def test_package_is_visible_again_after_the_block_raises() -> None:
    with pytest.raises(ZeroDivisionError), hidden_packages("no_such_package"):
        assert 1 / 0
    assert "no_such_package" not in sys.modules
