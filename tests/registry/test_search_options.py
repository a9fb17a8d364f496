"""Beam search options passed to a session: absolute file paths, and the checkpoint of a neural language model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.tiny_checkpoints import tiny_sensevoice
from tests.support.tiny_language import tiny_language
from workbench.core.errors import BadInput
from workbench.registry.resolve import resolve_options


def test_relative_paths_of_search_options_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options: dict[str, Any] = {"lm": "it.arpa", "lexicon": Path("words.txt"), "boost": None, "word_lm": 7, "itn": True}
    resolved = resolve_options(options)
    assert resolved == {**options, "lm": str(tmp_path / "it.arpa"), "lexicon": str(tmp_path / "words.txt")}
    assert resolve_options(resolved) == resolved and options["lm"] == "it.arpa"


def test_neural_lm_option_resolves_to_checkpoint_and_runtime(tmp_path: Path) -> None:
    directory = tiny_language(tmp_path / "language")
    resolved = resolve_options({"neural_lm": directory})
    assert resolved == {"neural_lm": str(directory), "neural_runtime": "pytorch"} == resolve_options(resolved)


def test_model_that_is_no_language_model_is_refused_as_neural_lm(tmp_path: Path) -> None:
    directory = tiny_sensevoice(tmp_path / "tiny")
    with pytest.raises(BadInput, match=r"option neural_lm is '.*tiny', a model of the family sensevoice; "):
        resolve_options({"neural_lm": str(directory)})
    with pytest.raises(BadInput, match="demo/nothing"):
        resolve_options({"neural_lm": "demo/nothing"})
