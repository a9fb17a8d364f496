"""Writes zip archives as programs other than Python do."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

MARK = 0x800  # the flag of a name in UTF-8, which Python sets from 3.14 on for every new member


class _Unmarked(zipfile.ZipInfo):
    """A member whose name is stored in an encoding that the archive does not say."""

    encoding = "utf-8"

    def _encodeFilenameFlags(self) -> tuple[bytes, int]:
        return self.filename.encode(self.encoding), self.flag_bits & ~MARK


def unmarked_zip(path: Path, members: Mapping[str, bytes], encoding: str = "utf-8", system: int = 3) -> Path:
    r"""Writes an archive as `zip` on Linux does, without a mark for the encoding of its names; returns its path.

    Args:
        system: 3 for Unix, 0 for Windows, whose old programs write `\` between folders.
    """
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            member = _Unmarked(name)
            member.encoding, member.create_system = encoding, system
            archive.writestr(member, content)
    return path
