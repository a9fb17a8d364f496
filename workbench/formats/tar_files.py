"""Opens tar archives, and refuses headers that would fill the memory."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any, BinaryIO

MAX_HEADER = 1 << 20  # bytes of a header with a long name or other long values
_LONG = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
"""The types of members that `tarfile` reads whole, as they tell about the next one."""


class _Member(tarfile.TarInfo):
    def _proc_member(self, archive: tarfile.TarFile) -> Any:
        if self.type in _LONG and self.size > MAX_HEADER:
            raise tarfile.TarError(f"a header has {self.size} bytes; expected at most {MAX_HEADER}")
        return super()._proc_member(archive)  # type: ignore[misc]


def opened_tar(source: Path | BinaryIO) -> tarfile.TarFile:
    """Opens an archive, compressed or not; raises the errors of `tarfile`, also when members are read."""
    if isinstance(source, Path):
        return tarfile.open(source, tarinfo=_Member)
    return tarfile.open(fileobj=source, tarinfo=_Member)
