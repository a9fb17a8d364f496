"""The sections of a report as HTML: overview, differences, parts of the corpus, confusions, recordings, origin.

All text goes through `workbench.display.html`, which escapes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from workbench.core.phrases import counted
from workbench.display.html import Html, direction, element
from workbench.display.words import error_rate
from workbench.evaluation.report.columns import Columns
from workbench.evaluation.report.confusions import Confusions
from workbench.evaluation.report.marks import marked
from workbench.evaluation.report.overview import Breakdown, Overview
from workbench.evaluation.report.players import Player
from workbench.evaluation.statistics import MARGIN, Difference, Interval, correction
from workbench.system.memory import size
from workbench.text.normalisers import find_normaliser
from workbench.text.rates import score

OPENED = 3  # recordings of a list that are unfolded
MAX_SKIPPED = 100  # rows of the manifest that are listed
SPACE = "␣"
ALL_RIGHT = (
    "A model without errors has the interval 0 to 0, however few recordings there are; more of them may have errors."
)


def _table(head: Sequence[Any], rows: Iterable[Sequence[Any]], words: Sequence[int] = (0,), css: str = "") -> Html:
    kinds = ["words" if place in words else None for place in range(len(head))]
    top = element("tr", *(element("th", each, scope="col", class_=kind) for each, kind in zip(head, kinds)))
    body = [
        element(
            "tr",
            element("th", row[0], scope="row", class_=kinds[0]),
            *(element("td", each, class_=kind) for each, kind in zip(row[1:], kinds[1:])),
        )
        for row in rows
    ]
    table = element("table", element("thead", top), element("tbody", *body), class_=css or None)
    # A place that scrolls can be reached by the keyboard.
    return element("div", table, class_="scroll", tabindex="0")


def _interval(interval: Interval) -> Html:
    if interval.low is None or interval.high is None:
        return element("span", error_rate(interval.rate))
    ends = f"{100 * interval.low:.1f} to {100 * interval.high:.1f}"
    return element("span", error_rate(interval.rate), " ", element("small", ends))


def _seconds(value: float) -> str:
    if value < 100:
        return f"{value:.1f} s"
    minutes, hours = value / 60, value / 3600
    return f"{minutes:.1f} min" if minutes < 100 else f"{hours:.1f} h"


def overview_section(columns: Columns, figures: Overview) -> Html:
    """Returns each model's rates with intervals, speed and memory."""
    kinds = [("WER", "wer"), ("CER", "cer")]
    if columns.rate == "MER":
        kinds.insert(0, ("MER", "primary"))
    highest = max((each.primary.high or each.primary.rate or 0.0 for each in figures.models), default=0.0) or 1.0
    rows = []
    for each in figures.models:
        counts = f"{each.substitutions}, {each.deletions}, {each.insertions}"
        rtfx = "–" if each.rtfx is None else f"{each.rtfx:.1f}"
        rows.append(
            [
                columns.short[each.model],
                *(_interval(getattr(each, name)) for _, name in kinds),
                _range_bar(each.primary, highest),
                counts,
                f"{each.done} of {columns.expected}" if each.done < columns.expected else str(each.done),
                str(each.failed),
                rtfx,
                "–" if each.cpu_seconds is None else _seconds(each.cpu_seconds),
                size(each.memory_bytes) if each.memory_bytes else "–",
            ]
        )
    head = [
        "Model",
        *(name for name, _ in kinds),
        f"{columns.rate}, 0 to {100 * highest:.0f} %",
        "Wrong, missing, added",
        "Recordings",
        "Failed",
        "RTFx",
        "Processor time",
        "Memory",
    ]
    failed = sum(each.failed for each in figures.models)
    marking = find_normaliser(columns.normaliser).version
    notes = [
        f"The small numbers are 95 % intervals. {figures.blocks.about}",
        f"Both texts are compared after the normaliser {columns.normaliser}, version {columns.normaliser_version}."
        + ("" if marking == columns.normaliser_version else f" Errors are marked after its version {marking}."),
        "RTFx is seconds of sound per second of computing; memory is the most that a worker's process had in use.",
        *([ALL_RIGHT] if any(each.primary.rate == each.primary.high == 0 for each in figures.models) else []),
        *([f"Failed recordings ({failed}) have no score and do not count in the rates."] if failed else []),
    ]
    return _section("overview", "Overview", _table(head, rows, css="first"), _notes(notes))


def _range_bar(interval: Interval, highest: float) -> Html:
    """A rate as a point on a line from 0 to `highest`, its interval as a bar around it."""
    if interval.rate is None:
        return Html("")
    low, high = (interval.rate if end is None else end for end in (interval.low, interval.high))
    style = f"--at:{interval.rate / highest:.4f};--low:{low / highest:.4f};--high:{high / highest:.4f}"
    return element("span", element("i"), element("b"), class_="range", style=style, aria_hidden="true")


def _notes(lines: Iterable[str]) -> Html:
    return element("ul", *(element("li", line) for line in lines if line), class_="notes")


def _section(key: str, title: str, *content: Html) -> Html:
    return element("section", element("h2", title, id=f"{key}-title"), *content, id=key, aria_labelledby=f"{key}-title")


MARKS = {
    "worse": ("▲", "worse"),
    "better": ("▼", "better"),
    "not worse": ("≈", "not worse"),
    "same": ("=", "the same"),
    "open": ("?", "open"),
    "unknown": ("–", "not known"),
}


def differences_section(columns: Columns, pairs: Sequence[Difference]) -> Html:
    """Returns a sentence for each two models."""
    items = [_pair(each) for each in pairs]
    margin = f"{100 * MARGIN:g}" if pairs else ""
    notes = [
        correction(len(pairs)),
        f"The same recordings are drawn for both models (paired bootstrap of the difference in {columns.rate}). “Not "
        f"worse” means that the whole interval lies below {margin} points.",
    ]
    return _section("differences", "Is the difference real?", element("ul", *items, class_="pairs"), _notes(notes))


def _pair(each: Difference) -> Html:
    sign, word = MARKS[each.verdict]
    mark = element("span", sign, class_="mark", title=word, aria_hidden="true")
    return element("li", mark, element("span", each.sentence), class_=each.verdict.replace(" ", "-"))


def breakdowns_section(columns: Columns, breakdowns: Sequence[Breakdown]) -> Html:
    """Returns the rates of parts of the corpus, a table for each property."""
    parts = []
    for each in breakdowns:
        rates = [interval.rate or 0.0 for group in each.groups for interval in group.intervals]
        highest = max(rates, default=0.0) or 1.0
        rows = [
            [_named(group.name), str(group.recordings), *(_shaded(interval, highest) for interval in group.intervals)]
            for group in each.groups
        ]
        head = [each.title.partition(":")[0], "Recordings", *(columns.short[model] for model in columns.models)]
        omitted = element("p", f"and {each.left_out} more", class_="quiet") if each.left_out else Html("")
        parts.append(element("div", element("h3", each.title), _table(head, rows), omitted))
    return _section("parts", f"{columns.rate} by part of the corpus", element("div", *parts, class_="tables"))


def _named(name: str) -> Html:
    """Returns a name for a table, which a style cuts if it is long; the whole name appears on hovering."""
    return element("span", name, class_="named", title=name)


def _shaded(interval: Interval, highest: float) -> Html:
    share = (interval.rate or 0.0) / highest
    return element("span", _interval(interval), class_="heat", style=f"--heat:{min(share, 1):.3f}")


def confusions_section(columns: Columns, model_confusions: Sequence[Confusions]) -> Html:
    """Returns the most frequent errors of each model, and where it adds and drops units."""
    parts = []
    for each in model_confusions:
        borders = [
            ["added", *_borders(each.added_at)],
            ["dropped", *_borders(each.dropped_at)],
        ]
        tables = [
            ("Taken for another", ["Said", "Heard", "Times"], [_shown(row) for row in each.swapped], (0, 1)),
            ("Dropped", ["Said", "Times"], [_shown(row) for row in each.dropped], (0,)),
            ("Added", ["Heard", "Times"], [_shown(row) for row in each.added], (0,)),
            ("Where", ["", "at the start", "in between", "at the end"], borders, (0,)),
        ]
        filled_tables = [
            element("div", element("h4", title), _table(head, rows, words))
            for title, head, rows, words in tables
            if rows
        ]
        looked_at = (
            f" Of {each.wrong} recordings with errors, {each.aligned} were looked at."
            if each.aligned < each.wrong
            else ""
        )
        inside = (
            element("div", *filled_tables, class_="tables")
            if each.wrong
            else element("p", "No errors.", class_="quiet")
        )
        title = element("summary", columns.short[each.model], element("small", looked_at))
        parts.append(
            element(
                "details",
                title,
                inside,
                open="open" if len(model_confusions) < 4 or each is model_confusions[0] else None,
            )
        )
    return _section("confusions", "What is confused with what", *parts)


def _shown(row: Sequence[Any]) -> list[Any]:
    """Returns units and their number for a table; the space between two words, a unit of a CER, becomes visible."""
    return [_named(SPACE if cell == " " else cell) if isinstance(cell, str) else cell for cell in row]


def _borders(borders: Any) -> list[str]:
    return [str(borders.start), str(borders.middle), str(borders.end)]


def recordings_section(
    key: str, title: str, about: str, columns: Columns, rows: Sequence[int], sounds: Mapping[int, Player]
) -> Html:
    """Returns recordings with players and with every model's text against the reference."""
    cards = [_recording(columns, row, sounds.get(row), place < OPENED) for place, row in enumerate(rows)]
    return _section(key, title, element("p", about, class_="quiet"), *cards)


def _recording(columns: Columns, row: int, sound: Player | None, is_open: bool) -> Html:
    each, rates = columns.utterances[row], columns.rates()[row]
    heads = [
        element("span", columns.short[model], " ", element("b", error_rate(rate if rate == rate else None)))
        for model, rate in zip(columns.models, rates)
    ]
    seconds = columns.seconds[row]
    facts = [each.speaker, each.noise, each.language, f"{seconds:.1f} s" if seconds == seconds else None]
    head = element(
        "summary",
        element("span", each.id, class_="name"),
        element("span", " · ".join(filter(None, facts)), class_="quiet"),
        element("span", *heads, class_="rates"),
    )
    reference = element("dd", each.text or "(nothing is said)", dir=direction(each.text))
    lines = [element("div", element("dt", "Reference"), reference)]
    for place, model in enumerate(columns.models):
        is_failed = row in columns.failures[model]
        transcript = "" if is_failed else columns.texts[model][row] or each.text
        transcript_cell = element("dd", _transcript_cell(columns, row, place), dir=direction(transcript))
        lines.append(element("div", element("dt", columns.short[model]), transcript_cell))
    body = [element("dl", *lines, class_="texts")]
    if sound is not None:
        if sound.address:
            body.insert(0, element("audio", controls="controls", preload="none", src=sound.address, aria_label=each.id))
        if sound.note:
            body.append(element("p", sound.note, class_="quiet"))
    body.append(element("div", class_="doors", data_row=row))
    return element("details", head, *body, class_="recording", open="open" if is_open else None, data_row=row)


def _transcript_cell(columns: Columns, row: int, place: int) -> Html:
    model = columns.models[place]
    if row in columns.failures[model]:
        return element("span", "Failed: ", columns.failures[model][row], class_="fault")
    text = columns.texts[model][row]
    if text is None:
        return element("span", "not done", class_="quiet")
    return marked(score(columns.utterances[row].text, text, columns.normaliser))


def origin_section(columns: Columns) -> Html:
    """Returns what made the results: manifest, models, options, versions; and rows that could not be used."""
    parts = []
    run = columns.run
    if run is not None:
        corpus = run.manifest
        facts = [
            (
                "Manifest",
                f"{corpus.path} ({corpus.format}): {counted(corpus.utterances, 'recording')}, "
                f"{counted(corpus.skipped, 'row')} skipped",
            ),
            ("Digest of the corpus", corpus.digest),
            ("Normaliser", f"{columns.normaliser}, version {columns.normaliser_version}"),
            ("Versions", ", ".join(f"{name} {version}" for name, version in run.versions.items())),
            ("Run", ", ".join(f"{name}: {value}" for name, value in run.measured.items())),
        ]
        parts.append(_table(["", ""], [fact for fact in facts if fact[1]], (0, 1), "facts"))
        rows = [
            [each.key, each.checkpoint or "a server's", _pairs(each.settings), _pairs(each.options)]
            for each in run.models
        ]
        parts.append(_table(["Model", "Digest of its checkpoint", "Settings", "Options"], rows, (0, 1, 2, 3), "facts"))
    if columns.skipped:
        listed = [
            element("li", element("b", each["where"]), " ", each["reason"]) for each in columns.skipped[:MAX_SKIPPED]
        ]
        omitted = len(columns.skipped) - MAX_SKIPPED
        after = [element("p", f"and {omitted} more", class_="quiet")] if omitted > 0 else []
        title = element("summary", f"{counted(len(columns.skipped), 'row')} of the manifest could not be used")
        parts.append(element("details", title, element("ul", *listed), *after))
    return _section("origin", "What made these results", *parts)


def _pairs(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in options.items()) or "–"


def navigation(sections: Sequence[tuple[str, str]]) -> Html:
    """Returns links to the sections."""
    links = [element("a", title, href=f"#{key}") for key, title in sections]
    return element("nav", *links, aria_label="Parts of the report")


def table_section() -> Html:
    """Returns the place of the table of all recordings, which the script fills."""
    needs = "The table needs JavaScript and a browser of June 2024 or later."
    wait = element("p", needs, class_="quiet", id="rows-wait")
    return _section("rows", "All recordings", wait, element("div", id="rows-table"))
