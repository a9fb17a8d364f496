"""A sweep of two weights over recordings with references: n-best lists that are kept, and the error rates they give.

The searches run in a thread, like those of `panels.decode.run`. A new sweep uses the lists again if only the grid has
changed.
This file knows neither Gradio nor HTML.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from panels.decode.hypotheses import searched, text_of
from panels.decode.run import GUIDED, Decodings, Job, Sessions, Source, sentence_of
from panels.running.progress import tables
from panels.running.sessions import SessionPool
from workbench.core.errors import BadInput, Cancelled
from workbench.decoding.ctc_beam.hypothesis import Hypothesis
from workbench.decoding.weight_sweep import Candidate, NBestList, WeightSweep, sweep_weights
from workbench.text.rates import score

SMALLEST_WEIGHT = 1e-6  # in place of 0, so that the lists have the scores of the language model
LIST_LENGTH = 100  # hypotheses of a search
MAX_VALUES = 41  # values of one weight
GRID = re.compile(r"\s*(-?[\d.]+)\s*(?:to|,|\.\.)\s*(-?[\d.]+)\s*,\s*(\d+)\s*")


@dataclass(frozen=True)
class Pair:
    """Two weights: of language models, and of a bonus."""

    weight: str  # the names of the two options
    bonus: str
    models: tuple[str, ...]  # the terms that the weight multiplies
    title: str

    def count(self, hypothesis: Hypothesis) -> int:
        """Returns what the bonus counts."""
        return len(hypothesis.tokens if self.bonus == "beta" else hypothesis.words or ())


SWEPT = {
    "tokens": Pair("alpha", "beta", ("token_lm",), "alpha and beta: language model of tokens, bonus for each token"),
    "words": Pair(
        "gamma",
        "word_bonus",
        ("word_lm", "neural_lm"),
        "gamma and word bonus: language models of words, bonus for each word",
    ),
}


@dataclass(frozen=True)
class SweepRow:
    """A source of a sweep, at some point of the run."""

    key: str
    source: Source
    status: str = "waiting"
    activity: str = ""
    error: str = ""


@dataclass(frozen=True)
class SweepState:
    """The progress of a sweep; `result` is set at its end."""

    rows: tuple[SweepRow, ...] = ()
    finished: bool = False
    stopped: bool = False
    seconds: float = 0.0
    result: WeightSweep | None = None


@dataclass
class NBestLists:
    """The hypotheses of each source of a job, which any weights of a pair can rank."""

    job: Job
    pair: Pair
    lists: dict[str, NBestList] = field(default_factory=dict)  # by the source's key


def read_grid(text: str, name: str) -> tuple[float, ...]:
    """Returns the values of a weight, from a text such as `0 to 2, 9`: from, to, how many.

    Raises `BadInput` for any other text, and for too many values.
    """
    match = GRID.fullmatch(text or "")
    try:
        first, last, count = (float(match[1]), float(match[2]), int(match[3])) if match else (0.0, 0.0, 0)
    except ValueError:
        count = 0
    if not 1 <= count <= MAX_VALUES:
        raise BadInput(
            f"the values of {name} are {text!r:.40}; expected from, to, and how many, at most {MAX_VALUES}, as in "
            "0 to 2, 9"
        )
    return tuple(float(value) for value in np.round(np.linspace(first, last, count), 6))


def check_swept(job: Job, pair: Pair) -> None:
    """Raises `BadInput` for a job whose weights cannot be swept."""
    missing = sum(source.reference is None for source in job.sources)
    if missing:
        raise BadInput(
            f"{missing} of {len(job.sources)} recordings have no reference text; expected a line for each, as the "
            "sweep counts errors"
        )
    options = job.options
    if pair.weight == "alpha" and options.lm is None and options.lexicon is not None:
        raise BadInput("there is no language model of tokens to weigh; add one, or sweep gamma and word bonus")
    if pair.weight == "alpha" and options.lm is None:
        raise BadInput("there is no language model of tokens to weigh; add one, or click an example")
    if pair.weight == "gamma" and options.word_lm is None and options.neural_lm is None:
        raise BadInput("there is no language model of words to weigh; add one with its lexicon")


def same_lists(first: Job, second: Job, pair: Pair) -> bool:
    """Returns whether the jobs can share the lists: only the two weights and the length of lists may differ."""
    neutral: dict[str, Any] = {pair.weight: 0.0, pair.bonus: 0.0, "nbest": 1}
    return replace(first, options=replace(first.options, **neutral), decoders=()) == replace(
        second, options=replace(second.options, **neutral), decoders=()
    )


def run_sweep(
    pool: SessionPool,
    n_best_lists: NBestLists,
    earlier: Decodings | None,
    first: Sequence[float],
    second: Sequence[float],
    stop: threading.Event,
) -> Iterator[SweepState]:
    """Yields the progress, and last the result. Fills `n_best_lists`, and does not search again its sources.

    Args:
        earlier: an earlier run with the same sources and model, whose logits are used again.

    Raises `BadInput` if no source could be searched.
    """
    rows = tuple(SweepRow(f"{place}", source) for place, source in enumerate(n_best_lists.job.sources))
    work = partial(_work, pool, n_best_lists, earlier, rows, (first, second), stop)
    state = SweepState()
    for state in tables(rows, work, stop, SweepState, lambda row: replace(row, status="stopped")):
        if not state.finished:
            yield state
    failed = next((row for row in state.rows if row.status == "failed"), None)
    if failed is not None:
        raise BadInput(failed.error)
    if state.stopped:
        yield state
        return
    lists = [n_best_lists.lists[row.key] for row in rows]
    yield replace(state, result=sweep_weights(lists, first, second))


def _work(
    pool: SessionPool,
    n_best_lists: NBestLists,
    earlier: Decodings | None,
    rows: Sequence[SweepRow],
    grid: tuple[Sequence[float], Sequence[float]],
    stop: threading.Event,
    show: Callable[[SweepRow], None],
) -> None:
    waiting_rows = [row for row in rows if row.key not in n_best_lists.lists]
    for row in rows:
        if row not in waiting_rows:
            show(replace(row, status="done"))
    if not waiting_rows:
        return

    def show_activity(activity: str) -> None:
        show(replace(waiting_rows[0], status="running", activity=activity))

    current = waiting_rows[0]
    try:
        sessions = Sessions(pool, n_best_lists.job, stop, show_activity)
        layout = sessions.layout()
        first = sessions.decoder(GUIDED, layout, show_activity, {}, nbest=LIST_LENGTH)  # the others share its models
        decoders = []
        for weight, bonus in search_points(*grid):
            weights: dict[str, Any] = {n_best_lists.pair.weight: weight, n_best_lists.pair.bonus: bonus}
            decoders.append((weight, bonus, first.with_options(replace(first.options, **weights))))
        for current in waiting_rows:
            show(replace(current, status="running", activity="searching"))
            place = int(current.key)
            logits = earlier.logits.get(place) if earlier else None
            if logits is None:
                logits = sessions.logits(current.source, layout, partial(_show_activity, current, show))
            best_by_hypothesis: dict[object, tuple[float, float, int, Hypothesis]] = {}
            for weight, bonus, decoder in decoders:
                for each in searched(decoder, logits, stop):
                    parts = weightless(each, n_best_lists.pair, weight, bonus)
                    key = (each.tokens, each.words)
                    if key not in best_by_hypothesis or parts[0] > best_by_hypothesis[key][0]:
                        best_by_hypothesis[key] = (*parts, each)
            n_best_lists.lists[current.key] = n_best_list(
                current.source.reference or "", list(best_by_hypothesis.values()), layout.pieces
            )
            show(replace(current, status="done"))
    except Cancelled:
        return
    except Exception as error:
        show(replace(current, status="failed", error=sentence_of(error)))


def _show_activity(row: SweepRow, show: Callable[[SweepRow], None], activity: str) -> None:
    show(replace(row, status="running", activity=activity))


def search_points(first: Sequence[float], second: Sequence[float]) -> list[tuple[float, float]]:
    """Returns the weights to search with: the middle of the grid, and the middles of its edges.

    Near them, the lists hold what a search with other weights would find.
    """
    middle, centre = (min(first) + max(first)) / 2, (min(second) + max(second)) / 2
    points = [(middle, centre), (min(first), centre), (max(first), centre)]
    points += [(middle, min(second)), (middle, max(second))]
    return list(dict.fromkeys((weight or SMALLEST_WEIGHT, bonus) for weight, bonus in points))


def weightless(hypothesis: Hypothesis, pair: Pair, weight: float, bonus: float) -> tuple[float, float, int]:
    """Returns the parts of a hypothesis for any weights: the fixed part, that of the language models, and the count.

    Args:
        weight: the pair's weight in the search that found it.
        bonus: the pair's bonus in that search.
    """
    model = sum(getattr(hypothesis, name) for name in pair.models)
    others = sum(getattr(hypothesis, name) for name in ("token_lm", "word_lm", "neural_lm") if name not in pair.models)
    count = pair.count(hypothesis)
    fixed = hypothesis.acoustic + others + hypothesis.bonus - bonus * count + hypothesis.boost
    return fixed, max(model / weight, -1e9), count


def n_best_list(
    reference: str, hypotheses: Sequence[tuple[float, float, int, Hypothesis]], pieces: Sequence[str]
) -> NBestList:
    """Returns the list of a recording, with the errors of each hypothesis; an empty text if there is none."""
    errors_by_text: dict[str, int] = {}
    units = score(reference, "").counts.reference_units
    candidates = []
    for fixed, model, count, hypothesis in hypotheses:
        text = text_of(hypothesis, pieces)
        if text not in errors_by_text:
            errors_by_text[text] = score(reference, text).counts.errors
        candidates.append(Candidate(fixed, model, count, errors_by_text[text]))
    return NBestList(tuple(candidates) or (Candidate(0.0, 0.0, 0, units),), units)
