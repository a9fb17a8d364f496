"""The embeddings of the Inject tab: the list of those that are there, and a close look at one of them, as HTML.

This file knows neither Gradio nor models.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from panels.widgets.figures import picture
from panels.widgets.markup import button, chips, element, figures, text
from workbench.core.errors import BadInput
from workbench.embeddings import ENCODINGS, Embedding
from workbench.embeddings.components import principal
from workbench.embeddings.statistics import look_at, norms
from workbench.session.values import Neighbours

EMPTY = """<p class="muted small">None yet. Add files, or make some from a recording below.</p>"""
MOST_ROWS = 60  # tokens whose nearest words are listed


@dataclass(frozen=True, eq=False)
class Held:
    """An embedding in a user's list."""

    embedding: Embedding
    key: str = field(default_factory=lambda: uuid.uuid4().hex)


def held_in(value: Any) -> tuple[Held, ...]:
    """What the state of a page holds; raises `BadInput` where that is no list of embeddings."""
    if not isinstance(value, tuple) or not all(isinstance(each, Held) for each in value):
        raise BadInput("the embeddings cannot be read; reload the page")
    return value


@dataclass(frozen=True)
class Several:
    """A file with several arrays, of which some are to be chosen."""

    path: str
    arrays: tuple[tuple[str, str], ...]  # what each is, and its name


def several_in(value: Any) -> tuple[Several, ...]:
    """As `held_in`, of files with several arrays."""
    if not isinstance(value, tuple) or not all(isinstance(each, Several) for each in value):
        raise BadInput("the files cannot be read; reload the page")
    return value


def listed_html(held: Sequence[Held]) -> str:
    """The embeddings in the order of their placeholders, each with what can be done with it."""
    if not held:
        return EMPTY
    return element("ol", "".join(_item(number, each) for number, each in enumerate(held)), "held")


def _item(number: int, held: Held) -> str:
    one = held.embedding
    found = look_at(one.values)
    shape = " × ".join(map(str, one.shape))
    lengths = f"{found.shortest:.3g} to {found.longest:.3g}"
    labels = [
        ("▦", shape, "shape as stored"),
        ("", one.dtype, "type as stored"),
        ("↔", f"norms {lengths}", "lengths of the vectors, of the shortest and the longest"),
    ]
    notes = "".join(element("p", text(note), "note") for note in one.notes)
    moves = button("Earlier", "earlier", key=held.key) if number else ""
    saves = "".join(button(form, "save", key=held.key, form=form) for form in ENCODINGS)
    buttons = button("Look", "look", key=held.key) + moves + button("Remove", "remove", key=held.key)
    keep = element("details", element("summary", "Save as") + element("div", saves, "actions"), "keep")
    head = element("p", f"<b>{text(one.name)}</b>")
    return element("li", head + chips(labels) + notes + element("div", buttons + keep, "actions"))


def look_html(one: Embedding, near: Neighbours | None, model: str) -> str:
    """An embedding in numbers and pictures, and the words of a model that it is near to.

    Args:
        model: whose words these are; where there are none, why.
    """
    found = look_at(one.values)
    numbers = [
        ("tokens", str(found.tokens), "vectors, one for each position of the prompt"),
        ("hidden", str(found.hidden), "width of each"),
        ("norms", f"{found.shortest:.3g} / {found.median:.3g} / {found.longest:.3g}", "shortest, median, longest"),
        ("values", f"{found.lowest:.3g} to {found.highest:.3g}", "the smallest and the largest"),
        ("zeros", f"{100 * found.zeros:.3g} %", "share of the values"),
        ("repeated", str(found.repeated), "vectors that are the same as the one before"),
        ("digest", one.digest, "of the values: the same for the same embedding in another file"),
    ]
    title = element("h3", f"{text(one.name)} {element('span', text(one.dtype), 'muted')}", tabindex="-1")
    parts = [title, figures(numbers), *_pictures(one, near, model)]
    parts.append(_words_html(near, model) if near else element("p", text(f"Words near it: {model}"), "note"))
    return element("div", "".join(parts), "card look")


def _pictures(one: Embedding, near: Neighbours | None, model: str) -> list[str]:
    from workbench.plots.embeddings import norms_figure, plane_figure, values_figure

    others = near.sample if near else None
    lengths, theirs = norms(one.values), norms(others) if others is not None else None
    band = f"; the band has nine tenths of {model}'s own" if near else ""
    drawn = [
        picture(
            "Values: tokens along, channels up",
            f"The values of {one.name}: {one.tokens} tokens along, {one.hidden} channels up.",
            lambda width, height: values_figure(one.values, width, height),
            (2.4, 2.0),
        ),
        picture(
            f"Norm of each token's vector{band}",
            f"Norms of the tokens of {one.name}, from {lengths.min():.3g} to {lengths.max():.3g}.",
            lambda width, height: norms_figure(lengths, theirs, width, height),
            (1.8, 1.7),
        ),
    ]
    if near is not None:
        plane = principal(one.values, near.sample)
        words = [row[0] for row in near.texts]
        drawn.append(
            picture(
                f"The plane in which they differ most, among {len(near.sample)} tokens of {model}",
                f"Principal components of {one.name} among the tokens of {model}.",
                lambda width, height: plane_figure(plane.tokens, plane.others, plane.shares, words, width, height),
                (4.0, 3.4),
            )
        )
    return drawn


def _words_html(near: Neighbours, model: str) -> str:
    """The nearest words of every token, as many as one can read."""
    count = near.ids.shape[1]
    head = "".join(
        element("th", text(name), scope="col") for name in ("Token", *(f"{n}." for n in range(1, count + 1)))
    )
    lines = []
    for number, (words, cosines) in enumerate(zip(near.texts[:MOST_ROWS], near.cosines)):
        cells = "".join(
            element("td", f"<code>{text(word)}</code> {element('small', f'{cosine:.2f}', 'muted')}")
            for word, cosine in zip(words, cosines.tolist())
        )
        lines.append(element("tr", element("th", str(number), scope="row") + cells))
    more = len(near.texts) - MOST_ROWS
    table = element("table", element("thead", element("tr", head)) + element("tbody", "".join(lines)))
    left = element("p", f"{more} more tokens are not listed", "note") if more > 0 else ""
    said = "By the angle between the vectors (its cosine). What a speech model has heard is often near to no word."
    return (
        element("h4", f"Nearest tokens of {text(model)}")
        + element("p", text(said), "muted small")
        + element("div", table, "scroll")
        + left
    )
