"""One worker of an evaluation: it loads a model in this process and transcribes utterances.

The same worker runs in a process of this machine (`workbench.evaluation.child`) and as an actor on a Ray cluster
(`workbench.evaluation.on_ray`). It knows neither of them, no directory and no other worker.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from workbench.core.errors import BadInput, SessionDied, Unavailable, WorkbenchError, named_message_of
from workbench.core.runtimes import RUNTIMES
from workbench.core.settings import SessionSpec
from workbench.evaluation.addresses import is_address
from workbench.evaluation.models import checkpoint_digest
from workbench.evaluation.places import Recordings, place_of
from workbench.evaluation.rows import Result, Utterance, scores_of
from workbench.families import FAMILIES
from workbench.isolation.loader import open_alone
from workbench.prepared.kinds import unused_packages
from workbench.registry.cards import Card
from workbench.registry.resolve import resolve, resolve_options
from workbench.session.values import AudioSource, Segment, Transcript
from workbench.system.imports import hidden_packages
from workbench.system.memory import peak_resident_bytes
from workbench.text.rates import score
from workbench.text.spoken_words import spoken_words


@dataclass(frozen=True)
class Job:
    """What a worker is to do; it travels to the worker."""

    key: str  # of the model, in results
    card: Card
    spec: SessionSpec  # as it is on the machine of the driver
    settings: Mapping[str, Any]
    options: Mapping[str, Any]
    normaliser: str
    root: str  # from where relative audio counts
    checkpoint: str | None  # digest, for a worker on another machine
    sample: str  # a recording of the driver's machine, which must be on the worker's too; empty if the driver has none


class Worker:
    """A loaded model. Its calls come from one thread.

    Args:
        name: of the worker, in results.
        elsewhere: whether it runs on another machine than the driver. Then it uses that machine's checkpoint, which
            must be the same, and the recordings must be there.

    Raises the errors of opening a session, and `Unavailable` if another machine lacks the checkpoint or the recordings.
    """

    def __init__(self, job: Job, name: str, elsewhere: bool = False):
        self.job = job
        self.name = name
        spec = job.spec
        if elsewhere:
            _check_recordings(job, name)
            spec = self._resolved(job)
        family = FAMILIES[spec.family]
        with hidden_packages(*unused_packages(spec.runtime, outside=bool(family.package))):
            self.session: Any = open_alone(spec)
        self.options = resolve_options(job.options)
        self.recordings = Recordings(job.root)
        # Processor time of the processes of an engine or a server is not this process's.
        self._elsewhere = RUNTIMES[spec.runtime].parallel or spec.server is not None

    def _resolved(self, job: Job) -> SessionSpec:
        spec = resolve(job.card, job.spec.runtime, job.settings)
        if spec.server is not None:
            return job.spec
        if checkpoint_digest(job.card) != job.checkpoint:
            raise Unavailable(
                f"{self.name} has another checkpoint of {job.card.id} than the machine that started the evaluation; "
                "copy the same files to every machine"
            )
        return replace(spec, settings=replace(spec.settings, threads=job.spec.settings.threads))

    def results(self, utterances: Sequence[Utterance]) -> Iterator[Result]:
        """Yields the result of each utterance as soon as it is finished.

        A recording that cannot be transcribed has an error. Raises `Unavailable` and `SessionDied` if the recordings
        are not at fault, such as for a server that cannot be reached.
        """
        clock = _Clock(self._elsewhere)
        sources: list[AudioSource] = []
        good: list[Utterance] = []
        unavailable: list[tuple[Utterance, Unavailable]] = []
        for each in utterances:
            try:
                sources.append(self.recordings.source(each))
                good.append(each)
            except BadInput as error:
                yield self._failed(each, str(error), clock)
            except Unavailable as error:
                unavailable.append((each, error))
        for each, missing in unavailable:
            if not self.recordings.is_at_fault(each):
                raise missing
            yield self._failed(each, str(missing), clock)
        if good:
            yield from self._transcribed(good, sources, clock)

    def _transcribed(
        self, utterances: Sequence[Utterance], sources: Sequence[AudioSource], clock: _Clock
    ) -> Iterator[Result]:
        """Yields the results of a batch. If the whole batch fails, each of the rest is tried alone."""
        remaining = dict(enumerate(utterances))
        failure: Exception | None = None
        try:
            with contextlib.closing(self.session.stream_batch(sources, **self.options)) as events:
                for place, event in events:
                    if isinstance(event, Transcript):
                        yield self._result(remaining.pop(place), event, clock)
                    elif isinstance(event, BadInput):
                        yield self._failed(remaining.pop(place), str(event), clock)
        except (Unavailable, SessionDied):
            raise
        except Exception as error:
            failure = error
        if len(remaining) == 1 and len(utterances) == 1:
            [only] = remaining.values()
            yield self._failed(only, _sentence(failure), clock)
        else:
            for place, each in remaining.items():
                yield from self._transcribed([each], [sources[place]], clock)

    def _result(self, utterance: Utterance, transcript: Transcript, clock: _Clock) -> Result:
        return Result(
            utterance.id,
            self.job.key,
            transcript.text,
            None,
            transcript.audio_seconds,
            scores_of(score(utterance.text, transcript.text, self.job.normaliser)),
            transcript.language,
            transcript.tokens,
            tuple(_words(transcript.segments)),
            transcript.notes,
            self._measured(clock, transcript.compute_seconds, transcript.memory_bytes),
        )

    def _failed(self, utterance: Utterance, sentence: str, clock: _Clock) -> Result:
        return Result(
            utterance.id, self.job.key, "", sentence, measured=self._measured(clock, 0.0, peak_resident_bytes())
        )

    def _measured(self, clock: _Clock, compute_seconds: float, memory_bytes: int | None) -> dict[str, Any]:
        return {
            "compute_seconds": round(compute_seconds, 6),
            "cpu_seconds": clock.lap(),
            "memory_bytes": memory_bytes,
            "worker": self.name,
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
        }

    def close(self) -> None:
        """Frees the model."""
        self.recordings.close()
        self.session.close()


class _Clock:
    """Measures the processor time of this process since the last result, in seconds."""

    def __init__(self, unknown: bool):
        self.unknown = unknown
        self.last = time.process_time()

    def lap(self) -> float | None:
        now = time.process_time()
        elapsed, self.last = now - self.last, now
        return None if self.unknown else round(elapsed, 6)


def _sentence(error: Exception | None) -> str:
    if error is None:
        return "the model ended without a transcript"
    return str(error) if isinstance(error, WorkbenchError) else f"the model failed: {named_message_of(error)[:300]}"


def _words(segments: Sequence[Segment]) -> Iterator[dict[str, Any]]:
    """Yields the words with times of their own; in a script without spaces, characters take the place of words."""
    for word in spoken_words(segments):
        if word.timed:
            sure = {} if word.confidence is None else {"confidence": round(word.confidence, 3)}
            yield {"text": word.text, "start": round(word.start, 3), "end": round(word.end, 3), **sure}


def is_here(root: str, audio: str) -> bool:
    """Returns whether a recording, or the archive that it is in, is on this machine; True for one at an address."""
    place = place_of(root, audio)
    inside = any(_exists(parent) and parent.is_file() for parent in Path(place).parents)
    return is_address(place) or inside or _exists(Path(place))


def _check_recordings(job: Job, name: str) -> None:
    """Raises `Unavailable` if the sample is not on this machine."""
    if not job.sample or is_here(job.root, job.sample):
        return
    raise lacking(name, job.root, job.sample)


def lacking(name: str, root: str, audio: str) -> Unavailable:
    """Returns the error of a worker on a machine without a recording that the driver's machine has."""
    place = place_of(root, audio)
    folder = Path(root or place)
    return Unavailable(
        f"{name} has no {place if _exists(folder) else folder}; put the recordings at the same path on every "
        "machine, such as on a shared disk, or name them by an address such as s3://"
    )


def _exists(path: Path) -> bool:
    with contextlib.suppress(OSError):  # for a name that is too long
        return path.exists()
    return False
