"""The vocabulary of a network whose tokens are runs of bytes, from a tiktoken file: Fun-ASR-Nano's CTC branch has one.

Each line of the file has a token's bytes in base64 and its id. Ids behind those of the file are special tokens, which
have no text; the file does not name them.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path

from workbench.core.errors import BadInput
from workbench.core.phrases import name_in_folder
from workbench.families.vocabularies.byte_level import spell
from workbench.families.vocabularies.funasr import BROKEN_BYTE, WORD_START, Vocabulary


class ByteVocabulary(Vocabulary):
    """The tokens of a tiktoken file, then special ones.

    A piece is the token's text as people write it in a lexicon: a space is `▁`, a byte outside complete characters is
    `<E5>`, and a special token is `<|` its id `|>`. No two pieces are equal, and none has white space.

    Args:
        contents: the bytes of each token of the file, in id order.
        count: number of all tokens.
        source: the name of the file.
    """

    def __init__(self, contents: Sequence[bytes], count: int, source: str):
        self._contents = tuple(contents)
        pieces: dict[str, None] = {}
        for number, content in enumerate(self._contents):
            piece = _piece(content)
            pieces[piece if piece and piece not in pieces else f"{piece}<|{number}|>"] = None
        super().__init__([*pieces, *(f"<|{number}|>" for number in range(len(contents), count))], source)

    @property
    def special_ids(self) -> tuple[int, ...]:
        """The ids of the tokens without text."""
        return tuple(range(len(self._contents), len(self)))

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of ids; special tokens have none, and a byte outside complete characters becomes U+FFFD."""
        content = b"".join(self._contents[number] for number in ids if number < len(self._contents))
        return BROKEN_BYTE.sub("\ufffd", content.decode("utf-8", "surrogateescape"))


def _piece(content: bytes) -> str:
    """Returns a token's text without white space."""
    text = spell(content).replace(" ", WORD_START)
    return "".join(
        f"<{ord(letter):02X}>" if letter.isspace() or not letter.isprintable() else letter for letter in text
    )


def read_tiktoken(path: Path, count: int) -> ByteVocabulary:
    """Reads the vocabulary of a network with `count` outputs; raises `BadInput` if the file is broken or has more."""
    where = name_in_folder(path)
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise BadInput(f"{where} cannot be read: {error.strerror or error}") from error
    contents: dict[int, bytes] = {}
    for number, line in enumerate(lines, 1):
        fields = line.split()
        if not fields:
            continue
        try:
            token, place = fields[0], int(fields[1])
            content = base64.b64decode(token, validate=True)
        except (ValueError, IndexError) as error:
            raise BadInput(f"{where}, line {number}: expected a token's bytes in base64, a space and its id") from error
        if place in contents:
            raise BadInput(f"{where}, line {number}: the id {place} occurs twice")
        contents[place] = content
    if not contents or contents.keys() != set(range(len(contents))):
        raise BadInput(f"{where} has {len(contents)} tokens whose ids do not count from 0 without a gap")
    if len(contents) > count:
        raise BadInput(
            f"{where} has {len(contents)} tokens and the network has {count} outputs; expected no more tokens"
        )
    return ByteVocabulary([contents[place] for place in range(len(contents))], count, path.name)
