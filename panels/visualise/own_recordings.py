"""Recordings of a visitor's own in links of the Visualise tab: each is kept once, under a key that nobody can guess."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path

from panels.running.kept_files import found_file, stored_files
from panels.running.run_store import RunStore
from workbench.core.errors import BadInput

TAB = "visualise"
MAX_KNOWN = 1000  # paths whose keys are remembered


class OwnRecordings:
    """The recordings that links name by a key, in the store of runs."""

    def __init__(self, store: RunStore):
        self.store = store
        self._keys: OrderedDict[str, str] = OrderedDict()  # by the path of an upload, which depends on its content
        self._lock = threading.Lock()

    def keep(self, path: str) -> str:
        """Stores a recording, unless it is stored already; returns its key; empty if it is too large or gone."""
        with self._lock:
            key = self._keys.get(path, "")
        if key and self._is_stored(key):
            return key
        if not Path(path).is_file() or Path(path).stat().st_size > self.store.largest:
            return ""
        stored_paths, files = stored_files([path])
        key = self.store.keep({"tab": TAB, "recording": stored_paths[path]}, files)
        self._remember(path, key)
        return key

    def find(self, key: str) -> str:
        """Returns the path of a copy among the uploads. Raises `BadInput` if no kept recording has this key."""
        content, folder = self.store.read(key)
        if content.get("tab") != TAB:
            raise BadInput("that link leads to a run of another tab; open it there")
        path = found_file(content["recording"], folder)
        self._remember(path, key)
        return path

    def _is_stored(self, key: str) -> bool:
        try:
            self.store.read(key)
        except BadInput:
            return False
        return True

    def _remember(self, path: str, key: str) -> None:
        with self._lock:
            self._keys[path] = key
            self._keys.move_to_end(path)
            while len(self._keys) > MAX_KNOWN:
                self._keys.popitem(last=False)
