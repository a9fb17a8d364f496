"""The results of an evaluation in a few numbers for each model. The report has all of them, with intervals."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from workbench.evaluation.rows import Result, counts_of
from workbench.evaluation.store import Evaluation
from workbench.text.rates import Counts


@dataclass(frozen=True)
class ModelSummary:
    """The pooled numbers of one model."""

    model: str
    recordings: int  # with a result
    failed: int  # results with an error; the rates leave them out
    wer: float | None  # as a fraction; None if no reference has words
    cer: float | None
    audio_seconds: float
    compute_seconds: float
    cpu_seconds: float | None  # None if the processes of an engine or a server computed
    memory_bytes: int | None  # the largest memory of any worker
    rtfx: float | None  # seconds of sound per second of computing of one worker

    def to_dict(self) -> dict[str, Any]:
        """Returns plain JSON values."""
        return asdict(self)


def summarise(evaluation: Evaluation) -> list[ModelSummary]:
    """Returns the numbers of each model, in one pass over its results."""
    return [summary_of(key, evaluation.results(key)) for key in evaluation.models]


def summary_of(key: str, results: Iterable[Result]) -> ModelSummary:
    """Returns the numbers of one model. Errors and units are added up, so long recordings weigh more."""
    words = chars = Counts()
    recordings = failed = 0
    audio = compute = cpu = 0.0
    cpu_known, memory = False, 0
    for each in results:
        recordings += 1
        compute += each.measured.get("compute_seconds") or 0.0
        cpu_seconds = each.measured.get("cpu_seconds")
        cpu_known = cpu_known or cpu_seconds is not None  # unknown for a recording at which every worker ended
        cpu += cpu_seconds or 0.0
        memory = max(memory, each.measured.get("memory_bytes") or 0)
        if each.scores is None:
            failed += 1
            continue
        audio += each.audio_seconds
        words += counts_of(each.scores, "words")
        chars += counts_of(each.scores, "chars")
    return ModelSummary(
        key,
        recordings,
        failed,
        words.rate if failed < recordings else None,
        chars.rate if failed < recordings else None,
        round(audio, 3),
        round(compute, 3),
        round(cpu, 3) if cpu_known else None,
        memory or None,
        round(audio / compute, 2) if compute else None,
    )
