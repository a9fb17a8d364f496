"""The letters with which byte-level vocabularies write bytes, introduced by GPT-2 (Radford et al., 2019).

A byte that is a visible Latin-1 character is written as itself. The others are written as the letters from U+0100 on,
in order.
"""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=1)
def _bytes_by_letter() -> dict[str, int]:
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    invisible = [byte for byte in range(256) if byte not in set(visible)]
    return {chr(byte): byte for byte in visible} | {chr(0x100 + place): byte for place, byte in enumerate(invisible)}


def bytes_of(token: str) -> bytes | None:
    """Returns the bytes of a token as the vocabulary writes it; None if it is not byte-level."""
    table = _bytes_by_letter()
    return bytes(table[letter] for letter in token) if all(letter in table for letter in token) else None


def spell(content: bytes) -> str:
    """Returns the text of bytes; bytes outside complete characters become `<E5>`."""
    text = ""
    while True:
        try:
            return text + content.decode("utf-8")
        except UnicodeDecodeError as error:
            broken = "".join(f"<{byte:02X}>" for byte in content[error.start : error.end])
            text += content[: error.start].decode("utf-8") + broken
            content = content[error.end :]
