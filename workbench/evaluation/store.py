"""The directory of an evaluation: its files, and how to read them.

    DIR/run.json           what produced the results: format, manifest, normaliser, models, versions
    DIR/utterances.jsonl   the corpus, an `Utterance` a line, in the manifest's order: id, audio, offset, duration,
                           channel, text, language, speaker, noise, and other columns under "extra"
    DIR/skipped.jsonl      rows of the manifest that cannot be used: {"where": "list.csv, line 7", "reason": "..."}
    DIR/results/SLUG/NNNNN.jsonl   what one model made of them, a `Result` a line; SLUG is `slug` of the model's key

`run.json` in full, as `Run` has it:

    {"format": 1,
     "manifest": {"path": "...", "root": "...", "format": "csv", "digest": "...", "utterances": 2000, "skipped": 3},
     "normaliser": {"name": "basic", "version": "2"},
     "shard_rows": 1000,
     "models": [{"key": "demo/sensevoice|gguf|q8_0", "model": "demo/sensevoice", "runtime": "gguf",
                 "quantization": "q8_0", "card": {...}, "checkpoint": "digest, or null for a server",
                 "settings": {...}, "options": {...}}],
     "versions": {"speech-workbench": "...", "python": "...", "numpy": "..."},
     "measured": {"created": "2026-01-31T12:00:00+00:00", "machine": "..."}}

- `manifest.digest` is the SHA-256 of `utterances.jsonl`: it depends on the rows, not on where they are stored.
  `manifest.root` is the folder from which relative `audio` counts (see `workbench.evaluation.places`).
- Shard NNNNN of a model holds the results of the utterances NNNNN * `shard_rows` and on. Rows are appended as they are
  computed. A shard whose rows are all there, and every shard at the end of a run, is written once more in the order of
  the utterances. So two finished runs have the same bytes but for `measured`, the last key of each row.
- A row counts as soon as its line is complete. The reader skips a torn line and the second copy of a row. So a
  directory can be read at any time, also while a run adds to it. The next run computes torn rows again.
- `measured` of a result: `compute_seconds` and `cpu_seconds` (its share of its batch), `memory_bytes` (peak of the
  worker's process), `worker`, `when` (UTC).
- `limit` is not part of a run: a directory holds the whole corpus, and results for the recordings that were asked for.

This file reads. `workbench.evaluation.writer` writes.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from workbench.core.errors import BadInput
from workbench.evaluation.rows import Result, Utterance

FORMAT = 1
RUN, UTTERANCES, SKIPPED, RESULTS, LOCK = "run.json", "utterances.jsonl", "skipped.jsonl", "results", ".lock"
SHARD_ROWS = 1000
TRANSCRIPTS = "transcripts"  # in place of a runtime: another program has written them
RUN_AGAIN = "run `workbench evaluate` with the same list once more, which writes it again"
EXPECTED = "expected a directory that `workbench evaluate` has written"


@dataclass(frozen=True)
class Manifest:
    """Where the corpus came from."""

    path: str  # as it was given; absolute if it is on this machine
    root: str  # the folder or address from which relative audio counts
    format: str  # an entry of `workbench.evaluation.manifests`
    digest: str  # SHA-256 of utterances.jsonl
    utterances: int
    skipped: int  # rows that cannot be used


@dataclass(frozen=True)
class Model:
    """One model of a run, with all that decides what it writes."""

    key: str  # card, runtime, and the type of the weights in a GGUF file: demo/sensevoice|gguf|q8_0
    model: str  # the card's id
    runtime: str
    quantization: str | None
    card: Mapping[str, Any]
    checkpoint: str | None  # digest of its files' contents; None for a server
    settings: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """What made the results of a directory."""

    manifest: Manifest
    normaliser: Mapping[str, str]  # name, version
    models: tuple[Model, ...]
    versions: Mapping[str, str]
    shard_rows: int = SHARD_ROWS
    format: int = FORMAT
    measured: Mapping[str, Any] = field(default_factory=dict)

    def model(self, key: str) -> Model:
        """Returns the model of a key; raises `BadInput`, which lists the known keys."""
        for each in self.models:
            if each.key == key:
                return each
        raise BadInput(
            f"there are no results of {key!r:.80}; there are some of {', '.join(m.key for m in self.models)}"
        )

    def to_json(self) -> str:
        """Returns the text of run.json."""
        first = ("format", "manifest", "normaliser", "shard_rows", "models", "versions", "measured")
        fields = asdict(self)
        return json.dumps({name: fields[name] for name in first}, ensure_ascii=False, indent=1) + "\n"


@dataclass(frozen=True)
class Evaluation:
    """A directory of results, opened for reading."""

    path: Path
    run: Run

    @property
    def models(self) -> tuple[str, ...]:
        """The keys of the models, in the order in which they were asked for."""
        return tuple(each.key for each in self.run.models)

    def utterances(self) -> Iterator[Utterance]:
        """Yields the corpus in its order."""
        number = 0
        for number, line in enumerate(self._lines(UTTERANCES), 1):
            try:
                yield Utterance.from_line(line)
            except (ValueError, TypeError, RecursionError) as error:
                raise BadInput(f"line {number} of {self.path / UTTERANCES} is damaged; {RUN_AGAIN}") from error
        if number != self.run.manifest.utterances:
            present = f"{number} of {self.run.manifest.utterances} recordings"
            raise BadInput(f"{self.path / UTTERANCES} holds {present}; {RUN_AGAIN}")

    def skipped(self) -> list[dict[str, str]]:
        """Returns the rows of the manifest that cannot be used, each with `where` and `reason`."""
        try:
            return [
                {name: str(json.loads(line)[name]) for name in ("where", "reason")} for line in self._lines(SKIPPED)
            ]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise BadInput(f"{self.path / SKIPPED} is damaged; {RUN_AGAIN}") from error

    def _lines(self, name: str) -> Iterator[bytes]:
        try:
            with (self.path / name).open("rb") as file:
                yield from file
        except OSError as error:
            raise BadInput(f"{self.path / name} cannot be read ({error.strerror or error}); {RUN_AGAIN}") from error

    def results(self, model: str | None = None) -> Iterator[Result]:
        """Yields the results of a model, or of all models one after the other; each utterance once.

        The results of a finished run come in the order of the utterances.
        """
        keys = self.models if model is None else (self.run.model(model).key,)
        for key in keys:
            yielded_ids: set[str] = set()
            for shard in shards(self.path, key):
                for result in read_shard(shard):
                    if result.id not in yielded_ids:
                        yielded_ids.add(result.id)
                        yield result

    def done(self) -> dict[str, int]:
        """Returns the number of results by model; a complete run has `run.manifest.utterances` of each."""
        return {key: sum(1 for _ in self.results(key)) for key in self.models}


def read(directory: str | Path) -> Evaluation:
    """Opens a directory for reading. Raises `BadInput` if it holds no evaluation, or one of a later format."""
    path = Path(directory)
    return Evaluation(path, read_run(path))


def read_run(path: Path) -> Run:
    """Reads run.json; raises `BadInput` as `read`."""
    try:
        content = json.loads((path / RUN).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise BadInput(f"{path} holds no {RUN}; {EXPECTED}") from None
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadInput(f"{path / RUN} cannot be read ({reason}); {EXPECTED}") from error
    try:
        if content["format"] != FORMAT:
            raise BadInput(f"{path / RUN} is of format {content['format']!r:.20}; this version reads format {FORMAT}")
        fields = {**content, "manifest": Manifest(**content["manifest"])}
        _ = content["normaliser"]["name"], content["normaliser"]["version"]
        return Run(**{**fields, "models": tuple(Model(**each) for each in content["models"])})
    except (TypeError, KeyError) as error:
        raise BadInput(f"{path / RUN} is not whole ({error}); {EXPECTED}") from error


def slug(key: str) -> str:
    """Returns the name of the folder of a model's results: readable, and different for every key."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", key).strip("-.")[-60:]
    return f"{readable}-{hashlib.sha256(key.encode()).hexdigest()[:6]}"


def shards(path: Path, key: str) -> list[Path]:
    """Returns the files with a model's results, in their order."""
    return sorted((path / RESULTS / slug(key)).glob("[0-9]*.jsonl"))


def read_shard(path: Path) -> Iterator[Result]:
    """Yields the whole rows of a shard; passes over torn ones."""
    with path.open("rb") as file:
        for line in file:
            try:
                yield Result.from_line(line)
            except ValueError:  # torn: the next run computes it again
                continue
