"""How byte-level vocabularies write bytes, against the vocabulary of a shipped model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.families.language.directory import LanguageTokenizer
from workbench.families.vocabularies.byte_level import bytes_of, spell
from workbench.registry.sources import assets


@pytest.mark.parametrize(
    ("token", "content"),
    [("three", b"three"), ("Ġone", b" one"), ("Ċ", b"\n"), ("åĬ", b"\xe5\x8a"), ("è¯Ń", "语".encode()), ("▁one", None)],
)
def test_token_string_is_decoded_to_bytes(token: str, content: bytes | None) -> None:
    assert bytes_of(token) == content


def test_token_bytes_match_the_decoded_text_for_the_whole_vocabulary() -> None:
    tokenizer = LanguageTokenizer.read(assets() / "demo-funasr-nano" / "Qwen3-demo")
    for number, token in tokenizer._spellings.items():
        content = bytes_of(token)
        assert content is not None and content.decode("utf-8", "replace") == tokenizer.decode([number], special=True)
        assert "\ufffd" not in tokenizer.piece(number)


@given(st.binary(max_size=40))
def test_complete_characters_are_kept_and_other_bytes_are_written_in_hexadecimal(content: bytes) -> None:
    written = spell(content)
    if content.decode("utf-8", "ignore").encode() == content:
        assert written == content.decode()
    assert written.count("<") >= len(content) - len(content.decode("utf-8", "ignore").encode())


def test_bytes_of_incomplete_characters_are_written_in_hexadecimal() -> None:
    assert spell(b"a\xe5\x8a") == "a<E5><8A>" and spell(b"\x9e\xe8\xaf\xad.") == "<9E>语."
