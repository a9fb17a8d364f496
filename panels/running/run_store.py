"""Results of runs, kept in files for a set time and within a quota, so that a link shows them again.

Each run has its own folder, with a name that nobody can guess. So only people who have the link can see the run. The
folders survive a restart of the server. This file knows no tab, and does not know what a run holds.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.core.errors import BadInput, NoRoom
from workbench.serving.kept_files import make_newest
from workbench.system.user_cache import user_cache

HOURS, PUBLIC_HOURS, HOURS_VARIABLE = 7 * 24.0, 24.0, "WORKBENCH_KEEP_HOURS"
GIGABYTES, GIGABYTES_VARIABLE = 2.0, "WORKBENCH_KEEP_GB"
CONTENT = "run.json"
UNFINISHED = ".part"  # suffix of a folder that is still being written
ABANDONED_SECONDS = 3600.0  # an older unfinished folder was left behind by a server that ended
_KEY = re.compile(r"[A-Za-z0-9_-]{22}")
REMOVED = "that run is not kept any more; runs stay for {period}, and the oldest go first when there are too many"
NOT_STORED = (
    "the server could not store this run for a link ({reason}); its results stay on the page until you leave it"
)


def period_of(hours: float) -> str:
    """Returns how long a run stays, in words."""
    days = round(hours / 24)
    if hours < 48:
        return "an hour" if hours == 1 else f"{hours:g} hours" if hours != 24 else "a day"
    return f"{days} days"


class RunStore:
    """Runs by key.

    Args:
        folder: holds them; made when the first run is kept.
        hours: how long a run stays.
        nbytes: the most bytes of all runs together; the oldest runs are removed first.
    """

    def __init__(self, folder: Path, hours: float = HOURS, nbytes: float = GIGABYTES * 1e9):
        self.folder, self.hours, self.nbytes = folder, hours, nbytes
        self._lock = threading.Lock()

    @property
    def largest(self) -> float:
        """The most bytes of one file: a quarter of the quota, so that one recording does not push all others out."""
        return self.nbytes / 4

    def keep(self, content: Mapping[str, Any], files: Mapping[str, Path] | None = None) -> str:
        """Stores a run, as JSON and files by name; returns its key. A file that is too large or gone is left out.

        Raises `NoRoom` if the disk is full or the folder cannot be written to.
        """
        try:
            return self._keep(content, files or {})
        except OSError as error:
            raise NoRoom(NOT_STORED.format(reason=error.strerror or error)) from error

    def _keep(self, content: Mapping[str, Any], files: Mapping[str, Path]) -> str:
        key = secrets.token_urlsafe(16)
        place = self.folder / (key + UNFINISHED)
        with self._lock:
            place.mkdir(parents=True, mode=0o700)
            try:
                for name, path in files.items():
                    if path.is_file() and path.stat().st_size <= self.largest:
                        shutil.copyfile(path, place / Path(name).name)
                (place / CONTENT).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
                make_newest(place / CONTENT, self.folder.glob(f"*/{CONTENT}"))
                place.rename(self.folder / key)
            except BaseException:  # such as a full disk, which an unfinished folder would keep full
                shutil.rmtree(place, ignore_errors=True)
                raise
            self._remove_old(spared=key)
        return key

    def remove_expired(self) -> None:
        """Removes the runs that are kept for longer than `hours`."""
        with self._lock, contextlib.suppress(OSError):  # there is no folder before the first run
            self._remove_old()

    def read(self, key: str) -> tuple[dict[str, Any], Path]:
        """Returns a run's content and the folder of its files. Raises `BadInput` for a run that is not kept."""
        found = self.folder / key if isinstance(key, str) and _KEY.fullmatch(key) else None
        removed = BadInput(REMOVED.format(period=period_of(self.hours)))
        try:
            if found is None or time.time() - (found / CONTENT).stat().st_mtime > 3600 * self.hours:
                raise removed
            content = json.loads((found / CONTENT).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise removed from error
        if not isinstance(content, dict):
            raise removed
        return content, found

    def _remove_old(self, spared: str = "") -> None:
        """Removes runs that are too old, then the oldest until the rest is within the quota."""
        now, total = time.time(), 0
        for age, size, folder in sorted(map(_measured, self.folder.iterdir()), key=lambda each: each[0], reverse=True):
            total += size
            unfinished = folder.suffix == UNFINISHED
            old = now - age > (ABANDONED_SECONDS if unfinished else 3600 * self.hours)
            if folder.name != spared and (old or (total > self.nbytes and not unfinished)):
                shutil.rmtree(folder, ignore_errors=True)
                total -= size


def _measured(folder: Path) -> tuple[float, int, Path]:
    """Returns when a run was kept, in seconds since 1970, its bytes, and its folder; zeros if it was just removed."""
    try:
        sizes = [each.stat().st_size for each in folder.iterdir()] if folder.is_dir() else []
        content = folder / CONTENT
        return (content if content.exists() else folder).stat().st_mtime, sum(sizes), folder
    except OSError:
        return 0.0, 0, folder


def usual_store(public: bool = False) -> RunStore:
    """Returns the store of this user, with the time and the quota that the environment names.

    By default, runs of a public page stay for a day. Raises `BadInput` for a variable that is not a number above 0.
    """
    hours = _number(HOURS_VARIABLE, PUBLIC_HOURS if public else HOURS)
    return RunStore(user_cache() / "runs", hours, 1e9 * _number(GIGABYTES_VARIABLE, GIGABYTES))


def _number(variable: str, otherwise: float) -> float:
    value = os.environ.get(variable) or str(otherwise)
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise BadInput(f"{variable} is {value!r:.40}; expected a number above 0")
    return number
