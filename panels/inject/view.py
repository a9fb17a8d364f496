"""The answers of the Inject tab as HTML: the texts side by side, and how far the runtimes agree on the first token.

It turns the state of a run into text. It knows neither Gradio nor the computation of answers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from panels.inject.run import Answer, Answers
from panels.running.progress import named_percent
from panels.widgets.templates import render
from workbench.decoding.agreement import agreement
from workbench.display.words import duration
from workbench.session.values import Alternative, Generation
from workbench.system.memory import size

NOTHING_YET = """<div class="empty">
<p class="lead">Nothing injected yet</p>
<ol>
<li>Click a sample or record yourself. A speech model makes embeddings of it.</li>
<li>The page shows them here with the nearest words, and puts them into a language model's prompt.</li>
<li>Its answer appears here.</li>
</ol>
<p>Or add files of arrays (tokens, hidden), write a prompt with a placeholder for each, and press <b>Inject</b>.</p>
</div>"""
VIEW = "inject/view.html"
TINY = 1e-4  # smaller probabilities are shown with one digit


def answers_html(answers: Answers) -> str:
    """Returns all answers; instructions if there is none yet."""
    if not answers.rows:
        return NOTHING_YET
    first = first_token_html([row for row in answers.rows if row.choices])
    return render(VIEW, "answers", map(answer_html, answers.rows), first)


def status_html(answers: Answers) -> str:
    """Returns the progress of the run as a line and a bar."""
    if not answers.rows:
        return ""
    settled = sum(row.status in ("done", "failed", "stopped") for row in answers.rows)
    if answers.finished:
        return render("widgets/parts.html", "progress", _line(answers, settled), None, True)
    line = _line(answers, settled)
    loaded = None if settled else named_percent(line)
    percent = round(100 * settled / len(answers.rows)) if loaded is None else loaded
    return render("widgets/parts.html", "progress", line, percent, settled or loaded is not None)


def _line(answers: Answers, settled: int) -> str:
    total = len(answers.rows)
    if not answers.finished:
        running = next((row for row in answers.rows if row.status == "running"), None)
        if running is None:
            return "Starting"
        count = f"{settled + 1} of {total}" if total > 1 else ""
        return render(VIEW, "underway", count, running.title, running.activity)
    finished = [row for row in answers.rows if row.status == "done"]
    failed = sum(row.status == "failed" for row in answers.rows)
    counted = f"{len(finished)} of {total} answers" if len(finished) < total or total > 1 else "1 answer"
    line = f"{'Stopped: ' if answers.stopped else ''}{counted} in {duration(answers.seconds)}"
    if failed:
        line += f", {failed} failed"
    ids = {row.generation.tokens for row in finished if row.generation}
    if len(finished) > 1:
        line += "; all wrote the same tokens" if len(ids) == 1 else f"; {len(ids)} different answers"
    return line


def answer_html(row: Answer) -> Markup:
    """Returns one answer as a card."""
    name, _, runtime = row.title.rpartition(" · ")
    return render(VIEW, "card", row, name, runtime, _figures(row.generation) if row.generation else ())


def _figures(generation: Generation) -> list[tuple[str, str, str]]:
    values = [
        ("tokens", str(len(generation.tokens)), "tokens written, with the end token"),
        ("prompt", str(generation.prompt_tokens), "positions of the prompt, embeddings included"),
        ("first token", duration(generation.first_token_seconds), "until it was there"),
        ("time", duration(generation.compute_seconds), "prompt and text together"),
        ("load", duration(generation.load_seconds), "how long the model took to load, once"),
    ]
    if generation.memory_bytes:
        values.append(("memory", size(generation.memory_bytes), "largest memory of the model's process"))
    return values


def first_token_html(rows: Sequence[Answer]) -> str:
    """Returns the likeliest first tokens of every answer with their probabilities, and how far the answers agree on
    them.
    """
    if not rows:
        return ""
    tokens: dict[tuple[int, str], None] = {}
    for row in rows:
        tokens |= dict.fromkeys((each.id, each.text) for each in row.choices)
    lines = []
    for token in tokens:
        found = [next((each for each in row.choices if (each.id, each.text) == token), None) for row in rows]
        lines.append((visible(token[1]), token[0], [_probability(each) for each in found]))
    names = [row.title.rpartition(" · ")[2] for row in rows]
    return render(VIEW, "first_token", agreements(rows), names, lines)


def agreements(rows: Sequence[Answer]) -> list[str]:
    """Returns how far each answer agrees with the first one, in words."""
    lines = []
    for row in rows[1:]:
        found = agreement(rows[0].choices, row.choices)
        best = "the same likeliest token" if found.same else "another likeliest token"
        runtime, first = (each.title.rpartition(" · ")[2] for each in (row, rows[0]))
        if found.shared:
            distance = f"probabilities at most {percent(found.difference)} apart"
            lines.append(
                f"{runtime} against {first}: {best}, {found.shared} of the {found.of} likeliest in common, {distance}"
            )
        else:
            lines.append(f"{runtime} against {first}: {best}, none of the {found.of} likeliest in common")
    return lines


def _probability(each: Alternative | None) -> tuple[str, str, str] | None:
    """Returns the percentage of a probability, the width of its bar, and its logarithm."""
    if each is None:
        return None
    share = math.exp(each.logprob)
    return percent(share), f"{100 * share:.1f}", f"{each.logprob:.4f}"


def percent(share: float) -> str:
    """Returns a probability, or a difference of two, as a percentage with its significant digits."""
    if 0 < share < TINY:
        return f"{100 * share:.1g} %"
    return f"{100 * share:.2f} %" if share < 0.0995 else f"{100 * share:.1f} %"


def visible(token: str) -> str:
    """Returns a token's text with visible spaces and line breaks."""
    visible_text = token.replace("\n", "⏎").replace("\t", "⇥")
    return (
        visible_text.replace(" ", "␣") if visible_text.strip(" ") != visible_text or not visible_text else visible_text
    )
