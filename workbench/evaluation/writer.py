"""Writes the directory of an evaluation, so that a kill at any byte loses at most the row that was being written.

A lock makes sure that only one process writes; the system releases it when that process ends. Rows are appended to
shards, each with one write. When a directory is opened again, torn rows and second copies of rows are removed, and
`todo` lists what is left to compute. `workbench.evaluation.store` describes the files.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from workbench.core.errors import BadInput
from workbench.evaluation.rows import Result, Utterance, as_line, encoded
from workbench.evaluation.store import (
    LOCK,
    RESULTS,
    RUN,
    SKIPPED,
    TRANSCRIPTS,
    UTTERANCES,
    Manifest,
    Model,
    Run,
    read_run,
    slug,
)
from workbench.system.atomic_files import UNFINISHED, explained_file_errors, temporary

OWN_FILES = {RUN, UTTERANCES, SKIPPED, RESULTS, LOCK}
SYNC_SECONDS = 2.0  # rows are flushed to the disk at least this often, in case of a loss of power
Position = int  # of an utterance in the corpus


@dataclass(frozen=True)
class Corpus:
    """Utterances on the disk, in their order.

    Only the places of their lines are in memory, so a corpus may be large.
    """

    path: Path
    starts: array[int]  # of each line, in bytes

    def __len__(self) -> int:
        return len(self.starts)

    def __iter__(self) -> Iterator[Utterance]:
        """Yields all utterances in their order."""
        with self.path.open("rb") as file:
            yield from map(Utterance.from_line, file)

    def at(self, positions: Sequence[Position]) -> list[Utterance]:
        """Returns the utterances at some positions."""
        with self.path.open("rb") as file:
            utterances = []
            for position in positions:
                file.seek(self.starts[position])
                utterances.append(Utterance.from_line(file.readline()))
        return utterances


@dataclass
class _Shard:
    """A shard with rows of its own that is not in its final order."""

    path: Path
    positions: list[Position]  # of its rows, in the order in which they stand there
    file: int | None = None  # open for appending
    synced: float = field(default_factory=time.monotonic)
    dirty: bool = False


@contextlib.contextmanager
def claimed(directory: Path) -> Iterator[None]:
    """Holds the lock of a directory, and makes the directory if it is missing.

    Raises `BadInput` if another process holds the lock, or if the directory holds other files and no evaluation.
    """
    from filelock import FileLock, Timeout

    with explained_file_errors(directory):
        if directory.exists() and not directory.is_dir():
            raise BadInput(f"{directory} is a file; expected the directory of an evaluation, or the name of a new one")
        if directory.is_dir() and not (directory / RUN).exists():
            other_files = [path.name for path in directory.iterdir() if not _is_own_file(path.name)]
            if other_files:
                raise BadInput(
                    f"{directory} holds other files, such as {other_files[0]:.80}; expected the directory of an "
                    "evaluation, or a new or empty one"
                )
        new = not directory.exists()
        directory.mkdir(parents=True, exist_ok=True)
    lock = FileLock(directory / LOCK)
    with explained_file_errors(directory):
        try:
            lock.acquire(timeout=0)
        except Timeout:  # a subclass of OSError
            raise BadInput(
                f"another evaluation is at work in {directory}; wait until it ends, stop it, or name another directory"
            ) from None
    try:
        for unfinished in directory.rglob(f"*{UNFINISHED}"):  # of a process that was killed
            unfinished.unlink(missing_ok=True)
        yield
    finally:
        if new and not (directory / RUN).exists():  # it came to nothing
            for name in (UTTERANCES, SKIPPED, LOCK):
                (directory / name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                directory.rmdir()
        lock.release()


def _is_own_file(name: str) -> bool:
    return name in OWN_FILES or name.endswith(UNFINISHED)


@dataclass(frozen=True)
class Draft:
    """A corpus that is written under a temporary name, so that a refused corpus changes nothing."""

    directory: Path
    files: tuple[Path, Path]
    digest: str  # SHA-256 of the utterances' lines
    utterances: int
    skipped: int

    def accept(self) -> None:
        """Puts the files in place."""
        for file, name in zip(self.files, (UTTERANCES, SKIPPED)):
            with explained_file_errors(self.directory / name):
                file.replace(self.directory / name)


@contextlib.contextmanager
def drafted(directory: Path, rows: Iterable[Utterance | Mapping[str, str]]) -> Iterator[Draft]:
    """Writes a corpus; removes it at the end of the block unless the block accepts it.

    Args:
        rows: utterances, and mappings with `where` and `reason` for rows that cannot be used.
    """
    with temporary(directory / UTTERANCES) as good, temporary(directory / SKIPPED) as bad:
        digest, utterances, skipped = hashlib.sha256(), 0, 0
        with explained_file_errors(directory / UTTERANCES), good.open("wb") as good_file, bad.open("wb") as bad_file:
            for row in rows:
                if isinstance(row, Utterance):
                    line = encoded(row.to_line())
                    digest.update(line)
                    good_file.write(line)
                    utterances += 1
                else:
                    bad_file.write(encoded(as_line(row)))
                    skipped += 1
        _sync(good)
        _sync(bad)
        yield Draft(directory, (good, bad), digest.hexdigest(), utterances, skipped)


def write_run(directory: Path, run: Run) -> None:
    """Writes run.json, in place of an earlier one, at once."""
    with explained_file_errors(directory / RUN), temporary(directory / RUN) as new:
        new.write_bytes(encoded(run.to_json()))
        _sync(new)
        new.replace(directory / RUN)


def merged(directory: Path, requested: Run) -> Run:
    """Returns the continued run of a directory: the earlier run with the new models.

    Raises `BadInput`, in one sentence, if the corpus, the normaliser, or anything that affects a model's results has
    changed.
    """
    if not (directory / RUN).exists():
        return requested
    earlier = read_run(directory)
    elsewhere = "; name another directory for it"
    _check_manifest(directory, earlier.manifest, requested.manifest, elsewhere)
    if dict(earlier.normaliser) != dict(requested.normaliser):
        raise BadInput(
            f"{directory} was scored with the normaliser {_normaliser_name(earlier.normaliser)}, and "
            f"{_normaliser_name(requested.normaliser)} is asked for{elsewhere}"
        )
    earlier_models = {each.key: each for each in earlier.models}
    for each in requested.models:
        if each.key in earlier_models:
            _check_model(directory, earlier_models[each.key], each, elsewhere)
    added = tuple(each for each in requested.models if each.key not in earlier_models)
    return replace(earlier, manifest=requested.manifest, models=(*earlier.models, *added))


def _normaliser_name(normaliser: Any) -> str:
    return f"{normaliser['name']} (version {normaliser['version']})"


def _check_manifest(directory: Path, earlier: Manifest, requested: Manifest, elsewhere: str) -> None:
    if earlier.digest != requested.digest:
        sizes = f"{earlier.utterances} recordings then, {requested.utterances} now"
        raise BadInput(f"{requested.path} is not the corpus that {directory} was made from ({sizes}){elsewhere}")


def _check_model(directory: Path, earlier: Model, requested: Model, elsewhere: str) -> None:
    if earlier.checkpoint != requested.checkpoint:
        changed = "file" if TRANSCRIPTS in (earlier.runtime, requested.runtime) else "checkpoint"
        raise BadInput(f"the {changed} of {requested.key} has changed since {directory} was made{elsewhere}")
    for group in ("options", "settings"):
        before, now = getattr(earlier, group), json.loads(json.dumps(getattr(requested, group), default=list))
        names = sorted({name for name in {*before, *now} if before.get(name) != now.get(name)})
        if names:
            earlier_value = f"{before[names[0]]!r:.60}" if names[0] in before else "unset"
            current_value = f"{now[names[0]]!r:.60}" if names[0] in now else "unset"
            raise BadInput(
                f"{requested.key} ran in {directory} with {names[0]} {earlier_value}, and now it is "
                f"{current_value}{elsewhere}"
            )


class Writer:
    """Appends results to a directory that this process has claimed. Its calls come from one thread.

    Args:
        models: the keys of the models that will be written.
        retry_failed: whether to compute failed recordings again; otherwise their errors stay.
    """

    def __init__(self, directory: Path, run: Run, models: Sequence[str], retry_failed: bool = False):
        self.directory = directory
        self._retry_failed = retry_failed
        self.rows = run.shard_rows
        self.corpus, self._position = index_of(directory / UTTERANCES)
        self.torn = 0  # rows that were damaged, and are to be computed again
        self.failed = 0  # rows with an error that are to be computed again
        self._done: dict[str, bytearray] = {}
        self._shards: dict[tuple[str, int], _Shard] = {}
        for key in models:
            self._load_results(key)
        self.torn -= self.failed

    def _load_results(self, key: str) -> None:
        """Takes over the existing results of a model, without rows that are torn, invalid or repeated."""
        is_done = self._done[key] = bytearray(len(self.corpus))
        folder = self.directory / RESULTS / slug(key)
        with explained_file_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            for path in sorted(folder.glob("[0-9]*.jsonl")):
                number = int(path.stem)
                valid_lines: list[tuple[Position, bytes]] = []
                content = path.read_bytes()
                for line in content.splitlines(keepends=True):
                    position = self._position_of(line, key)
                    if position is None or is_done[position] or position // self.rows != number:
                        self.torn += 1
                        continue
                    is_done[position] = 1
                    valid_lines.append((position, line if line.endswith(b"\n") else line + b"\n"))
                if b"".join(line for _, line in valid_lines) != content:
                    self._replace(path, [line for _, line in valid_lines])
                positions = [position for position, _ in valid_lines]
                if positions != sorted(positions) or len(positions) < self._full_size(number):
                    self._shards[key, number] = _Shard(path, positions)

    def _position_of(self, line: bytes, key: str) -> Position | None:
        try:
            result = Result.from_line(line)
        except ValueError:
            return None
        if self._retry_failed and result.error is not None:
            self.failed += 1
            return None
        return self._position.get(result.id) if result.model == key else None

    def _full_size(self, number: int) -> int:
        """Returns the number of rows of a complete shard; the last one may be shorter."""
        return min(self.rows, len(self.corpus) - number * self.rows)

    def position(self, name: str) -> Position:
        """Returns the position of an utterance in the corpus."""
        return self._position[name]

    def todo(self, key: str, limit: int | None = None) -> list[Position]:
        """Returns, in order, those of the first `limit` positions that have no result of a model yet."""
        is_done = self._done[key]
        return [
            position
            for position in range(len(is_done) if limit is None else min(limit, len(is_done)))
            if not is_done[position]
        ]

    def add(self, result: Result) -> bool:
        """Writes a result; returns False, and writes nothing, if this utterance already has one.

        Raises `Unavailable` if the disk is full, and leaves only complete rows.
        """
        position = self._position[result.id]
        if self._done[result.model][position]:
            return False
        number = position // self.rows
        shard = self._shards.get((result.model, number))
        if shard is None:
            path = self.directory / RESULTS / slug(result.model) / f"{number:05d}.jsonl"
            shard = self._shards[result.model, number] = _Shard(path, [])
        with explained_file_errors(shard.path):
            self._append(shard, encoded(result.to_line()))
        shard.positions.append(position)
        self._done[result.model][position] = 1
        if len(shard.positions) == self._full_size(number):
            self._seal(result.model, number)
        return True

    def _append(self, shard: _Shard, line: bytes) -> None:
        if shard.file is None:
            shard.file = os.open(shard.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        before = os.fstat(shard.file).st_size
        try:
            remaining = line
            while remaining:
                remaining = remaining[os.write(shard.file, remaining) :]
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(shard.file, before)
            raise
        shard.dirty = True
        if time.monotonic() - shard.synced > SYNC_SECONDS:
            os.fsync(shard.file)
            shard.synced, shard.dirty = time.monotonic(), False

    def _seal(self, key: str, number: int) -> None:
        """Writes a shard again, with its rows in the order of the utterances."""
        shard = self._shards.pop((key, number))
        self._close(shard)
        if shard.positions == sorted(shard.positions):
            return
        with explained_file_errors(shard.path):
            lines = shard.path.read_bytes().splitlines(keepends=True)
            if len(lines) != len(shard.positions):  # interrupted in the middle of a row; the next run repairs it
                return
            ordered = [line for _, line in sorted(zip(shard.positions, lines, strict=True))]
            self._replace(shard.path, ordered)

    def _replace(self, path: Path, lines: Sequence[bytes]) -> None:
        with temporary(path) as new:
            new.write_bytes(b"".join(lines))
            _sync(new)
            new.replace(path)

    def _close(self, shard: _Shard) -> None:
        if shard.file is not None:
            with explained_file_errors(shard.path):
                if shard.dirty:
                    os.fsync(shard.file)
            os.close(shard.file)
            shard.file = None

    def close(self) -> None:
        """Puts the rows of all shards in order and closes the files."""
        for key, number in list(self._shards):
            self._seal(key, number)

    def abandon(self) -> None:
        """Closes the files unchanged after a failed write."""
        for shard in self._shards.values():
            if shard.file is not None:
                with contextlib.suppress(OSError):
                    os.close(shard.file)
                shard.file = None
        self._shards.clear()


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def index_of(path: Path) -> tuple[Corpus, dict[str, Position]]:
    """Returns the corpus in a file of utterances, and the position of each id."""
    starts, positions, at = array("q"), dict[str, Position](), 0
    with explained_file_errors(path), path.open("rb") as file:
        for number, line in enumerate(file):
            starts.append(at)
            at += len(line)
            positions[json.loads(line)["id"]] = number
    return Corpus(path, starts), positions
