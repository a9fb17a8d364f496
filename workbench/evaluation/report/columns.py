"""The results of an evaluation as columns: one entry for each utterance, and one array column for each model.

It reads what `workbench.evaluation.store` keeps, and computes no rate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from workbench.core.errors import BadInput
from workbench.evaluation.rows import COUNTED, Result, Utterance
from workbench.evaluation.statistics import Blocks, blocks_of
from workbench.evaluation.store import Evaluation, Run
from workbench.text.rates import RateName, rate_name

KINDS = ("primary", "words", "chars")


@dataclass(frozen=True, eq=False)
class Columns:
    """All results; arrays are [utterances, models], with NaN or None where a model has no result.

    `counts[kind]` is [utterances, models, 4]: substitutions, deletions, insertions and hits, of `kind` words, chars,
    and primary, which are the units of the utterance's own rate.
    """

    utterances: Sequence[Utterance]
    models: tuple[str, ...]
    texts: Mapping[str, Sequence[str | None]]  # by model
    failures: Mapping[str, Mapping[int, str]]  # by model: utterance's number to the sentence
    counts: Mapping[str, np.ndarray]
    names: Sequence[RateName]  # of each utterance's primary rate
    seconds: np.ndarray  # [utterances], length of the sound; NaN if unknown
    compute: np.ndarray  # seconds
    cpu: np.ndarray  # seconds of processor time
    memory: Mapping[str, int]  # by model: most bytes of a worker's process
    normaliser: str
    normaliser_version: str
    skipped: Sequence[Mapping[str, str]] = ()  # rows of the manifest that cannot be used
    run: Run | None = None
    expected: int = 0  # utterances of the corpus; `utterances` may be fewer
    title: str = "Evaluation"
    short: Mapping[str, str] = field(default_factory=dict)  # by model: a short unique name

    def __len__(self) -> int:
        return len(self.utterances)

    @property
    def rate(self) -> RateName:
        """The primary rate over all utterances: WER or CER if all have the same, else MER."""
        units = self.units()
        scored, has_words = np.isfinite(units).any(axis=1), np.nan_to_num(units).any(axis=1)
        # As in `pool_scores`: a recording of silence decides nothing where another one has words.
        rate_names = {*np.array(self.names, dtype=object)[has_words]} or {*np.array(self.names, dtype=object)[scored]}
        return next(iter(rate_names)) if len(rate_names) == 1 else "MER" if rate_names else "WER"

    def errors(self, kind: str = "primary") -> np.ndarray:
        """The numbers of errors [utterances, models]."""
        errors: np.ndarray = self.counts[kind][:, :, :3].sum(axis=2)
        return errors

    def units(self, kind: str = "primary") -> np.ndarray:
        """The numbers of units in the references [utterances, models]."""
        units: np.ndarray = self.counts[kind][:, :, [0, 1, 3]].sum(axis=2)
        return units

    def rates(self, kind: str = "primary") -> np.ndarray:
        """The error rates [utterances, models]; for an empty reference, the number of insertions."""
        return self.errors(kind) / np.maximum(self.units(kind), 1)

    @property
    def done(self) -> np.ndarray:
        """The number of utterances that each model has a result for, failures included: int64 [models]."""
        return np.array([sum(text is not None for text in self.texts[model]) for model in self.models])

    def blocks(self, chosen: np.ndarray) -> Blocks:
        """Returns the blocks of a bootstrap, by speaker, for the chosen utterances, bool [utterances]."""
        return blocks_of([each.speaker for each, is_chosen in zip(self.utterances, chosen, strict=True) if is_chosen])


def columns_of(
    utterances: Sequence[Utterance],
    results: Mapping[str, Iterable[Result]],
    normaliser: str,
    version: str,
    **other_fields: Any,
) -> Columns:
    """Returns results by model as columns. Results of utterances that are not in the list are left out.

    Args:
        other_fields: other fields of `Columns`.
    """
    models = tuple(results)
    places = {each.id: place for place, each in enumerate(utterances)}
    shape = (len(utterances), len(models))
    counts = {kind: np.full((*shape, 4), np.nan) for kind in KINDS}
    compute, cpu = np.full(shape, np.nan), np.full(shape, np.nan)
    seconds = np.array([np.nan if each.duration is None else each.duration for each in utterances], dtype=float)
    names: list[RateName | None] = [None] * len(utterances)
    texts: dict[str, list[str | None]] = {model: [None] * len(utterances) for model in models}
    failures: dict[str, dict[int, str]] = {model: {} for model in models}
    memory = dict.fromkeys(models, 0)
    for column, (model, model_results) in enumerate(results.items()):
        transcripts = texts[model]
        for result in model_results:
            place = places.get(result.id)
            if place is None:
                continue
            transcripts[place] = result.text
            if result.error is not None:
                failures[model][place] = result.error
            if result.audio_seconds:
                seconds[place] = result.audio_seconds
            measured = result.measured
            # A server's processor time is not known.
            compute[place, column] = _number(measured.get("compute_seconds"))
            cpu[place, column] = _number(measured.get("cpu_seconds"))
            memory[model] = max(memory[model], measured.get("memory_bytes") or 0)
            scores = result.scores
            if scores is not None:
                for kind in ("words", "chars"):
                    counts[kind][place, column] = [scores[kind][name] for name in COUNTED]
                name = scores["primary"]
                counts["primary"][place, column] = [scores[_PRIMARY[name]][kind] for kind in COUNTED]
                # Where nothing is said, the text of each model decides, and they may be of different scripts.
                if counts["primary"][place, column].any():
                    names[place] = name if names[place] in (None, name) else "MER"
    return Columns(
        utterances,
        models,
        texts,
        failures,
        counts,
        [
            rate_name(each.text, normaliser) if name is None else name  # no model has a score with units for it
            for each, name in zip(utterances, names, strict=True)
        ],
        seconds,
        compute,
        cpu,
        memory,
        normaliser,
        version,
        **{"expected": len(utterances), "short": short_names(models), **other_fields},
    )


def _number(value: float | None) -> float:
    return np.nan if value is None else value


_PRIMARY = {"WER": "words", "CER": "chars", "MER": "mixed"}


def read_columns(evaluation: Evaluation) -> Columns:
    """Reads a directory of results; utterances that no model has worked on are left out, as after a limit.

    Raises `BadInput` if there is no result at all.
    """
    run = evaluation.run
    utterances = list(evaluation.utterances())
    table = columns_of(
        utterances,
        {model: evaluation.results(model) for model in evaluation.models},
        run.normaliser["name"],
        run.normaliser["version"],
        skipped=evaluation.skipped(),
        run=run,
        title=f"Evaluation over {PurePosixPath(run.manifest.path).name}",
    )
    has_result = np.array(
        [any(table.texts[m][place] is not None for m in table.models) for place in range(len(table))], bool
    )
    if not has_result.any():
        raise BadInput(f"{evaluation.path} holds no results yet; expected at least one recording that is done")
    return table if has_result.all() else chosen_rows(table, np.flatnonzero(has_result))


def chosen_rows(columns: Columns, rows: np.ndarray) -> Columns:
    """Returns the columns of only these utterances."""
    at = {int(row): place for place, row in enumerate(rows)}
    return replace(
        columns,
        utterances=[columns.utterances[row] for row in rows],
        texts={model: [each[row] for row in rows] for model, each in columns.texts.items()},
        failures={
            model: {at[row]: error for row, error in each.items() if row in at}
            for model, each in columns.failures.items()
        },
        counts={kind: each[rows] for kind, each in columns.counts.items()},
        names=[columns.names[row] for row in rows],
        seconds=columns.seconds[rows],
        compute=columns.compute[rows],
        cpu=columns.cpu[rows],
    )


def short_names(models: Sequence[str]) -> dict[str, str]:
    """Returns a name for each model: its card where all cards differ, else the parts that not all models share.

    A key is `card|runtime|type`; the type may be missing. A single model keeps its whole key.
    """
    parts = {model: (*model.split("|"), "", "")[:3] for model in models}
    places = [place for place in range(3) if len({each[place] for each in parts.values()}) > 1] or [0, 1, 2]
    if len({each[0] for each in parts.values()}) == len(parts) > 1:
        places = [0]
    return {model: " ".join(filter(None, (each[place] for place in places))) for model, each in parts.items()}
