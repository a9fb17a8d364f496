"""The folder with the files of visitors: a folder for each visitor, unguessable names, and quotas.

    ROOT/visitors/ADDRESS-VISITOR/RANDOM/...

ADDRESS and VISITOR are keyed hashes of the network address and of the visitor. The key is stored in ROOT, so quotas
also hold after a restart. A client that knows the random name may read the file. No other client can find it, because
there is no list. The oldest folders are removed first: those of a visitor beyond its share, those of an address beyond
the shares of all its visitors, and those of all beyond the whole.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import hmac
import os
import re
import secrets
import shutil
import threading
from pathlib import Path

from workbench.core.errors import NoRoom, Unavailable
from workbench.core.visitors import Visitor
from workbench.serving.admission.limits import Limits

FULL = (errno.ENOSPC, errno.EDQUOT)  # of a disk, or of the share that a user has of it
SPARE = 64 << 20  # bytes of the disk that uploads leave free for all else
FOLDERS, SECRET = "visitors", ".secret"
NAME = re.compile(r"[0-9a-f]{32}")  # of a folder with files


class KeptFiles:
    """The files of visitors below a folder."""

    def __init__(self, root: Path, limits: Limits):
        self.root, self.limits = root, limits
        self._lock = threading.Lock()
        self._filling: set[Path] = set()
        self._key = b""

    def begin(self, visitor: Visitor, expected: int = 0) -> Path:
        """Returns a new folder for files of a visitor; `end` or `drop` follows.

        Raises `NoRoom` if the disk has no room for `expected` bytes.
        """
        try:
            folder = self._home(visitor) / secrets.token_hex(16)
            folder.mkdir(parents=True)
            free = shutil.disk_usage(folder).free
        except OSError as error:
            raise no_room_error(error) from error
        if free < expected + SPARE:
            self.drop(folder)
            raise NoRoom(
                f"the disk of this server has {max(free - SPARE, 0) >> 20} MB left, and the file needs "
                f"{expected >> 20} MB; try again later, or with a smaller file"
            )
        with self._lock:
            self._filling.add(folder)
        return folder

    def end(self, folder: Path) -> None:
        """Keeps a complete folder, and removes the oldest folders if there are too many bytes."""
        with self._lock:
            self._filling.discard(folder)
            share, home = self.limits.disk_mb_per_visitor << 20, folder.parent.name
            self._trim(home, share, folder)
            self._trim(f"{home.partition('-')[0]}-*", share * self.limits.per_address, folder)
            self._trim("*", self.limits.disk_mb << 20, folder)

    def drop(self, folder: Path) -> None:
        """Removes a folder that was not completed."""
        with self._lock:
            self._filling.discard(folder)
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # the visitor has others
            folder.parent.rmdir()

    def find(self, name: str) -> Path | None:
        """Returns the one file in the folder of that random name; None if there is none."""
        if not NAME.fullmatch(name):
            return None
        with contextlib.suppress(OSError):
            for home in (self.root / FOLDERS).iterdir():
                found = [path for path in (home / name).rglob("*") if path.is_file() and not path.is_symlink()]
                if len(found) == 1:
                    return found[0]
        return None

    def _home(self, visitor: Visitor) -> Path:
        known = (visitor.address, f"{visitor.address} {visitor.session} {visitor.key}")
        names = [hmac.new(self._secret(), each.encode(), hashlib.sha256).hexdigest()[:24] for each in known]
        return self.root / FOLDERS / "-".join(names)

    def _secret(self) -> bytes:
        with self._lock:
            if not self._key:
                self.root.mkdir(parents=True, exist_ok=True)
                path = self.root / SECRET
                with contextlib.suppress(FileExistsError), open(path, "xb", opener=_private) as file:
                    file.write(secrets.token_bytes(32))
                self._key = path.read_bytes() or secrets.token_bytes(32)
            return self._key

    def _trim(self, homes: str, max_bytes: int, newest: Path) -> None:
        """Removes the oldest folders in the homes of a pattern until they hold at most `max_bytes`."""
        found = []
        for each in (self.root / FOLDERS).glob(homes):
            with contextlib.suppress(OSError):
                found += [(path.stat().st_mtime_ns, bytes_below(path), path) for path in each.iterdir()]
        total_bytes = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total_bytes <= max_bytes:
                return
            if path != newest and path not in self._filling:
                shutil.rmtree(path, ignore_errors=True)
                total_bytes -= size


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def bytes_below(folder: Path) -> int:
    """Returns the size of all files below a folder, as far as they can be read."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_size  # noqa: PTH118 (walks thousands of files)
    return total


def no_room_error(error: OSError) -> NoRoom:
    """Returns the error for a file that could not be written."""
    return NoRoom(
        f"the file found no room on this server ({error.strerror or error}); nothing of it was kept, so try again later"
    )


def known_error(error: BaseException) -> BaseException:
    """Returns the error that says so if the disk is full, or no more files may be open; any other error as it is."""
    if not isinstance(error, OSError):
        return error
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return Unavailable("the server has as many files and connections open as it may; try again in a moment")
    return no_room_error(error) if error.errno in FULL else error
