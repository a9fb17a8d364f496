"""The check that optional packages are installed, and the packages that a runtime needs."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from workbench.core.errors import Unavailable
from workbench.core.packages import check_packages
from workbench.core.runtimes import RUNTIMES


def test_missing_packages_are_named_with_the_command_that_installs_them() -> None:
    check_packages("this needs", ("json", "numpy"))
    with pytest.raises(
        Unavailable, match=r"^this needs the Python package no_x, which is not installed; run: pip inst"
    ):
        check_packages("this needs", ("json", "no_x"))
    sentence = "^this needs the Python packages no_x, no_y, which are not installed; run: make it$"
    with pytest.raises(Unavailable, match=sentence):
        check_packages("this needs", ("no_x", "no_y"), "make it")


@pytest.mark.parametrize(
    ("runtime", "hidden", "recogniser", "language_model"),
    [
        ("pytorch", {"transformers"}, None, "language models on PyTorch need the Python package transformers, which "),
        ("gguf", {"transformers"}, None, "language models on GGUF need the Python package transformers, which "),
        ("pytorch", {"torch"}, "; run: pip install torch", "; run: pip install torch"),
        ("gguf", {"llama_cpp", "transformers"}, "run: pip install llama-cpp-python gguf", "python gguf transformers"),
    ],
)
def test_language_model_needs_a_package_more_than_a_recogniser(
    monkeypatch: pytest.MonkeyPatch, runtime: str, hidden: set[str], recogniser: str | None, language_model: str
) -> None:
    monkeypatch.setattr("workbench.core.packages.find_spec", lambda name: None if name in hidden else find_spec("json"))
    found, found_for_language = (RUNTIMES[runtime].missing(language_model=language) for language in (False, True))
    assert found is None if recogniser is None else str(found).endswith(recogniser)
    assert language_model in str(found_for_language)
