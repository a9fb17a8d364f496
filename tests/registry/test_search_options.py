"""The options of a beam search on their way to a session: paths without a folder, the place of a language model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.tiny_checkpoints import tiny_sensevoice
from tests.support.tiny_language import tiny_language
from workbench.core.errors import BadInput
from workbench.registry.resolve import resolve_options


def test_paths_do_not_depend_on_the_folder_of_the_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given: dict[str, Any] = {"lm": "it.arpa", "lexicon": Path("words.txt"), "boost": None, "word_lm": 7, "itn": True}
    found = resolve_options(given)
    assert found == {**given, "lm": str(tmp_path / "it.arpa"), "lexicon": str(tmp_path / "words.txt")}
    assert resolve_options(found) == found and given["lm"] == "it.arpa"


def test_a_language_model_becomes_its_checkpoint_and_runtime(tmp_path: Path) -> None:
    directory = tiny_language(tmp_path / "language")
    found = resolve_options({"neural_lm": directory})
    assert found == {"neural_lm": str(directory), "neural_runtime": "pytorch"} == resolve_options(found)


def test_another_model_scores_no_texts(tmp_path: Path) -> None:
    directory = tiny_sensevoice(tmp_path / "tiny")
    with pytest.raises(BadInput, match=r"option neural_lm is '.*tiny', a model of the family sensevoice; "):
        resolve_options({"neural_lm": str(directory)})
    with pytest.raises(BadInput, match="demo/nothing"):
        resolve_options({"neural_lm": "demo/nothing"})
