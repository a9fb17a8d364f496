"""The folder with the files of visitors: a folder for each visitor, unguessable names, and quotas.

    ROOT/visitors/ADDRESS-VISITOR/RANDOM/...

ADDRESS and VISITOR are keyed hashes of the network address and of the visitor. The key is stored in ROOT, so quotas
also hold after a restart. A client that knows the random name may read the file. No other client can find it, because
there is no list.

Folders are removed after the hours that the limits name. If there are too many before, the oldest are removed first:
those of a visitor beyond its share, those of an address beyond the shares of all its visitors, and those of all beyond
the whole.
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
import time
from collections.abc import Iterable
from pathlib import Path

from workbench.core.errors import NoRoom, Unavailable
from workbench.core.visitors import Visitor
from workbench.serving.admission.limits import Limits
from workbench.system.atomic_files import DISK_FULL

SPARE = 64 << 20  # bytes of the disk that uploads leave free for all else
FOLDERS, SECRET, KEY_BYTES = "visitors", ".secret", 32
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
            with self._lock:
                folder.mkdir(parents=True)
                self._filling.add(folder)
            free = shutil.disk_usage(folder).free
        except OSError as error:
            raise no_room_error(error) from error
        if free < expected + SPARE:
            self.drop(folder)
            raise NoRoom(
                f"the disk of this server has {max(free - SPARE, 0) >> 20} MB left, and the file needs "
                f"{expected >> 20} MB; try again later, or with a smaller file"
            )
        return folder

    def end(self, folder: Path) -> None:
        """Keeps a complete folder, and removes the oldest folders if there are too many bytes."""
        with self._lock:
            self._filling.discard(folder)
            make_newest(folder, (self.root / FOLDERS).glob("*/*"))
            share, home = self.limits.disk_mb_per_visitor << 20, folder.parent.name
            self._trim(home, share, folder)
            self._trim(f"{home.partition('-')[0]}-*", share * self.limits.per_address, folder)
            self._trim("*", self.limits.disk_mb << 20, folder)

    def drop(self, folder: Path) -> None:
        """Removes a folder that was not completed."""
        shutil.rmtree(folder, ignore_errors=True)
        with self._lock:
            self._filling.discard(folder)
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

    def remove_expired(self) -> None:
        """Removes the folders that are older than `Limits.upload_hours`, and folders of visitors without files."""
        before = time.time() - 3600 * self.limits.upload_hours
        for home in (self.root / FOLDERS).glob("*"):
            with contextlib.suppress(OSError):  # another server may remove the same folders
                expired = [path for path in home.iterdir() if path.stat().st_mtime < before]
                for path in expired:
                    if path not in self._filling:
                        shutil.rmtree(path, ignore_errors=True)
                with self._lock:
                    home.rmdir()  # fails while it has others

    def _home(self, visitor: Visitor) -> Path:
        known = (visitor.address, f"{visitor.address} {visitor.session} {visitor.key}")
        names = [hmac.new(self._secret(), each.encode(), hashlib.sha256).hexdigest()[:24] for each in known]
        return self.root / FOLDERS / "-".join(names)

    def _secret(self) -> bytes:
        with self._lock:
            if not self._key:
                self.root.mkdir(parents=True, exist_ok=True)
                self._key = _shared_key(self.root / SECRET)
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


def _shared_key(path: Path) -> bytes:
    """Returns the key in a file, which is made if it is missing, or if a full disk has left it incomplete.

    The file appears with its content, so that two servers that start at once use the same key.
    """
    with contextlib.suppress(FileNotFoundError):
        if len(key := path.read_bytes()) == KEY_BYTES:
            return key
        path.unlink()
    new = path.with_name(f"{path.name}-{secrets.token_hex(8)}")
    try:
        with open(new, "xb", opener=_private) as file:
            file.write(secrets.token_bytes(KEY_BYTES))
        os.link(new, path)
    except FileExistsError:
        pass  # another server was first
    except OSError:
        new.replace(path)  # a file system without hard links
    finally:
        new.unlink(missing_ok=True)
    return path.read_bytes()


def make_newest(path: Path, others: Iterable[Path]) -> None:
    """Makes the time of change of a path the latest, also after the clock was set back: the oldest are removed first.

    Args:
        others: paths, which may be gone.
    """
    newest = 0
    for each in others:
        with contextlib.suppress(OSError):
            newest = max(newest, 0 if each == path else each.stat().st_mtime_ns)
    with contextlib.suppress(OSError):  # another server may have removed it
        if path.stat().st_mtime_ns <= newest:
            os.utime(path, ns=(newest + 1, newest + 1))


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
    if error.errno not in DISK_FULL:
        return error
    return NoRoom(
        f"the disk of this server is full ({error.strerror}), so the work could not be finished; try again later"
    )
