"""API keys of a server: made once, shown once, kept as hashes. `workbench key add|list|remove` changes them.

The file (`keys.json` in the configuration folder, or $WORKBENCH_KEYS) has one entry for each name: the hash of the key,
and when it was made. A key has 256 random bits, so its plain SHA-256 reveals nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workbench.core.errors import BadInput
from workbench.system.user_cache import user_config

VARIABLE = "WORKBENCH_KEYS"
BEGIN = "swb-"  # how every key begins, so that one that leaked is recognised
NAME = re.compile(r"[\w.-]{1,64}")


def keys_path() -> Path:
    """Returns the file of the keys."""
    path_text = os.environ.get(VARIABLE)
    return Path(path_text) if path_text else user_config() / "keys.json"


class Keys:
    """The keys of a server, by name.

    Args:
        path: their file, which is read again when it has changed; None for no keys.
    """

    def __init__(self, path: Path | None = None):
        self._path = path
        self._read_at: tuple[int, int] | None = None
        self._known: dict[str, dict[str, Any]] = {}

    def __bool__(self) -> bool:
        return bool(self.entries())

    def entries(self) -> dict[str, dict[str, Any]]:
        """Returns name, hash and time of every key; raises `BadInput` for a file that is not a file of keys."""
        if self._path is None:
            return {}
        try:
            state = self._path.stat()
            if self._read_at != (state.st_mtime_ns, state.st_size):
                found = json.loads(self._path.read_text())
                if not isinstance(found, dict) or not all(isinstance(each, dict) for each in found.values()):
                    raise ValueError("no table")
                self._known, self._read_at = found, (state.st_mtime_ns, state.st_size)
        except FileNotFoundError:
            self._known, self._read_at = {}, None
        except (OSError, ValueError, RecursionError) as error:
            raise BadInput(f"the keys in {self._path} cannot be read; remove the file to begin anew") from error
        return self._known

    def name_of(self, key: str) -> str:
        """Returns the name of a key, or an empty text for a wrong key. All wrong keys take the same time."""
        digest, found = _hash(key), ""
        for name, entry in self.entries().items():
            if hmac.compare_digest(str(entry.get("sha256", "")), digest):
                found = name
        return found

    def add(self, name: str) -> str:
        """Makes a key and returns it; it cannot be read again later.

        Raises `BadInput` for a name that is taken or not allowed.
        """
        if not NAME.fullmatch(name):
            raise BadInput(f"the name of the key is {name!r:.80}; expected 1 to 64 letters, figures, dots or dashes")
        key = BEGIN + secrets.token_urlsafe(32)
        with self._changing():
            if name in self.entries():
                raise BadInput(f"there is a key {name} already; remove it first, or choose another name")
            self._write({**self.entries(), name: {"sha256": _hash(key), "made": int(time.time())}})
        return key

    def remove(self, name: str) -> None:
        """Removes a key, which is invalid from now on. Raises `BadInput` if no key has that name."""
        with self._changing():
            entries = dict(self.entries())
            if entries.pop(name, None) is None:
                raise BadInput(f"there is no key {name!r:.80}; the keys are {', '.join(entries) or 'none'}")
            self._write(entries)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Lets no other process change the keys within the block, which would bring back what the block removes."""
        from filelock import FileLock

        assert self._path is not None
        lock = FileLock(self._path.with_name(f".{self._path.name}.lock"), mode=0o600)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        except OSError as error:
            raise self._unwritable(error) from error
        try:
            yield
        finally:
            lock.release()

    def _write(self, entries: dict[str, dict[str, Any]]) -> None:
        assert self._path is not None
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w") as file:
                json.dump(entries, file, indent=1)
            temporary.replace(self._path)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> BadInput:
        return BadInput(f"the keys cannot be written to {self._path}: {error.strerror or error}")


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()
