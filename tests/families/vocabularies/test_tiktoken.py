"""Vocabularies of bytes: files in tiktoken's form, and the texts of their tokens."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from workbench.core.errors import BadInput
from workbench.families.vocabularies.tiktoken import ByteVocabulary, read_tiktoken


def write_tiktoken(path: Path, contents: list[bytes]) -> Path:
    lines = [f"{base64.b64encode(content).decode()} {place}" for place, content in enumerate(contents)]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_pieces_are_readable_and_distinct(tmp_path: Path) -> None:
    contents = [b"a", b" the", "你".encode(), "你".encode()[:2], b"\n", b" ", "▁".encode(), b"<E4>", b"\xe4"]
    vocabulary = read_tiktoken(write_tiktoken(tmp_path / "it.tiktoken", contents), 12)
    assert vocabulary.pieces == (
        *("a", "▁the", "你", "<E4><BD>", "<0A>", "▁", "▁<|6|>", "<E4>", "<E4><|8|>", "<|9|>", "<|10|>", "<|11|>"),
    )
    assert len(set(vocabulary.pieces)) == len(vocabulary) == 12 and not any(
        set(piece) & set(" \n\t") for piece in vocabulary.pieces
    )
    assert vocabulary.special_ids == (9, 10, 11)


def test_token_bytes_are_joined_to_utf8_text() -> None:
    vocabulary = ByteVocabulary([b"a", "你".encode()[:1], "你".encode()[1:], b" b"], 5, "it")
    assert vocabulary.decode([0, 1, 2, 3, 4]) == "a你 b"
    assert vocabulary.decode([1]) == "\ufffd" and vocabulary.decode([2, 1]) == "\ufffd" * 3


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "has 0 tokens"),
        (b"YQ== 0\nYg== 2\n", "2 tokens whose ids do not count from 0"),
        (b"YQ== 0\nYQ== 0\nYg== 1\n", "line 2: the id 0 occurs twice"),
        (b"YQ== 0\nhello\n", "line 2: expected a token's bytes in base64"),
        (b"YQ== 0\n*** 1\n", "line 2: expected a token's bytes in base64"),
        (b"YQ== 0\nYg== one\n", "line 2: expected a token's bytes in base64"),
        (b"YQ== 0\nYg== 1\nYw== 2\n", "has 3 tokens and the network has 2 outputs"),
    ],
)
def test_damaged_tiktoken_file_raises_one_line_error(tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "it.tiktoken"
    path.write_bytes(content)
    with pytest.raises(BadInput) as refused:
        read_tiktoken(path, 2)
    assert str(refused.value).startswith(f"{tmp_path.name}/it.tiktoken") and expected in str(refused.value)
    with pytest.raises(BadInput) as refused:
        read_tiktoken(tmp_path / "nothing", 2)
    assert str(refused.value).startswith(f"{tmp_path.name}/nothing cannot be read: ")
