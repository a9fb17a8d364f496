"""Decodes recordings or files of logits with several decoders, and yields the table of results after every step.

The models compute the logits in their own processes; the searches run in a thread of this one. Results that finished
before a stop or a failure of another decoder stay. This file knows neither Gradio nor HTML.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from panels.decode.heads import LOGITS, headed_offers, layout_of
from panels.decode.hypotheses import greedy_hypothesis, searched, text_of, words_of
from panels.running.choices import ModelOnRuntime, RuntimeOffer, chosen_offers, offers
from panels.running.progress import RunTable, tables
from panels.running.sessions import SessionPool
from panels.transcribe.run import sentence_of
from panels.widgets.samples import references
from workbench.audio.check import refusals
from workbench.core.errors import BadInput, Cancelled
from workbench.core.progress import listening
from workbench.decoding.ctc_beam.decoder import CtcDecoder
from workbench.decoding.ctc_beam.hypothesis import Hypothesis
from workbench.decoding.ctc_options import BEAM_SIZE, CtcBeamOptions
from workbench.families.vocabularies.ctc_layouts import LogitsLayout
from workbench.pipelines.ctc.beam_search import build_decoder, ngram_notes
from workbench.pipelines.ctc.logits_files import read_logits, with_columns
from workbench.pipelines.ctc.token_files import blank_of, read_tokens, tokens_for
from workbench.registry.registry import Registry
from workbench.serving.work import follower, opened
from workbench.text.rates import Score, score

GREEDY, BEAM, GUIDED = "greedy", "beam", "guided"
TITLES = {GREEDY: "Greedy", BEAM: "Beam", GUIDED: "Beam with language models, lexicon and phrases"}
PARTS = {"lm": "token LM", "lexicon": "lexicon", "word_lm": "word LM", "neural_lm": "neural LM", "boost": "phrases"}
ACOUSTIC = ("beam_size", "nbest", "recombination", "tokens_per_frame", "threshold")
"""The options of a search that knows nothing but the acoustic scores."""
KEPT_HYPOTHESES = 50  # hypotheses of each search that stay, so that a word's rival is among them
MAX_VALUES = 50_000_000  # values of one array of logits on the page: 400 MB in float64
MAX_KEPT_VALUES = 100_000_000  # values of all arrays of a run that stay for the views
TASK = "generate"  # the task of models that can score words

Status = Literal["waiting", "running", "done", "failed", "stopped"]
Show = Callable[["Row"], None]


@dataclass(frozen=True)
class Source:
    """A recording, or a file of logits."""

    name: str  # as the user sees it
    path: str
    reference: str | None = None


@dataclass(frozen=True)
class Job:
    """What is decoded, and how. Either a model computes the logits, or they come with their tokens."""

    sources: tuple[Source, ...]
    decoders: tuple[str, ...]
    options: CtcBeamOptions
    offer: RuntimeOffer | None = None
    layout: LogitsLayout | None = None
    neural: RuntimeOffer | None = None  # the language model that scores words

    def options_of(self, decoder: str) -> CtcBeamOptions:
        """Returns the options of a search; without knowledge, it has the width and the acoustic score of the others."""
        options = replace(self.options, beam_size=self.options.beam_size or BEAM_SIZE)
        if decoder == GUIDED:
            return options
        return CtcBeamOptions(**{name: getattr(options, name) for name in ACOUSTIC})

    def title(self, decoder: str) -> str:
        """Returns the name of a decoder, with what it knows."""
        names = [name for option, name in PARTS.items() if getattr(self.options, option) is not None]
        return TITLES[decoder] if decoder != GUIDED else " + ".join(["Beam", *(names or ["bonus"])])

    def rows(self) -> tuple[Row, ...]:
        """Returns the table before the run: source by source, the decoders in their order."""
        return tuple(
            Row(f"{place}:{decoder}", place, source.name, decoder, self.title(decoder), reference=source.reference)
            for place, source in enumerate(self.sources)
            for decoder in self.decoders
        )


@dataclass(frozen=True)
class Row:
    """One decoder's result on one source, at some point of the run."""

    key: str
    place: int  # index of the source
    recording: str
    decoder: str
    title: str
    status: Status = "waiting"
    activity: str = ""
    hypotheses: tuple[Hypothesis, ...] = ()  # best first
    words: tuple[tuple[str, ...], ...] = ()  # the words of each hypothesis
    reference: str | None = None
    score: Score | None = None
    seconds: float = 0.0  # time for decoding alone
    error: str = ""
    notes: tuple[str, ...] = ()  # what the n-gram models lack, and what counts instead

    @property
    def best(self) -> Hypothesis | None:
        return self.hypotheses[0] if self.hypotheses else None

    @property
    def searched(self) -> bool:
        """Whether the result is from a beam search, which can be followed."""
        return self.decoder != GREEDY and bool(self.hypotheses)


@dataclass(frozen=True)
class RunState(RunTable[Row]):
    """The table of results, and the progress of the run."""

    NOUN = "result"


@dataclass
class Decodings:
    """What a run keeps for the views after it: the logits of each source, and the searches."""

    job: Job
    layout: LogitsLayout | None = None
    logits: dict[int, np.ndarray] = field(default_factory=dict)  # ln P of each token, by the source's index
    decoders: dict[str, CtcDecoder] = field(default_factory=dict)
    state: RunState = RunState()

    def keep(self, place: int, logits: np.ndarray) -> None:
        """Keeps the log-probabilities of a source, and drops those of the first sources if there are too many."""
        self.logits[place] = logits
        while len(self.logits) > 1 and sum(each.size for each in self.logits.values()) > MAX_KEPT_VALUES:
            del self.logits[next(iter(self.logits))]

    def search_of(self, row: Row) -> tuple[CtcDecoder, np.ndarray, LogitsLayout]:
        """Returns a row's search with its logits; raises `BadInput` if the run did not get that far."""
        if row.decoder not in self.decoders or row.place not in self.logits or self.layout is None:
            raise BadInput(f"the search of {row.recording} is not kept; decode it alone to follow it")
        return self.decoders[row.decoder], self.logits[row.place], self.layout


def prepare(
    registry: Registry,
    recordings: Sequence[str],
    cell: str,
    logits: Sequence[str],
    tokens: str | None,
    blank: str,
    reference: str,
    options: CtcBeamOptions,
    decoders: Sequence[str] = (GREEDY, BEAM, GUIDED),
) -> Job:
    """Returns the job that a user described, checked as far as possible without reading a recording or loading a model.

    Args:
        cell: the model and its runtime, as `ModelOnRuntime.value`; ignored for files of logits.
        logits: files of logits; then there must be no recordings.
        tokens: the file of their tokens.
        blank: the index or the name of the blank among the tokens.
        reference: the text of a single source, or one line for each of several sources.
        decoders: some of greedy, beam and guided; guided is left out if nothing guides it.

    Raises `BadInput` that says what is wrong.
    """
    if recordings and logits:
        raise BadInput("there are recordings and files of logits; expected one of the two, so remove the others")
    if not recordings and not logits:
        raise BadInput("there is nothing to decode; click a sample, or add a recording or a file of logits")
    options.check()
    decoder_names = [name for name in TITLES if name in decoders and (name != GUIDED or guides(options))]
    if not decoder_names:
        raise BadInput(f"no decoder is chosen; expected some of {', '.join(TITLES)}")
    neural = None
    if options.neural_lm is not None:
        [neural] = chosen_offers([options.neural_lm], offers(registry, TASK))
    paths = list(recordings or logits)
    texts = references(reference, len(paths))
    sources = tuple(Source(Path(path).name, path, reference_text) for path, reference_text in zip(paths, texts))
    if recordings:
        if not cell:
            raise BadInput("no model is chosen; choose one that has a CTC head")
        [offer] = chosen_offers([cell], headed_offers(registry))
        return Job(sources, tuple(decoder_names), options, offer, neural=neural)
    if tokens is None:
        raise BadInput("the tokens of the logits are missing; add the file that lists them, one per line")
    pieces = read_tokens(tokens)
    return Job(
        sources,
        tuple(decoder_names),
        options,
        layout=LogitsLayout(pieces, blank_of(blank or None, pieces)),
        neural=neural,
    )


def guides(options: CtcBeamOptions) -> bool:
    """Returns whether the options give a search more than its beam: a model, a lexicon, phrases, or a bonus."""
    guide_values = (options.lm, options.lexicon, options.word_lm, options.neural_lm, options.boost)
    return any(each is not None for each in guide_values) or options.beta != 0


def run(pool: SessionPool, decodings: Decodings, stop: threading.Event) -> Iterator[RunState]:
    """Yields the table when it has changed, at most as often as `panels.running.progress` allows, and at the end.

    Fills `decodings` for the views. The failure of a source or a decoder affects only its own rows. Setting `stop` or
    closing the iterator ends the run at its next check.
    """
    rows = decodings.job.rows()
    given_up = partial(_stopped_row)
    for state in tables(rows, partial(_work, pool, decodings, rows, stop), stop, RunState, given_up):
        decodings.state = state
        yield state


def _stopped_row(row: Row) -> Row:
    return replace(row, status="stopped", activity="")


def _work(pool: SessionPool, decodings: Decodings, rows: Sequence[Row], stop: threading.Event, show: Show) -> None:
    """Computes the rows and shows every change."""
    sources = decodings.job.sources
    refused_sources = refusals(source.path for source in sources) if decodings.job.offer else {}
    if refused_sources:  # no model is loaded then
        for row in rows:
            show(_failed(row, refused_sources[sources[row.place].path]))
        return
    try:
        sessions = Sessions(pool, decodings.job, stop, partial(_show_activity, rows[0], show))
        decodings.layout = sessions.layout()
    except Cancelled:
        return
    except Exception as error:
        for row in rows:
            show(_failed(row, error))
        return
    broken_decoders: dict[str, Exception] = {}  # decoders that cannot be made
    for place, source in enumerate(sources):
        source_rows = [row for row in rows if row.place == place]
        try:
            decodings.keep(
                place, sessions.logits(source, decodings.layout, partial(_show_activity, source_rows[0], show))
            )
        except Cancelled:
            return
        except Exception as error:
            for row in source_rows:
                show(_failed(row, error))
            continue
        for row in source_rows:
            try:
                if row.decoder in broken_decoders:
                    raise broken_decoders[row.decoder]
                if row.decoder != GREEDY and row.decoder not in decodings.decoders:
                    decodings.decoders[row.decoder] = sessions.decoder(
                        row.decoder, decodings.layout, partial(_show_activity, row, show), broken_decoders
                    )
                _show_activity(row, show, "searching" if row.decoder != GREEDY else "decoding")
                show(_decoded(row, decodings, stop))
            except Cancelled:
                return
            except Exception as error:
                show(_failed(row, error))


def _show_activity(row: Row, show: Show, activity: str) -> None:
    show(replace(row, status="running", activity=activity))


def _failed(row: Row, error: Exception) -> Row:
    return replace(row, status="failed", activity="", error=sentence_of(error))


class Sessions:
    """The models of a run: the one that computes the logits, and the one that scores words."""

    def __init__(self, pool: SessionPool, job: Job, stop: threading.Event, on_activity: Callable[[str], None]):
        self._pool = pool
        self._job = job
        self._stop = stop
        self._on_activity = on_activity

    def layout(self) -> LogitsLayout:
        """Returns the meaning of the logits; opens the model that computes them, as it may have to be downloaded."""
        if self._job.layout is not None:
            return self._job.layout
        assert self._job.offer is not None
        opened(self._pool, self._job.offer.cell, self._stop, self._on_activity)
        return layout_of(self._job.offer.card)

    def decoder(
        self,
        name: str,
        layout: LogitsLayout,
        on_activity: Callable[[str], None],
        broken_decoders: dict[str, Exception],
        **changes: Any,
    ) -> CtcDecoder:
        """Returns a search with all that it knows; notes an error in `broken_decoders` as well.

        Args:
            changes: options of this search alone.
        """
        on_activity("reading the files of the search")
        try:
            with listening(follower(self._stop, on_activity)):
                options = replace(self._job.options_of(name), **changes)
                return build_decoder(options, layout.pieces, layout.blank, partial(self._language_model, on_activity))
        except Exception as error:
            broken_decoders[name] = error
            raise

    def _language_model(self, on_activity: Callable[[str], None], value: str) -> Any:
        assert self._job.neural is not None
        return opened(self._pool, self._job.neural.cell, self._stop, on_activity)

    def logits(self, source: Source, layout: LogitsLayout, on_activity: Callable[[str], None]) -> np.ndarray:
        """Returns the logits [frames, vocabulary] of the speech in a source."""
        if self._job.offer is None:
            values = read_logits(source.path)
            tokens_for(layout.pieces, values.shape[1], source.name, "the list of tokens")
            values = with_columns(values, len(layout.pieces))
        else:
            cell: ModelOnRuntime = self._job.offer.cell
            session = opened(self._pool, cell, self._stop, on_activity)
            on_activity("computing the logits")
            with listening(follower(self._stop, on_activity)):
                values = session.trace(source.path, stages=LOGITS)[LOGITS]
        if values.size > MAX_VALUES:
            raise BadInput(
                f"{source.name} has {values.shape[0]} frames of {values.shape[1]} tokens, which is too much for this "
                "page; decode it with the command `workbench decode`"
            )
        return layout.text_log_probs(values)


def _decoded(row: Row, decodings: Decodings, stop: threading.Event) -> Row:
    """Returns the finished row."""
    logits, layout = decodings.logits[row.place], decodings.layout
    assert layout is not None
    notes: tuple[str, ...] = ()
    start = time.perf_counter()
    if row.decoder == GREEDY:
        hypotheses: tuple[Hypothesis, ...] = (greedy_hypothesis(logits, layout),)
    else:
        decoder = decodings.decoders[row.decoder]
        hypotheses, notes = tuple(searched(decoder, logits, stop, KEPT_HYPOTHESES)), ngram_notes(decoder)
    seconds = time.perf_counter() - start
    words = tuple(words_of(each, layout.pieces) for each in hypotheses)
    text = text_of(hypotheses[0], layout.pieces) if hypotheses else ""
    rating = None if row.reference is None else score(row.reference, text)
    done = replace(row, status="done", activity="", hypotheses=hypotheses, words=words, notes=notes)
    return replace(done, score=rating, seconds=seconds)
