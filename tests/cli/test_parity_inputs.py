"""When `workbench parity` has several inputs, and which options are for one input only."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from workbench.cli.arguments.parser import parser
from workbench.cli.parity_inputs import several_asked
from workbench.core.errors import BadInput
from workbench.registry.cards import Card


def parsed(*words: str) -> argparse.Namespace:
    return parser().parse_args(["parity", "m", *words, "--candidates", "gguf"])


def card(family: str) -> Card:
    return Card("demo/x", "Demo", family, {"directory": "x"})


@pytest.mark.parametrize(
    ("family", "words", "several"),
    [
        ("sensevoice", ("a.wav",), False),
        ("sensevoice", ("a.wav", "b.wav"), True),
        ("sensevoice", (), False),
        ("causal_lm", ("Count.",), False),
        ("causal_lm", ("Count.", "Add."), True),
        ("causal_lm", ("gguf: what is it?", "vllm"), True),
    ],
)
def test_two_or_more_inputs_count_as_several(family: str, words: tuple[str, ...], several: bool) -> None:
    assert several_asked(parsed(*words), card(family)) is several


def test_folder_or_list_file_counts_as_several_inputs(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("a.wav\n")
    assert several_asked(parsed(str(tmp_path)), card("sensevoice"))
    assert several_asked(parsed(str(tmp_path / "list.txt")), card("causal_lm"))


@pytest.mark.parametrize(
    ("family", "words", "message"),
    [
        ("speechlm", ("a", "b"), "demo/x answers conversations; expected one input, and --audio for a recording"),
        ("sensevoice", ("a.wav", "b.wav", "--junit", "x.xml"), "--junit is for one input; leave it out, or give one"),
        ("sensevoice", ("a.wav", "b.wav", "--baseline", "x.json"), "--baseline is for one input"),
    ],
)
def test_several_inputs_are_refused_where_one_is_required(family: str, words: tuple[Any, ...], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        several_asked(parsed(*words), card(family))
