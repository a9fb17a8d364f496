"""Turns token ids into text and back: SentencePiece models and token lists of FunASR checkpoints."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from workbench.core.errors import BadInput, message_of
from workbench.families.funasr import FunasrCheckpoint
from workbench.formats.text_files import BLANKS, check_stored, lines_of, read_text

WORD_START = "▁"  # marks a piece that begins a word in SentencePiece
CONTINUATION = "##"  # marks a piece that continues a word in WordPiece, and in the vocab.txt of NeMo
SPACES = (" ", "<space>", "|")  # of lists of letters; the others are those of ESPnet and of wav2vec2
BYTE_PIECE = re.compile(r"<0x([0-9A-F]{2})>")
CONTROL_PIECES = ("<s>", "</s>")  # without text
UNKNOWN_PIECE, UNKNOWN_TEXT = "<unk>", " \u2047 "  # SentencePiece's text for it
NUMBERED = re.compile(r"(.*?)[ \t]+([0-9]{1,9})[ \t]*")  # a piece and its id
TOKENIZER, TOKEN_LIST = "tokenizer_conf", "token_list"  # section and key of the tokens in config.yaml
BROKEN_BYTE = re.compile("[\udc80-\udcff]")  # marks of bytes that are not UTF-8, from "surrogateescape"


class Vocabulary:
    """The pieces of a model, in id order."""

    def __init__(self, pieces: Sequence[str], source: str):
        self.pieces = tuple(pieces)
        self.source = source

    def __len__(self) -> int:
        return len(self.pieces)

    @cached_property
    def ids(self) -> dict[str, int]:
        """The id of each piece; the first id of a piece that occurs twice."""
        return {piece: number for number, piece in reversed(list(enumerate(self.pieces)))}

    def pieces_of(self, ids: Iterable[int]) -> tuple[str, ...]:
        """Returns the piece of each id; raises `BadInput` for an id outside the vocabulary."""
        numbers = tuple(ids)
        for number in numbers:
            if not 0 <= number < len(self):
                raise BadInput(f"there is no token {number} in the {len(self)} of {self.source}")
        return tuple(self.pieces[number] for number in numbers)

    @cached_property
    def _space(self) -> str:
        """The piece that stands for a space; empty if there is none, or if a mark shows where words begin."""
        space = next((each for each in SPACES if each in self.pieces), "")
        return "" if space and (self._continues or any(each.startswith(WORD_START) for each in self.pieces)) else space

    @cached_property
    def _continues(self) -> bool:
        return _marks_continuations(self.pieces)

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of SentencePiece ids as the library decodes them, but with the spaces at the start.

        Pieces are joined, and word starts become spaces; without such marks, the first of `SPACES` does. Where `##`
        marks the pieces that continue a word, the others begin one. Runs of byte pieces are decoded as UTF-8, with a
        replacement character for each invalid byte. Control pieces are left out; bytes before and after one form no
        character.
        """
        runs = [bytearray()]
        for number in ids:
            piece = self.pieces[number]
            if piece == self._space:
                piece = " "
            if piece in CONTROL_PIECES:
                runs.append(bytearray())
                continue
            byte = BYTE_PIECE.fullmatch(piece)
            text = _text_of_piece(piece, self._continues)
            runs[-1] += bytes([int(byte[1], 16)]) if byte else text.encode("utf-8")
        return "".join(BROKEN_BYTE.sub("\ufffd", run.decode("utf-8", "surrogateescape")) for run in runs)


def _text_of_piece(piece: str, continues: bool) -> str:
    if piece == UNKNOWN_PIECE:
        return UNKNOWN_TEXT
    if not continues or piece == WORD_START:
        return piece.replace(WORD_START, " ")
    return piece.removeprefix(CONTINUATION) if piece.startswith(CONTINUATION) else f" {piece}"


def _marks_continuations(pieces: Sequence[str]) -> bool:
    """Returns whether `##` marks the pieces that continue a word, and the others begin one."""
    if any(each.startswith(WORD_START) and each != WORD_START for each in pieces):
        return False
    return any(each.startswith(CONTINUATION) and each != CONTINUATION for each in pieces)


def read_sentencepiece(path: Path) -> Vocabulary:
    """Reads the pieces of a SentencePiece model file; raises `BadInput` for any other file."""
    processor = load_sentencepiece(path)
    try:
        pieces = [processor.IdToPiece(number) for number in range(processor.GetPieceSize())]
    except UnicodeDecodeError as error:
        raise BadInput(f"{path.parent.name}/{path.name} is damaged: it has a piece that is not UTF-8") from error
    return Vocabulary(pieces, path.name)


def load_sentencepiece(path: Path) -> Any:
    """Returns the `SentencePieceProcessor` of a model file; raises `BadInput` for any other file."""
    import sentencepiece

    processor: Any = sentencepiece.SentencePieceProcessor()
    try:
        check_stored(path)
        processor.Load(str(path))
    except (RuntimeError, OSError, BadInput) as error:
        raise BadInput(f"{path.parent.name}/{path.name} is not a SentencePiece model") from error
    return processor


def listed_tokens(checkpoint: FunasrCheckpoint) -> Vocabulary | None:
    """Returns the tokens of `tokenizer_conf.token_list`, the name of a file or the list itself, or of `tokens.json`.

    Returns None if there are none; raises `BadInput` as `read_token_list` does.
    """
    listed = checkpoint.section(TOKENIZER).get(TOKEN_LIST)
    if isinstance(listed, list):
        return _listed(listed, f"{TOKENIZER}.{TOKEN_LIST} in {checkpoint.directory.name}/config.yaml", "config.yaml")
    path = token_file(checkpoint)
    return read_token_list(path) if path else None


def token_file(checkpoint: FunasrCheckpoint) -> Path | None:
    """Returns the file of the tokens; None if the configuration lists them itself, or if there are none."""
    if isinstance(checkpoint.section(TOKENIZER).get(TOKEN_LIST), list):
        return None
    path = checkpoint.file(TOKENIZER, TOKEN_LIST) or checkpoint.directory / "tokens.json"
    return path if path.is_file() else None


def read_token_list(path: Path) -> Vocabulary:
    """Reads the pieces of `tokens.json`, a list, `vocab.json`, an object with the id of each piece, or `tokens.txt`,
    with a piece in each line.

    Behind the piece, a line may have its id, as the tables of symbols of Kaldi and sherpa do: `piece id`, separated by
    spaces or a tab, in any order of the ids; a line with an id alone is the piece " ". Raises `BadInput` for any other
    file.
    """
    where = "/".join(filter(None, (path.parent.name, path.name))) or str(path)
    try:
        text = read_text(path)
        pieces = json.loads(text) if path.suffix.lower() == ".json" else _lines(text)
    except (BadInput, ValueError, RecursionError) as error:
        reason = "its lists are nested too deeply" if isinstance(error, RecursionError) else message_of(error)
        raise BadInput(f"{where} cannot be read as a list of tokens: {reason}") from error
    return _listed(pieces_by_id(pieces, where) if isinstance(pieces, dict) and pieces else pieces, where, path.name)


def pieces_by_id(ids: Mapping[str, Any], where: str) -> list[str]:
    """Returns the pieces of an object such as `vocab.json` of wav2vec2 in id order.

    Raises `BadInput` unless each piece has an id from 0 on, each once.
    """
    numbers = list(ids.values())
    if not all(type(number) is int for number in numbers) or sorted(numbers) != list(range(len(numbers))):
        raise BadInput(
            f"{where} is not a list of tokens: it does not give each token an id from 0 to {len(ids) - 1}, each once"
        )
    return sorted(ids, key=ids.__getitem__)


def _listed(pieces: object, where: str, source: str) -> Vocabulary:
    if not isinstance(pieces, list) or not pieces or not all(isinstance(piece, str) for piece in pieces):
        raise BadInput(f"{where} is not a list of tokens; expected a list of strings, in id order")
    return Vocabulary(pieces, source)


def _lines(text: str) -> list[str]:
    lines = lines_of(text)
    while lines and not lines[-1].strip(BLANKS):  # an ideographic space is a token
        lines.pop()
    numbered = [NUMBERED.fullmatch(line) for line in lines]
    by_id = {int(line[2]): line[1] or " " for line in numbered if line}
    if by_id.keys() == set(range(len(lines))):
        return [by_id[number] for number in range(len(lines))]
    return [line.rstrip(" ") or line[:1] for line in lines]
