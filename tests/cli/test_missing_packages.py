"""Commands without an optional package: one line that names it and says how to install it, before any work."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

from panels.__main__ import start
from tests.support.command_line import Capture, lasting, run

pytestmark = pytest.mark.usefixtures("in_folder")


def hide(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    def found(name: str) -> Any:
        return None if name == package else find_spec(name)

    monkeypatch.setattr("workbench.core.packages.find_spec", found)


@lasting
@pytest.mark.parametrize(
    ("package", "words", "sentence"),
    [
        (
            "starlette",
            "serve --port 1",
            "a server needs the Python package starlette, which is not installed; run: pip",
        ),
        (
            "gradio",
            "app --port 1",
            "the page needs the Python package gradio, which is not installed; run: pip install",
        ),
        (
            "tokenizers",
            "train-demo sensevoice --data . --out new",
            "training needs the Python package tokenizers, which",
        ),
        ("gguf", "convert sensevoice -q q8_0 --out new.gguf", "converting needs the Python package gguf, which is not"),
        ("transformers", "convert qwen3 --for vllm --out new", "converting needs the Python package transformers"),
        ("matplotlib", "visualise short.wav -m sensevoice --view ctc --out new.svg", "run: pip install matplotlib"),
        (
            "matplotlib",
            "parity sensevoice short.wav --candidates pytorch --report new.html",
            "pictures need the Python package matplotlib, which is not installed",
        ),
        ("transformers", "generate one -m qwen3", "qwen3 cannot run on pytorch: language models on PyTorch need the"),
    ],
)
def test_missing_package_exits_3_before_any_work(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch, package: str, words: str, sentence: str
) -> None:
    hide(monkeypatch, package)
    status, output, error = run(capfd, *words.split())
    assert (status, output, len(error)) == (3, [], 1) and sentence in error[0]


def test_page_without_its_packages_ends_with_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hide(monkeypatch, "gradio")
    with pytest.raises(SystemExit, match=r"^3$"):
        start()
    error = capsys.readouterr().err
    assert error.startswith("workbench: the page needs the Python package gradio") and error.count("\n") == 1
