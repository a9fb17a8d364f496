"""The letters that byte-level vocabularies write bytes with, which GPT-2 (Radford et al., 2019) introduced.

A byte that is a visible character of Latin-1 stands for itself, the others for the letters from U+0100 on, in order.
"""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=1)
def _bytes_by_letter() -> dict[str, int]:
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(shown)]
    return {chr(byte): byte for byte in shown} | {chr(0x100 + place): byte for place, byte in enumerate(others)}


def bytes_of(token: str) -> bytes | None:
    """The bytes of a token as the vocabulary writes it; None where that is no byte-level writing."""
    table = _bytes_by_letter()
    return bytes(table[letter] for letter in token) if all(letter in table for letter in token) else None


def spelled(content: bytes) -> str:
    """The text of bytes; those that are part of no whole character as `<E5>`."""
    written = ""
    while True:
        try:
            return written + content.decode("utf-8")
        except UnicodeDecodeError as error:
            broken = "".join(f"<{byte:02X}>" for byte in content[error.start : error.end])
            written += content[: error.start].decode("utf-8") + broken
            content = content[error.end :]
