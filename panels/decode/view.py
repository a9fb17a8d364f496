"""The contents of the Decode tab as HTML: texts with marked differences, parts of scores as bars, a word's rival, and
the heat map of weights.

It turns results into text and computes no results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby

from markupsafe import Markup

from panels.decode.run import Row, RunState
from panels.decode.sweep import SweepState
from panels.widgets.templates import render
from workbench.decoding.ctc_beam.hypothesis import Hypothesis
from workbench.decoding.rivals import TERMS, Rival
from workbench.decoding.weight_sweep import MIN_RECORDINGS, WeightSweep
from workbench.display.words import duration
from workbench.text.normalisers import find_normaliser
from workbench.text.rates import pool_scores
from workbench.text.scripts import needs_space

VIEW = "decode/view.html"
MAX_LISTED = 10  # hypotheses of a list that are shown
NOTHING_YET = """<div class="empty">
<p class="lead">How does a language model change the text of a CTC model?</p>
<ol>
<li>Click a sample, or add recordings or a file of logits.</li>
<li>Add a language model, a lexicon or phrases, or click an example.</li>
<li>Press <b>Decode</b>. The results of greedy decoding and beam search appear side by side. You can follow each
search frame by frame.</li>
</ol>
</div>"""


@dataclass(frozen=True)
class Mark:
    """A word of a text, or a word that the text lacks, compared with another text."""

    text: str
    kind: str  # same, changed, added or missing
    place: int  # index of the word in its text; -1 for a missing one
    separator: str  # before it


def marks(words: Sequence[str], base: Sequence[str] | None) -> list[Mark]:
    """Returns the words with their differences from `base`; case and punctuation make no difference."""
    word_list = list(words)
    keys = _keys(word_list)
    opcodes = SequenceMatcher(None, keys if base is None else _keys(base), keys, autojunk=False).get_opcodes()
    marked_words: list[Mark] = []
    last = ""
    for operation, start, end, first, stop in opcodes:
        kind_of_mark = {"equal": "same", "replace": "changed", "insert": "added", "delete": "missing"}[operation]
        words_with_places = [(word, first + number) for number, word in enumerate(word_list[first:stop])]
        if operation == "delete":
            words_with_places = [(word, -1) for word in (base or [])[start:end]]
        for word, place in words_with_places:
            marked_words.append(Mark(word, kind_of_mark, place, " " if last and needs_space(last, word) else ""))
            last = word
    return marked_words


def _keys(words: Sequence[str]) -> list[str]:
    normalise = find_normaliser("basic").function
    return [normalise(word) or word for word in words]


def results_html(state: RunState) -> str:
    """Returns the results so far, recording by recording; instructions if there is nothing yet."""
    if not state.rows:
        return NOTHING_YET
    groups = [list(rows) for _, rows in groupby(state.rows, key=lambda row: row.place)]
    return render(
        VIEW, "results", _overall_rates(state) if len(groups) > 1 else [], [_recording(rows) for rows in groups]
    )


def _overall_rates(state: RunState) -> list[tuple[str, str, str]]:
    """Returns the error rate of each decoder over all recordings, as (name, rate, number of recordings in words)."""
    rates = []
    for title in dict.fromkeys(row.title for row in state.rows):
        scores = [row.score for row in state.rows if row.title == title and row.score]
        if scores:
            rates.append((title, pool_scores(scores).summary, f"over {len(scores)} recordings"))
    return rates


def _recording(rows: Sequence[Row]) -> Markup:
    first = rows[0]
    reference_words = first.reference.split() if first.reference is not None else None
    cards = []
    previous: Row | None = None
    widest = max((abs(each.value) for row in rows for each in parts(row.best)), default=1.0)
    for row in rows:
        base = (
            reference_words
            if reference_words is not None
            else list(previous.words[0])
            if previous and previous.words
            else None
        )
        base_name = "the reference" if reference_words is not None else previous.title if previous else ""
        cards.append(_card(row, base, base_name, widest))
        previous = row if row.status == "done" else previous
    return render(VIEW, "recording", first.recording, first.reference, cards)


def _card(row: Row, base: Sequence[str] | None, base_name: str, widest: float) -> Markup:
    if row.status == "failed":
        body = render("widgets/parts.html", "failure", row.error)
    elif row.status != "done":
        status_texts = {"waiting": "Waiting", "stopped": "Not run: the run was stopped earlier"}
        body = render(VIEW, "activity", status_texts.get(row.status, row.activity or "Decoding"))
    else:
        marked_words = marks(row.words[0] if row.words else (), base)
        listed_hypotheses = [
            (place, hypothesis, " ".join(row.words[place])) for place, hypothesis in enumerate(row.hypotheses)
        ]
        names = used_terms(row.hypotheses[:MAX_LISTED])
        body = render(
            VIEW,
            "decoded",
            row,
            marked_words,
            base_name if any(each.kind != "same" for each in marked_words) else "",
            [(each, share(each.value, widest)) for each in parts(row.best)],
            row.best.score if row.best else None,
            [
                (text, each.score, [getattr(each, field) for field in names])
                for _, each, text in listed_hypotheses[:MAX_LISTED]
            ],
            [TERMS[field] for field in names],
            len(row.hypotheses),
        )
    return render(VIEW, "card", row, body)


@dataclass(frozen=True)
class Part:
    """A term of a score."""

    field: str
    name: str
    value: float


def parts(hypothesis: Hypothesis | None) -> list[Part]:
    """Returns the terms of a hypothesis that count: the acoustic one, and the others unless they are 0."""
    if hypothesis is None:
        return []
    terms = [Part(field, name, getattr(hypothesis, field)) for field, name in TERMS.items()]
    return [each for each in terms if each.value or each.field == "acoustic"]


def used_terms(hypotheses: Sequence[Hypothesis]) -> list[str]:
    """Returns the fields of the terms that are not 0 in some hypothesis, and always the acoustic one."""
    return [name for name in TERMS if name == "acoustic" or any(getattr(each, name) for each in hypotheses)]


def share(value: float, widest: float) -> float:
    """Returns the length of a bar in percent."""
    return round(min(100 * abs(value) / widest, 100.0), 1) if widest else 0.0


def status_html(state: RunState) -> str:
    """Returns the progress of a run as a line and a bar; after its end, how long it took."""
    if not state.rows:
        return ""
    done_count = sum(row.status == "done" for row in state.rows)
    total = len(state.rows)
    if state.finished:
        failed_count = sum(row.status == "failed" for row in state.rows)
        count = f"{done_count} of {total} results" if done_count < total else f"{total} results"
        line = f"{'Stopped: ' if state.stopped else ''}{count} in {duration(state.seconds)}"
        return render(
            "widgets/parts.html", "progress", line + (f", {failed_count} failed" if failed_count else ""), None, True
        )
    running = next((row for row in state.rows if row.status == "running"), None)
    line = f"{running.recording} · {running.title} · {running.activity}" if running else "Starting"
    ended_count = sum(row.status in ("done", "failed") for row in state.rows)
    return render("widgets/parts.html", "progress", line, round(100 * ended_count / total), bool(ended_count))


def rival_html(row: Row, rival: Rival | None, word: str) -> str:
    """Returns why a word was chosen: both texts, and what each term adds to the lead."""
    if rival is None:
        return render(VIEW, "no_rival", row, word, len(row.hypotheses))
    terms = list(rival.terms.items())
    widest = max((abs(value) for _, value in terms), default=1.0)
    return render(
        VIEW,
        "rival",
        row,
        rival,
        " ".join(rival.instead) or "nothing",
        because(rival),
        [(name, value, share(value, widest)) for name, value in terms],
    )


def because(rival: Rival) -> str:
    """Returns the reason in a sentence, such as "the token LM prefers it by 4.10, the acoustic score the other by
    0.89".
    """
    if abs(rival.lead) < 0.005:
        return "the scores are equal, so either could be first"
    larger = sorted(rival.terms.items(), key=lambda term: -abs(term[1]))
    terms_for = [f"{_term_phrase(name)} by {value:.2f}" for name, value in larger if value >= 0.005]
    terms_against = [f"{_term_phrase(name)} by {-value:.2f}" for name, value in larger if value <= -0.005]
    sentence = f"for it: {', '.join(terms_for)}" if terms_for else "no term is for it"
    return sentence + (f"; against it: {', '.join(terms_against)}" if terms_against else "; nothing is against it")


def _term_phrase(name: str) -> str:
    return "the acoustic score" if name == "acoustic" else f"the {name}"


def sweep_status_html(state: SweepState) -> str:
    """Returns the progress of a sweep as a line and a bar; after its end, how long it took."""
    if state.result is not None:
        pairs = state.result.errors.size
        line = f"{pairs} pairs of weights in {duration(state.seconds)}"
        return render("widgets/parts.html", "progress", line, None, True)
    if state.stopped:
        return render("widgets/parts.html", "progress", "Stopped; finished searches are kept", None, True)
    done_count = sum(row.status == "done" for row in state.rows)
    running = next((row for row in state.rows if row.status == "running"), None)
    line = (
        f"{done_count + 1} of {len(state.rows)} · {running.source.name} · {running.activity}" if running else "Starting"
    )
    return render(
        "widgets/parts.html", "progress", line, round(100 * done_count / max(len(state.rows), 1)), bool(done_count)
    )


def sweep_html(sweep: WeightSweep, names: tuple[str, str], used_weights: tuple[float, float]) -> str:
    """Returns the heat map of error rates, with the best pair and the warning if the set is too small.

    Args:
        names: the names of the two weights.
        used_weights: the weights in use, which are marked if they are on the grid.
    """
    rates = 100 * sweep.rates
    lowest, highest = float(rates.min()), float(rates.max())
    rows = []
    for place in range(len(sweep.first) - 1, -1, -1):
        cells = []
        for column in range(len(sweep.second)):
            weights = (sweep.first[place], sweep.second[column])
            relative_rate = (rates[place, column] - lowest) / (highest - lowest) if highest > lowest else 0.0
            css_classes = " ".join(
                filter(
                    None,
                    (
                        "best" if (place, column) == sweep.best else "",
                        "alike" if sweep.indistinguishable[place, column] else "",
                        "now" if weights == used_weights else "",
                    ),
                )
            )
            cells.append((*weights, float(rates[place, column]), round(100 * relative_rate), css_classes))
        rows.append((sweep.first[place], cells))
    best = (sweep.first[sweep.best[0]], sweep.second[sweep.best[1]])
    return render(VIEW, "sweep", sweep, names, best, rows, sweep.recordings >= MIN_RECORDINGS)
