"""Reads users' zip archives from memory. It limits the size of each member and refuses two members of one name.

`.npz` and `.pt` files are such archives. This file knows neither.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

from workbench.core.errors import BadInput, message_of
from workbench.embeddings.content import shown
from workbench.embeddings.payload import LIMIT, check_size

MAX_MEMBERS = 10_000  # a checkpoint of a large model has a thousand

_BEGINNINGS = (b"PK\x03\x04", b"PK\x05\x06")  # of the first member; of the list of members in an empty archive
_LISTED = b"PK\x01\x02"  # begins each entry of that list
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # other methods take as much memory as a member claims
_ENCRYPTED = 0x1


def is_archive(content: bytes) -> bool:
    """Returns whether a file begins as zip archives do."""
    return content.startswith(_BEGINNINGS)


class Archive:
    """The members of an archive by name, without folders.

    Raises `BadInput` if it is damaged, encrypted, compressed in unusual ways, has two members of one name, or claims to
    inflate to more than `LIMIT`.
    """

    def __init__(self, content: bytes, where: str):
        self.where = where
        # Counted before zipfile lists them, which takes a kilobyte for each.
        count = content.count(_LISTED)
        if count > MAX_MEMBERS:
            raise BadInput(f"{where} is a zip archive of {count} files; expected at most {MAX_MEMBERS}")
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(content))
            members = [each for each in self._zip.infolist() if not each.is_dir()]
        except Exception as error:  # zipfile has no common error for damaged files
            raise BadInput(f"{where} is a truncated or damaged zip archive: {message_of(error, 120)}") from error
        self._members: Mapping[str, zipfile.ZipInfo] = {each.filename: each for each in members}
        if len(self._members) < len(members):
            raise BadInput(f"{where} is a zip archive with two files of one name; expected each once")
        for each in members:
            if each.flag_bits & _ENCRYPTED:
                raise BadInput(
                    f"{shown(each.filename)} in {where} is encrypted; expected an archive without a password"
                )
            if each.compress_type not in _METHODS:
                raise BadInput(
                    f"{shown(each.filename)} in {where} is compressed by method {each.compress_type}; expected stored "
                    "or deflated files, as numpy and PyTorch write them"
                )
        check_size(sum(each.file_size for each in members), f"{where}, inflated,")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the members in the archive's order."""
        return tuple(self._members)

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def size(self, name: str) -> int:
        """Returns the size that a member claims, in bytes."""
        return self._members[name].file_size

    def read(self, name: str, most: int = LIMIT) -> bytes:
        """Returns a member's bytes, at most the first `most`.

        Never inflates more than the member claims. Raises `BadInput` if it has fewer bytes, or if they are damaged.
        """
        member = self._members[name]
        size = min(member.file_size, most)
        try:
            with self._zip.open(member) as file:
                # The argument of `read` limits what is inflated; without it, everything would be inflated first.
                content = file.read(size)
                if size == member.file_size:
                    file.read(1)  # reaches the end, where the checksum is compared
        except Exception as error:  # zipfile and zlib have no common error for damaged files
            raise BadInput(
                f"{shown(name)} in {self.where} is truncated or damaged: {message_of(error, 120)}"
            ) from error
        if len(content) < size:
            raise BadInput(f"{shown(name)} in {self.where} is truncated: it has {len(content)} bytes of {size}")
        return content
