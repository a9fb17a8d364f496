"""The table of results as HTML: one card for each model and recording, the differences to the reference marked.

Takes the state of a run and returns text. It knows neither Gradio nor how results come about.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from panels.transcribe.run import Row, RunState
from panels.widgets.markup import button, chips, copy_button, element, failure, figures, seconds, text
from workbench.session.values import Transcript
from workbench.system.memory import size
from workbench.text.normalisers import Normaliser
from workbench.text.rates import Difference, Score, pool_scores
from workbench.text.scripts import is_unspaced

PHRASE = 24  # characters of a text that is being written that a screen reader gets at once, or a few more
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
<li>Press <b>Transcribe</b>. Each model's row appears as soon as it is done.</li>
</ol>
<p>With a reference text, the rows also show error rates, and where each model went wrong.</p>
</div>"""


LEGEND = """<p class="legend" aria-hidden="true"><span class="wrong"><span>heard</span><small>said</small></span>
<span><del class="missing">missed</del></span><span><ins class="added">added</ins></span></p>"""


def board_html(board: RunState) -> str:
    """The whole table; what to do where there is nothing yet."""
    if not board.rows:
        return NOTHING_YET
    groups = [list(rows) for _, rows in groupby(board.rows, key=lambda row: row.key.partition(":")[0])]
    parts = [_summary(board, len(groups))] if len(groups) > 1 or len(groups[0]) > 1 else []
    return "".join(parts + [_recording(rows) for rows in groups])


def status_html(board: RunState) -> str:
    """How far the run is, in a line and a bar."""
    if not board.rows:
        return ""
    known = any(row.progress and row.progress.total for row in board.rows if row.status == "running")
    percent = round(100 * board.fraction)
    bar = element("div", f'<i style="width:{percent}%"></i>', "bar" if known or board.settled else "bar unsure")
    return element("div", element("p", status_line(board), role="status") + ("" if board.finished else bar), "progress")


def status_line(board: RunState) -> str:
    """What is going on, or what has come out, in one line of HTML."""
    done = sum(row.status == "done" for row in board.rows)
    total = len(board.rows)
    if board.finished:
        failed = sum(row.status == "failed" for row in board.rows)
        whole = "1 transcript" if total == 1 else f"All {total} transcripts"
        outcome = f"{done} of {total} transcripts" if done < total else whole
        ends = "Stopped: " if board.stopped else ""
        return text(f"{ends}{outcome} in {seconds(board.seconds)}" + (f", {failed} failed" if failed else ""))
    for row in board.rows:
        if row.status == "running":
            count = f"{board.settled + 1} of {total}" if total > 1 else ""
            parts = [count, f"<b>{text(row.title)}</b>", text(row.recording), text(_activity(row))]
            return " · ".join(filter(None, parts))
    return "Starting"


def _activity(row: Row) -> str:
    if row.progress is None:
        return "starting"
    if not row.progress.total:
        return row.progress.activity
    return f"{row.progress.activity}, {seconds(row.progress.done)} of {seconds(row.progress.total)}"


def _recording(rows: Sequence[Row]) -> str:
    lengths = [row.transcript.audio_seconds for row in rows if row.transcript]
    length = element("span", text(seconds(lengths[0])), "muted") if lengths else ""
    head = element("h3", f"{text(rows[0].recording)} {length}")
    reference = ""
    if rows[0].reference:
        reference = element("p", element("span", "Reference", "label") + text(rows[0].reference), "truth")
    wrong = any(row.score and row.score.counts.errors for row in rows)
    return element("section", head + reference + "".join(map(row_html, rows)) + (LEGEND if wrong else ""), "recording")


def row_html(row: Row) -> str:
    """One card."""
    rate = element("span", text(row.score.summary), "rate", title=_rate_title(row.score)) if row.score else ""
    head = element("header", element("h4", _title(row)) + rate)
    body = {
        "waiting": lambda: element("p", "Waiting", "muted"),
        "running": lambda: _writing(row) + element("p", text(_activity(row)), "muted working"),
        "stopped": lambda: _stopped(row),
        "failed": lambda: failure(row.error),
        "done": lambda: _result(row),
    }[row.status]()
    return element("article", head + body, f"result {row.status}", data_key=row.key, data_copy_scope="row")


def _writing(row: Row) -> str:
    """The text so far, visibly unfinished.

    Phrases are spans of a live region of their own each: what has been read out stays as it is and is not read again.
    """
    finished, rest = phrases(row.writing)
    said = "".join(element("span", text(phrase)) for phrase in finished)
    live = element("span", said, "said", aria_live="polite", aria_atomic="false", aria_relevant="additions")
    tail = element("span", text(rest), "tail", aria_hidden="true")
    return element("div", element("p", live + tail), "heard writing", aria_busy="true")


def phrases(written: str) -> tuple[list[str], str]:
    """A text that is being written, as phrases that stay the same when more is added, and the rest that may not."""
    finished, begin = [], 0
    for place in range(PHRASE, len(written)):
        # Where a line might be broken, looking back only: what follows is not written yet.
        ends = written[place].isspace() or is_unspaced(written[place])
        if ends and place + 1 - begin >= PHRASE:
            finished.append(written[begin : place + 1])
            begin = place + 1
    return finished, written[begin:]


def _stopped(row: Row) -> str:
    if not row.writing:
        return element("p", "Not run: the run was stopped before", "muted")
    return element("p", text(row.writing), "heard cut") + element("p", "Stopped before its end", "muted")


def _title(row: Row) -> str:
    name, _, runtime = row.title.rpartition(" · ")
    return f"{text(name or row.title)} {element('span', text(runtime), 'runtime') if name else ''}"


def _result(row: Row) -> str:
    transcript = row.transcript
    assert transcript is not None
    heard = text(transcript.text) or element("span", "no words heard", "muted")
    parts = []
    if row.score:
        parts.append(element("p", differences_html(row.score), "heard marked"))
        changed = row.score.hypothesis != transcript.text
        label = f"Raw text; above it is normalised ({row.score.normaliser}, version {row.score.normaliser_version})"
        raw = element("p", heard, data_copy_source="yes")
        parts.append(element("div", element("span", text(label), "label") + raw, "raw" if changed else "raw same"))
    else:
        parts.append(element("p", heard, "heard", data_copy_source="yes"))
    parts.append(chips(tag_chips(transcript)))
    parts.append(figures(_figures(transcript, row.score, row.weight_bytes)))
    parts += [element("p", text(note), "note") for note in transcript.notes]
    buttons = button("Segments and export", "look", key=row.key) + copy_button("Copy text")
    parts.append(element("div", buttons, "actions"))
    return "".join(parts)


def differences_html(score: Score) -> str:
    """The normalised hypothesis with its differences to the reference, told apart by shape and words, not colour alone.

    A wrong word stands over the right one, a missing one in a dashed frame, an added one after a plus sign.
    """
    return (
        "".join(text(piece.separator) + _difference(piece) for piece in score.differences)
        or '<span class="muted">no words</span>'
    )


def _difference(piece: Difference) -> str:
    if piece.kind == "equal":
        return text(piece.hypothesis)
    if piece.kind == "delete":
        return f'<del class="missing"><span class="sr">missing: </span>{text(piece.reference)}</del>'
    if piece.kind == "insert":
        return f'<ins class="added"><span class="sr">added: </span>{text(piece.hypothesis)}</ins>'
    said = f'<small><span class="sr"> instead of </span>{text(piece.reference)}</small>'
    return f'<span class="wrong"><span>{text(piece.hypothesis)}</span>{said}</span>'


def tag_chips(transcript: Transcript) -> list[tuple[str, str, str]]:
    """Language and tags as (picture, word, meaning); a tag that is new to this page shows under its own name."""
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
        # The rate that suits the script stands at the head of the card; here are the others.
        others = (("WER", score.wer, "word error rate"), ("CER", score.cer, "character error rate"))
        values = [(name, percent(rate), meaning) for name, rate, meaning in others if name != score.name]
    values.append(("time", seconds(transcript.compute_seconds), "reading, features, network and decoding"))
    values.append(
        ("RTF", f"{transcript.real_time_factor:.3f}", "real-time factor: seconds of computing per second of sound")
    )
    values.append(("load", seconds(transcript.load_seconds), "how long the model took to load, once"))
    if transcript.memory_bytes:
        values.append(("memory", size(transcript.memory_bytes), "most memory that the model's process had in use"))
    if weight_bytes:
        values.append(("weights", size(weight_bytes), "size of the files that the model's weights are in"))
    return values


def normaliser_label(normaliser: Normaliser) -> str:
    """The normaliser as the page names it everywhere: title and version."""
    title, _, explained = normaliser.title.partition(": ")
    return f"{title} (version {normaliser.version})" + (f": {explained}" if explained else "")


def percent(rate: float | None) -> str:
    """An error rate as `12.5 %`, or a dash where it is not defined."""
    return "–" if rate is None else f"{100 * rate:.1f} %"


def _rate_title(score: Score) -> str:
    counts = score.counts
    return (
        f"{counts.substitutions} wrong, {counts.deletions} missing, {counts.insertions} added "
        f"of {counts.reference_units}; normaliser {score.normaliser}, version {score.normaliser_version}"
    )


def _summary(board: RunState, recordings: int) -> str:
    """Each model over all recordings: pooled error rate, time, speed, memory and size of its weights."""
    lines = []
    for cell in dict.fromkeys(row.cell for row in board.rows):
        done = [row for row in board.rows if row.cell == cell and row.transcript]
        if not done:
            continue
        scores = [row.score for row in done if row.score]
        heard = [row.transcript for row in done if row.transcript]
        audio, compute = sum(each.audio_seconds for each in heard), sum(each.compute_seconds for each in heard)
        memory = max(each.memory_bytes or 0 for each in heard)
        cells = [
            pool_scores(scores).summary if scores else "–",
            seconds(compute),
            size(memory) if memory else "–",
            size(done[0].weight_bytes) if done[0].weight_bytes else "–",
            f"{compute / audio:.3f}" if audio else "–",
            *([f"{len(done)}"] if recordings > 1 else []),
        ]
        lines.append(
            element("th", _title(done[0]), scope="row") + "".join(element("td", text(value)) for value in cells)
        )
    if not lines:
        return ""
    names = ("Model", "Error rate", "Time", "Memory", "Weights", "RTF", *(["Files"] if recordings > 1 else []))
    head = element("tr", "".join(element("th", name, scope="col") for name in names))
    body = "".join(element("tr", line) for line in lines)
    table = element("table", element("thead", head) + element("tbody", body))
    title = "All recordings together" if recordings > 1 else "Side by side"
    return element("section", element("h3", title) + element("div", table, "scroll"), "summary")
