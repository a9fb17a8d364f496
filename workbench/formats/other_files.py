"""Names the kind of a file that is no recording, from its first bytes: an archive, a document, a picture and others."""

from __future__ import annotations

# First bytes of files that hold no sound, and what these files are.
_OTHER_FORMATS = (
    (b"PK\x03\x04", "a ZIP archive, or a file of that form"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"Rar!", "a RAR archive"),
    (b"BZh", "a bzip2 archive"),
    (b"\xfd7zXZ\x00", "an xz archive"),
    (b"%PDF", "a PDF document"),
    (b"\x89PNG", "a picture (PNG)"),
    (b"\xff\xd8\xff", "a picture (JPEG)"),
    (b"GIF8", "a picture (GIF)"),
    (b"\x7fELF", "a program"),
    (b"MZ", "a program"),
    (b"GGUF", "a model (GGUF)"),
    (b"MThd", "a MIDI file, which holds notes and no sound"),
    (b"\xd0\xcf\x11\xe0", "an Office document"),
    (b"SQLite format 3", "a database"),
)
TEXT = "a text"
_WIDE_TEXT = (b"\xff\xfe", b"\xfe\xff")  # byte order marks; MPEG audio may begin with the first one, too
_TAR_MARK = slice(257, 262)


def other_kind(head: bytes) -> str | None:
    """Returns what a file is if it certainly is not a recording, so that no decoder needs to try it; else None."""
    for first, kind in _OTHER_FORMATS:
        if head.startswith(first):
            return kind
    if head[_TAR_MARK] == b"ustar":
        return "a tar archive"
    if head[:2] in _WIDE_TEXT and len(head) >= 8:
        upper = head[3::2] if head[:2] == _WIDE_TEXT[0] else head[2::2]
        if upper.count(0) > len(upper) // 2:
            return TEXT
    return None
