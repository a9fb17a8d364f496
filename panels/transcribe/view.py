"""The table of results as HTML: one card for each model and recording, with differences to the reference marked.

It turns the state of a run into text. It knows neither Gradio nor the computation of results.
"""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from panels.running.progress import named_percent
from panels.transcribe.job import Instead, Row, RunState
from panels.transcribe.many import FEWEST, many_html, recordings_of
from panels.widgets.templates import render
from workbench.audio.domain import SILENCE
from workbench.display.words import duration, error_rate
from workbench.session.values import Transcript
from workbench.system.memory import size
from workbench.text.normalisers import Normaliser
from workbench.text.rates import Score, pool_scores
from workbench.text.scripts import is_unspaced

VIEW = "transcribe/view.html"
PHRASE = 24  # a screen reader gets a growing text in pieces of this many characters, or a few more
LANGUAGES = {
    "zh": "Chinese",
    "en": "English",
    "yue": "Cantonese",
    "ja": "Japanese",
    "ko": "Korean",
    "nospeech": "no speech",
}
EMOTIONS = {
    "HAPPY": ("😊", "happy"),
    "SAD": ("😔", "sad"),
    "ANGRY": ("😡", "angry"),
    "NEUTRAL": ("😐", "neutral"),
    "FEARFUL": ("😰", "fearful"),
    "DISGUSTED": ("🤢", "disgusted"),
    "SURPRISED": ("😮", "surprised"),
    "EMO_UNKNOWN": ("❔", "emotion unknown"),
}
EVENTS = {
    "Speech": ("🗣️", "speech"),
    "BGM": ("🎼", "music"),
    "Applause": ("👏", "applause"),
    "Laughter": ("😀", "laughter"),
    "Cry": ("😭", "crying"),
    "Sneeze": ("🤧", "sneeze"),
    "Cough": ("🤧", "cough"),
    "Breath": ("🌬️", "breath"),
    "Sing": ("🎤", "singing"),
    "Event_UNK": ("❔", "event unknown"),
}
ITN = {"withitn": ("🔢", "figures, punctuation"), "woitn": ("🔤", "as spoken")}

NOTHING_YET = """<div class="empty">
<p class="lead">Nothing transcribed yet</p>
<ol>
<li>Click a sample, add recordings of your own, or use the microphone.</li>
<li>Tick the models to compare.</li>
<li>Press <b>Transcribe</b>. The result of each model appears as soon as it is ready.</li>
</ol>
<p>With a reference text, the results also show error rates, and the errors of each model.</p>
</div>"""


def results_html(state: RunState) -> str:
    """Returns the whole table; instructions if there is nothing yet."""
    if not state.rows:
        return NOTHING_YET
    groups = recordings_of(state)
    summary = _summary(state, len(groups)) if len(groups) > 1 or len(groups[0]) > 1 else ""
    details = [_recording(rows, state.instead if state.finished else None) for rows in groups]
    return render(VIEW, "results", summary, [many_html(groups, details)] if len(groups) >= FEWEST else details)


def status_html(state: RunState) -> str:
    """Returns the progress of the run as a line and a bar."""
    if not state.rows:
        return ""
    known = any(row.progress and row.progress.total for row in state.rows if row.status == "running")
    if state.finished:
        return render("widgets/parts.html", "progress", status_line(state), None, True)
    line, percent = status_line(state), round(100 * state.fraction)
    loaded = None if known or state.settled else named_percent(line)  # nothing computes yet: how far the load is
    known = known or state.settled > 0 or loaded is not None
    return render("widgets/parts.html", "progress", line, percent if loaded is None else loaded, known)


def status_line(state: RunState) -> str:
    """Returns the current activity or the result in one line of HTML."""
    finished = sum(row.status == "done" for row in state.rows)
    total = len(state.rows)
    if state.finished:
        failed = sum(row.status == "failed" for row in state.rows)
        complete = "1 transcript" if total == 1 else f"All {total} transcripts"
        outcome = f"{finished} of {total} transcripts" if finished < total else complete
        ends = "Stopped: " if state.stopped else ""
        return f"{ends}{outcome} in {duration(state.seconds)}" + (f", {failed} failed" if failed else "")
    running = sorted(
        (row for row in state.rows if row.status == "running"),
        key=lambda row: not (row.progress and row.progress.total),  # one that computes before those that load
    )
    for row in running[:1]:
        count = f"{state.settled + 1} of {total}" if total > 1 else ""
        return render(VIEW, "underway", count, row.title, row.recording, _activity(row))
    return "Starting"


def _activity(row: Row) -> str:
    if row.progress is None:
        return "starting"
    if not row.progress.total:
        return row.progress.activity
    return f"{row.progress.activity}, {duration(row.progress.done)} of {duration(row.progress.total)}"


def _recording(rows: Sequence[Row], instead: Instead | None) -> Markup:
    lengths = [row.transcript.audio_seconds for row in rows if row.transcript and row.status == "done"]
    wrong = any(row.score and row.score.counts.errors for row in rows)
    length = lengths[0] if lengths else None
    is_silent = any(row.transcript and row.transcript.doubt and row.transcript.doubt.kind == SILENCE for row in rows)
    offered = None if is_silent else instead  # no model hears more in silence
    return render(
        VIEW, "recording", rows[0], length, doubt_of(rows, instead is not None), offered, map(row_html, rows), wrong
    )


def doubt_of(rows: Sequence[Row], narrow: bool = False) -> str:
    """Returns why the models may not fit a recording, one sentence for each reason; empty if no model doubts.

    The sentence names the models if only some of them doubt. If all models are narrow, the doubt of half of them
    counts for all, because some narrow models cannot say how sure they are.

    Args:
        narrow: whether each of the models was made for less than its languages.
    """
    complete = [row for row in rows if row.transcript and row.status == "done"]
    by_sentence: dict[str, list[str]] = {}
    for row in complete:
        if row.transcript and row.transcript.doubt:
            by_sentence.setdefault(row.transcript.doubt.sentence, []).append(row.title)
    sentences = []
    for sentence, titles in by_sentence.items():
        sentence_of_all = sentence[0].upper() + sentence[1:]
        if len(complete) > 1:
            sentence_of_all = sentence_of_all.replace("the model knows", "these models know")
        applies_to_most = len(titles) == len(complete) or (narrow and 2 * len(titles) >= len(complete))
        sentences.append(sentence_of_all if applies_to_most else f"{', '.join(titles)}: {sentence}")
    return "; ".join(sentences)


def row_html(row: Row) -> Markup:
    """Returns one row as a card."""
    body = {
        "waiting": lambda: render(VIEW, "waiting"),
        # The text so far, marked as unfinished.
        "running": lambda: render(VIEW, "running", *phrases(row.writing), _activity(row)),
        "stopped": lambda: render(VIEW, "stopped", row),
        "failed": lambda: render("widgets/parts.html", "failure", row.error),
        "done": lambda: _finished_body(row),
    }[row.status]()
    return render(VIEW, "card", row, *_title(row), _rate_title(row.score) if row.score else "", body)


def phrases(text: str) -> tuple[list[str], str]:
    """Splits a growing text into phrases that will not change, and the rest that may."""
    finished, begin = [], 0
    for place in range(PHRASE, len(text)):
        # Splits at possible line breaks. It looks only back, because the text after is not written yet.
        ends = text[place].isspace() or is_unspaced(text[place])
        if ends and place + 1 - begin >= PHRASE:
            finished.append(text[begin : place + 1])
            begin = place + 1
    return finished, text[begin:]


def _title(row: Row) -> tuple[str, str]:
    """Returns the model's name, and how it runs."""
    name, _, runtime = row.title.rpartition(" · ")
    return (name, runtime) if name else (row.title, "")


def _finished_body(row: Row) -> Markup:
    assert row.transcript is not None
    numbers = _figures(row.transcript, row.score, row.weight_bytes)
    return render(VIEW, "done", row, tag_chips(row.transcript), numbers)


def tag_chips(transcript: Transcript) -> list[tuple[str, str, str]]:
    """Returns language and tags as (picture, word, meaning); an unknown tag appears under its own name."""
    found = []
    if transcript.language:
        found.append(("🌐", LANGUAGES.get(transcript.language, transcript.language), "language"))
    tables = {"emotion": EMOTIONS, "event": EVENTS, "itn": ITN}
    for kind, name in transcript.tags.items():
        picture, word = tables.get(kind, {}).get(name, ("🏷️", name))
        found.append((picture, word, kind))
    return found


def _figures(transcript: Transcript, score: Score | None, weight_bytes: int) -> list[tuple[str, str, str]]:
    values = []
    if score:
        # The main rate for the script is at the head of the card; these are the others.
        rates = (("WER", score.wer, "word error rate"), ("CER", score.cer, "character error rate"))
        values = [(name, error_rate(rate), meaning) for name, rate, meaning in rates if name != score.name]
    values.append(("time", duration(transcript.compute_seconds), "reading, features, network and decoding"))
    values.append(
        ("RTF", f"{transcript.real_time_factor:.3f}", "real-time factor: seconds of computing per second of sound")
    )
    values.append(("load", duration(transcript.load_seconds), "how long the model took to load, once"))
    if transcript.memory_bytes:
        values.append(("memory", size(transcript.memory_bytes), "largest memory of the model's process"))
    if weight_bytes:
        values.append(("weights", size(weight_bytes), "size of the files with the model's weights"))
    return values


def normaliser_label(normaliser: Normaliser) -> str:
    """Returns the name of a normaliser that the whole page uses: its title, version and explanation."""
    title, _, explained = normaliser.title.partition(": ")
    return f"{title} (version {normaliser.version})" + (f": {explained}" if explained else "")


def _rate_title(score: Score) -> str:
    counts = score.counts
    return (
        f"{counts.substitutions} wrong, {counts.deletions} missing, {counts.insertions} added "
        f"of {counts.reference_units}; normaliser {score.normaliser}, version {score.normaliser_version}"
    )


def _summary(state: RunState, recordings: int) -> str:
    """Returns each model over all recordings: pooled error rate, time, speed, memory and size of its weights."""
    lines = []
    for cell in dict.fromkeys(row.cell for row in state.rows):
        finished = [row for row in state.rows if row.cell == cell and row.transcript and row.status == "done"]
        if not finished:
            continue
        scores = [row.score for row in finished if row.score]
        transcripts = [row.transcript for row in finished if row.transcript]
        audio, compute = (
            sum(each.audio_seconds for each in transcripts),
            sum(each.compute_seconds for each in transcripts),
        )
        memory = max(each.memory_bytes or 0 for each in transcripts)
        cells = [
            pool_scores(scores).summary if scores else "–",
            duration(compute),
            size(memory) if memory else "–",
            size(finished[0].weight_bytes) if finished[0].weight_bytes else "–",
            f"{compute / audio:.3f}" if audio else "–",
            *([f"{len(finished)}"] if recordings > 1 else []),
        ]
        lines.append((*_title(finished[0]), cells))
    if not lines:
        return ""
    names = ("Model", "Error rate", "Time", "Memory", "Weights", "RTF", *(["Files"] if recordings > 1 else []))
    return render(VIEW, "summary", "All recordings together" if recordings > 1 else "Side by side", names, lines)
