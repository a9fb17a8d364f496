"""Checks that a text holds whole characters. A damaged JSON escape, for example, gives half a pair of surrogates.
Python keeps it, but no tokenizer takes it. In arguments, and in standard input in the C locale, it keeps a byte that is
not UTF-8 as such a half, too.
"""

from __future__ import annotations

from workbench.core.errors import BadInput

FIRST_BYTE, LAST_BYTE = 0xDC80, 0xDCFF  # what Python keeps for the bytes 0x80 to 0xFF


def check_characters(text: str, what: str) -> None:
    """Raises `BadInput` if a text holds half a character or a byte that is not UTF-8; `what` names the text."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        half = ord(text[error.start])
        if FIRST_BYTE <= half <= LAST_BYTE:
            raise BadInput(
                f"{what} holds the byte 0x{half & 0xFF:02X}, which is not UTF-8; expected UTF-8 text"
            ) from error
        raise BadInput(f"{what} holds half a character; expected a text that can be written as UTF-8") from error
