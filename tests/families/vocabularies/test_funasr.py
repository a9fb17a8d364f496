"""Pieces and texts of vocabularies: SentencePiece models against the library, and token lists in JSON and text."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from hypothesis import example, given
from hypothesis import strategies as st

from tests.reference.vocabularies import TAG_IDS, character_pieces, paraformer_tokens, trained_pieces
from workbench.core.errors import BadInput
from workbench.families.vocabularies.funasr import Vocabulary, read_sentencepiece, read_token_list

COUNT = 420


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Vocabulary, Any]:
    """The same SentencePiece model as a vocabulary and in the library."""
    path = tmp_path_factory.mktemp("vocabulary") / "it.bpe.model"
    path.write_bytes(trained_pieces(COUNT))
    return read_sentencepiece(path), sentencepiece.SentencePieceProcessor(model_file=str(path))


def test_pieces_of_ids_outside_the_vocabulary_are_refused() -> None:
    vocabulary = Vocabulary(("<s>", "a"), "tokens.json")
    assert vocabulary.pieces_of([1, 0]) == ("a", "<s>")
    for number in (-1, 2):
        with pytest.raises(BadInput, match=f"^there is no token {number} in the 2 of tokens.json"):
            vocabulary.pieces_of([number])


def test_sentencepiece_pieces_match_the_library(model: tuple[Vocabulary, Any]) -> None:
    vocabulary, processor = model
    assert len(vocabulary) == processor.get_piece_size() == COUNT
    assert list(vocabulary.pieces) == [processor.id_to_piece(number) for number in range(COUNT)]
    assert all(vocabulary.ids[piece] == number for number, piece in enumerate(vocabulary.pieces))


@given(st.lists(st.integers(0, COUNT - 1), max_size=12))
@example([362, 362])  # spaces alone
@example([214, 1, 148])  # the bytes of a character on both sides of <s>
def test_decoded_text_matches_the_library(model: tuple[Vocabulary, Any], ids: list[int]) -> None:
    vocabulary, processor = model
    text = vocabulary.decode(ids)
    expected = processor.decode(ids)  # which takes off the spaces before the first word
    assert text == expected or text.lstrip(" ") == expected.lstrip(" ")


@given(st.lists(st.sampled_from([*b"\xe4\xb8\xad\xf0\x9f\x98\x80 a\xff\xc0\x80\xed\xa0"]), max_size=8))
def test_invalid_utf8_bytes_are_replaced_one_by_one(model: tuple[Vocabulary, Any], content: list[int]) -> None:
    vocabulary, processor = model
    ids = [vocabulary.ids[f"<0x{byte:02X}>"] for byte in content]
    middle = vocabulary.ids["三"]
    assert vocabulary.decode([middle, *ids, middle]) == processor.decode([middle, *ids, middle])


@pytest.mark.parametrize("text", ["three seven one", "我想问我在滨海新区有房", "naïve 😀 Ωmega", "<|zh|>三七一"])
def test_encoded_text_decodes_as_with_the_library(model: tuple[Vocabulary, Any], text: str) -> None:
    vocabulary, processor = model
    assert vocabulary.decode(processor.encode(text)).strip() == processor.decode(processor.encode(text)).strip()


def test_vocabulary_of_published_size_has_the_published_tag_ids(tmp_path: Path) -> None:
    (tmp_path / "it.bpe.model").write_bytes(character_pieces(25055))
    vocabulary = read_sentencepiece(tmp_path / "it.bpe.model")
    assert len(vocabulary) == 25055 == len(set(vocabulary.pieces))
    assert {tag: vocabulary.ids[tag] for tag in TAG_IDS} == TAG_IDS


@pytest.mark.parametrize(
    "more, text",
    [(["|"], "a b"), (["<space>"], "a b"), (["|", " "], "a|b"), (["|", "<space>"], "a|b"), (["|", "▁a"], "a|b")],
)
def test_space_of_a_list_of_letters_is_written_as_one(more: list[str], text: str) -> None:
    assert Vocabulary(["a", *more, "b"], "letters").decode([0, 1, len(more) + 1]) == text


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        (("<unk>", "the", "##s", "##|", "▁", "##'"), " thes ⁇  the| '"),  # as NeMo's vocab.txt
        (("<unk>", "▁the", "##s", "|", "▁", "'"), " the##s ⁇  the| '"),  # SentencePiece
        (("<unk>", "the", "##", "|", "x", "'"), "the## ⁇ the x'"),  # no letters behind the mark
    ],
)
def test_pieces_that_continue_a_word_are_joined_to_it(pieces: tuple[str, ...], text: str) -> None:
    assert Vocabulary(pieces, "it").decode([1, 2, 0, 1, 3, 4, 5]) == text


def test_duplicate_piece_has_its_first_id() -> None:
    assert Vocabulary(["a", "b", "a"], "it").ids == {"a": 0, "b": 1}


@pytest.mark.parametrize("content", [b"", b"no model", b"\x00\x01\x02" * 100], ids=["empty", "text", "bytes"])
def test_damaged_sentencepiece_models_are_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "it.bpe.model"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"it\.bpe\.model is not a SentencePiece model"):
        read_sentencepiece(path)


def test_sentencepiece_model_with_a_piece_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "it.bpe.model"
    path.write_bytes(trained_pieces(COUNT).replace("三".encode(), b"\xff\xff\xff"))
    with pytest.raises(BadInput, match=r"it\.bpe\.model is damaged: it has a piece that is not UTF-8"):
        read_sentencepiece(path)


def test_named_pipe_as_sentencepiece_model_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "it.bpe.model")
    with pytest.raises(BadInput, match="is not a SentencePiece model"):
        read_sentencepiece(tmp_path / "it.bpe.model")  # without waiting for a writer


def test_json_and_text_token_lists_are_read_alike(tmp_path: Path) -> None:
    tokens = [*paraformer_tokens(300), "#", "12 3", "　"]
    for name in ("tokens.json", "upper.JSON"):
        (tmp_path / name).write_text(json.dumps(tokens), encoding="utf-8")
    (tmp_path / "tokens.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    numbered = tmp_path / "numbered.txt"
    numbered.write_text("".join(f"{token} {number}\r\n" for number, token in enumerate(tokens)), encoding="utf-8")
    ids = tmp_path / "vocab.json"
    ids.write_text(json.dumps({token: tokens.index(token) for token in reversed(tokens)}), encoding="utf-8")
    for path in (tmp_path / "tokens.json", tmp_path / "upper.JSON", tmp_path / "tokens.txt", numbered, ids):
        assert list(read_token_list(path).pieces) == tokens


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        *((each, "; expected a list of strings, in id order") for each in ("{}", "[]", "[1, 2]", '["a", null]')),
        *(
            (each, "each token an id from 0 to 1, each once")
            for each in ('{"a": 0, "b": 2}', '{"a": 0, "b": true}', '{"a": 0, "b": 0}', '{"a": {"b": 0}, "c": 1}')
        ),
        *((each, ": Expecting value") for each in ("not json", "")),
        ("[" * 100_000, ": its lists are nested too deeply"),
        ("\udce4", "UTF-8"),
    ],
    ids=["object", "empty", "numbers", "null", "gap", "bool", "twice", "nested", "text", "nothing", "deep", "bytes"],
)
def test_damaged_token_lists_raise_one_line_error(content: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    path.write_text(content, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(BadInput, match=r"tokens\.json (is not|cannot be read as) a list of tokens") as error:
        read_token_list(path)
    assert "\n" not in str(error.value) and reason in str(error.value)


def test_empty_text_token_list_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokens.txt").write_text("\n\n", encoding="utf-8")
    with pytest.raises(BadInput, match="expected a list"):
        read_token_list(tmp_path / "tokens.txt")
