"""Runs models over a corpus, and writes a directory with all results."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from workbench import __version__
from workbench.core.errors import BadInput, Unavailable
from workbench.core.progress import OnProgress
from workbench.core.runtimes import RUNTIMES
from workbench.evaluation.local import LocalWorkers
from workbench.evaluation.manifests import Bad, FoundCorpus, Wanted, read_manifest
from workbench.evaluation.models import BATCH, Chosen, choose_models
from workbench.evaluation.progress import Estimate
from workbench.evaluation.rows import Utterance
from workbench.evaluation.schedule import EvaluationState, Schedule
from workbench.evaluation.store import SHARD_ROWS, Evaluation, Manifest, Run, read
from workbench.evaluation.summary import ModelSummary, summarise
from workbench.evaluation.transcripts import add_results, match, transcript_files
from workbench.evaluation.worker import Job, is_here
from workbench.evaluation.workers import Workers
from workbench.evaluation.writer import Writer, claimed, drafted, merged, write_run
from workbench.registry.budget import default_budget, estimated_bytes
from workbench.registry.registry import Registry
from workbench.system.memory import size
from workbench.system.processors import available_processors
from workbench.system.versions import versions
from workbench.text.normalisers import find_normaliser

MAX_WORKERS = 4096
MAX_RECORDINGS = 10**9
THREADS = 1  # of a worker by default: with short recordings, several threads wait for each other more than they help


@dataclass(frozen=True)
class Outcome:
    """What a run did, and what is in its directory now."""

    evaluation: Evaluation
    models: tuple[ModelSummary, ...]
    computed: int  # results that this run added
    audio_seconds: float  # seconds of sound that this run computed
    seconds: float  # seconds that computing took, including loading
    torn: int  # damaged rows of earlier runs, which were computed again
    workers: int
    place: str  # where the workers ran; empty without workers
    notes: tuple[str, ...] = ()  # on transcripts of other programs, a sentence each

    def to_dict(self) -> dict[str, Any]:
        """Returns plain JSON values."""
        manifest = self.evaluation.run.manifest
        return {
            "directory": str(self.evaluation.path),
            "manifest": manifest.path,
            "utterances": manifest.utterances,
            "skipped": manifest.skipped,
            "normaliser": dict(self.evaluation.run.normaliser),
            "models": [each.to_dict() for each in self.models],
            "computed": self.computed,
            "audio_seconds": round(self.audio_seconds, 3),
            "seconds": round(self.seconds, 3),
            "torn": self.torn,
            "workers": self.workers,
            "place": self.place,
            "notes": list(self.notes),
        }


def run(
    manifest: str | Path,
    models: Sequence[str],
    out: str | Path,
    *,
    transcripts: Mapping[str, str | Path] | None = None,
    workers: int | None = None,
    batch_size: int | None = None,
    limit: int | None = None,
    normaliser: str = "basic",
    split: str | None = None,
    text_column: str | None = None,
    address: str | None = None,
    settings: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    servers: Sequence[str] = (),
    retry_failed: bool = False,
    registry: Registry | None = None,
    on_progress: OnProgress | None = None,
    on_skipped: Callable[[Bad], None] | None = None,
) -> Outcome:
    """Computes the missing results of a directory; goes on where an earlier run stopped.

    Args:
        manifest: the corpus (see `workbench.evaluation.manifests`).
        models: ids or paths. A runtime and a type may follow: `demo/sensevoice|gguf|q8_0`.
        out: the directory. It may hold an earlier run of the same corpus; other models are added to it.
        transcripts: files that other programs have written, by the name of the program, which stands beside the models
            (see `workbench.evaluation.transcripts.files`). `models` may then be empty.
        workers: how many run at a time; by default as many as processors and memory allow, and one for an engine.
        batch_size: recordings that a worker gets at a time; models with such an option compute as many side by side.
        limit: compute only the first `limit` recordings.
        normaliser: for the scores (see `workbench.text.normalisers`).
        split: which split of a folder of Parquet files, such as `test`.
        text_column: the column of a table with the reference text; by default the usual one.
        address: of a Ray cluster: `auto`, `ray://HOST:PORT`, or `local` for a small one on this machine; by default
            processes of this machine, without Ray.
        settings: of sessions, for the models whose runtime has them (see `workbench.core.settings.Settings`).
        options: of `transcribe`, for all models.
        servers: more addresses that serve the models whose cards name a server.
        retry_failed: compute recordings again if their result is an error.
        registry: where the cards come from; by default a new one.
        on_progress: receives the progress several times a second, and may raise to stop; finished results stay then.
        on_skipped: receives rows of the manifest that cannot be used.

    Raises `BadInput` and `Unavailable` in one sentence each: for a faulty manifest or model, for a directory that was
    made from another corpus, and for a full disk. Finished results always stay.
    """
    _check_counts(workers, batch_size, limit)
    normaliser_version = find_normaliser(normaliser).version
    corpus = read_manifest(manifest, Wanted(split, text_column))
    files = transcript_files(transcripts or {})
    directory = Path(out).expanduser().absolute()
    registry_context = nullcontext(registry) if registry is not None else Registry()
    with (
        registry_context as cards,
        claimed(directory),
        drafted(directory, _utterances_or_skipped(corpus, on_skipped)) as draft,
    ):
        assert cards is not None
        chosen_models = (
            choose_models(cards, models, settings or {}, options or {}, servers, on_progress)
            if models or not files
            else []
        )
        all_models = (*(each.model for each in chosen_models), *(each.model for each in files))
        matched = match(files, draft.files[0], corpus.root)
        requested_run = Run(
            Manifest(corpus.path, corpus.root, corpus.format, draft.digest, draft.utterances, draft.skipped),
            {"name": normaliser, "version": normaliser_version},
            all_models,
            _versions(),
            SHARD_ROWS,
            measured={"created": datetime.now(UTC).isoformat(timespec="seconds"), "machine": platform.platform()},
        )
        merged_run = merged(directory, requested_run)
        draft.accept()
        write_run(directory, merged_run)
        writer = Writer(directory, merged_run, [each.key for each in all_models], retry_failed)
        start_time = time.monotonic()
        with _finishing(writer):
            added = sum(add_results(writer, each, normaliser, limit) for each in matched)
            computed = _Computed(0, 0.0, 0, "")
            if chosen_models:
                pool, count = _pool(address, chosen_models, workers)
                schedule = Schedule(
                    writer,
                    chosen_models,
                    pool,
                    count,
                    batch_size,
                    limit,
                    lambda each, sample: _job(each, sample, merged_run, batch_size, options or {}),
                    _beat(on_progress),
                )
                schedule.run()
                computed = _Computed(schedule.computed, schedule.seconds, count, pool.place)
        evaluation = read(directory)
        return Outcome(
            evaluation,
            tuple(summarise(evaluation)),
            added + computed.results,
            computed.audio_seconds,
            time.monotonic() - start_time,
            writer.torn,
            computed.workers,
            computed.place,
            tuple(note for each in matched for note in each.notes),
        )


class _Computed(NamedTuple):
    """What the workers have computed."""

    results: int
    audio_seconds: float
    workers: int
    place: str


def _check_counts(workers: int | None, batch_size: int | None, limit: int | None) -> None:
    for name, number, highest in (
        ("number of workers", workers, MAX_WORKERS),
        ("batch size", batch_size, MAX_RECORDINGS),
        ("limit", limit, MAX_RECORDINGS),
    ):
        if number is not None and not 1 <= number <= highest:
            raise BadInput(f"the {name} is {number!r:.40}; expected 1 to {highest}")


@contextmanager
def _finishing(writer: Writer) -> Iterator[None]:
    """Closes the files of the results at the end of the block. Finished results stay, however it ends."""
    try:
        yield
    except (BadInput, Unavailable):
        writer.abandon()
        raise
    except BaseException:
        _closed(writer)
        raise
    writer.close()


def _pool(address: str | None, models: Sequence[Chosen], count: int | None) -> tuple[Workers, int]:
    """Returns the place of the workers, and how many run at a time."""
    if address is None:
        return LocalWorkers(), _local_count(models, count)
    from workbench.evaluation.on_ray import RayWorkers

    cluster = RayWorkers(address, models)
    return cluster, count or cluster.usual_count


def _closed(writer: Writer) -> None:
    """Puts the rows in order after a stop. A full disk at this point does not hide the reason for the stop."""
    try:
        writer.close()
    except (BadInput, Unavailable):
        writer.abandon()


def _utterances_or_skipped(corpus: FoundCorpus, on_skipped: Callable[[Bad], None] | None) -> Any:
    for row in corpus.rows():
        if isinstance(row, Utterance):
            yield row
        else:
            if on_skipped is not None:
                on_skipped(row)
            yield row.to_dict()


def _job(model: Chosen, sample: str, run: Run, batch_size: int | None, options: Mapping[str, Any]) -> Job:
    spec = model.spec
    if spec.settings.threads is None and "threads" in RUNTIMES[spec.runtime].settings and not _has_engine(model):
        spec = replace(spec, settings=replace(spec.settings, threads=THREADS))
    side_by_side = {BATCH: batch_size} if batch_size is not None and model.batches else {}
    return Job(
        model.key,
        model.card,
        spec,
        dict(model.settings),
        {**side_by_side, **options},
        run.normaliser["name"],
        run.manifest.root,
        model.model.checkpoint,
        sample if is_here(run.manifest.root, sample) else "",
    )


def _has_engine(model: Chosen) -> bool:
    return RUNTIMES[model.spec.runtime].parallel


def _local_count(models: Sequence[Chosen], count: int | None) -> int:
    """Returns how many workers run on this machine at a time.

    Raises `Unavailable` if no worker fits, or fewer than were asked for.
    """
    need = max(estimated_bytes(each.spec) for each in models)
    room = default_budget() // max(need, 1)
    if (count or 1) > room:
        advice = f"ask for at most {room}" if room else "choose a smaller quantization"
        raise Unavailable(
            f"{count or 1} worker{'s' if (count or 1) > 1 else ''} need{'' if (count or 1) > 1 else 's'} about "
            f"{size(need)} each, more than the {size(default_budget())} that all may have; {advice}, or set "
            "WORKBENCH_MEMORY_GB to allow more"
        )
    if count:
        return count
    servers = max(len(each.servers) for each in models)
    if servers:
        return servers
    if any(_has_engine(each) or each.spec.settings.device != "cpu" for each in models):
        return 1
    return max(1, min(available_processors(), int(room)))


def _beat(on_progress: OnProgress | None) -> Callable[[EvaluationState], None] | None:
    if on_progress is None:
        return None
    estimate = Estimate()
    return lambda state: on_progress(state.done / max(state.total, 1), estimate.words(state))


def _versions() -> dict[str, str]:
    names = {"speech-workbench": __version__, "python": platform.python_version(), **versions()}
    for package in ("ray",):
        try:
            names[package] = version(package)
        except PackageNotFoundError:
            continue
    return names
