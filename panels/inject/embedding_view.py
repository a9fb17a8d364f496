"""The embeddings of the Inject tab as HTML: the list, and the details of one of them.

This file knows neither Gradio nor models.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from panels.widgets.figures import picture
from panels.widgets.templates import render
from workbench.core.errors import BadInput
from workbench.embeddings import ENCODINGS, Embedding
from workbench.embeddings.components import principal
from workbench.embeddings.nearest import directions
from workbench.embeddings.statistics import norms, statistics_of
from workbench.session.values import Neighbours

EMPTY = """<p class="muted small">There are no embeddings yet. Make some from a recording above, or add files.</p>"""
VIEW = "inject/view.html"
MAX_ROWS = 60  # tokens whose nearest words are listed


@dataclass(frozen=True, eq=False)
class ListedEmbedding:
    """An embedding in a user's list."""

    embedding: Embedding
    from_recording: bool = False  # whether a speech model made it from a recording on the page
    key: str = field(default_factory=lambda: uuid.uuid4().hex)


def listed_embeddings(value: Any) -> tuple[ListedEmbedding, ...]:
    """Returns the embeddings in a page's state; raises `BadInput` for any other value."""
    if not isinstance(value, tuple) or not all(isinstance(each, ListedEmbedding) for each in value):
        raise BadInput("the embeddings cannot be read; reload the page")
    return value


@dataclass(frozen=True)
class ArrayChoice:
    """A file with several arrays, from which the user must choose."""

    path: str
    arrays: tuple[tuple[str, str], ...]  # the description and the name of each


def array_choices(value: Any) -> tuple[ArrayChoice, ...]:
    """Returns the files with several arrays in a page's state; raises `BadInput` for any other value."""
    if not isinstance(value, tuple) or not all(isinstance(each, ArrayChoice) for each in value):
        raise BadInput("the files cannot be read; reload the page")
    return value


def listed_html(embeddings: Sequence[ListedEmbedding]) -> str:
    """Returns the embeddings in the order of their placeholders, each with its buttons."""
    if not embeddings:
        return EMPTY
    return render(VIEW, "listed", [(each, _labels(each.embedding)) for each in embeddings], ENCODINGS)


def _labels(embedding: Embedding) -> list[tuple[str, str, str]]:
    statistics = statistics_of(embedding.values)
    shape = " × ".join(map(str, embedding.shape))
    lengths = f"{statistics.shortest:.3g} to {statistics.longest:.3g}"
    return [
        ("▦", shape, "shape as stored"),
        ("", embedding.dtype, "type as stored"),
        ("↔", f"norms {lengths}", "norms of the shortest and the longest vector"),
    ]


def look_html(embedding: Embedding, neighbours: Neighbours | None, model: str) -> str:
    """Returns an embedding as numbers and pictures, with the nearest tokens of a model.

    Args:
        model: the name of that model; if `neighbours` is None, the reason for that.
    """
    statistics = statistics_of(embedding.values)
    numbers = [
        ("tokens", str(statistics.tokens), "vectors, one for each position of the prompt"),
        ("hidden", str(statistics.hidden), "width of each vector"),
        (
            "norms",
            f"{statistics.shortest:.3g} / {statistics.median:.3g} / {statistics.longest:.3g}",
            "shortest, median, longest",
        ),
        ("values", f"{statistics.lowest:.3g} to {statistics.highest:.3g}", "the smallest and the largest"),
        ("zeros", f"{100 * statistics.zeros:.3g} %", "share of the values"),
        ("repeated", str(statistics.repeated), "vectors that are the same as the one before"),
        ("digest", embedding.digest, "hash of the values; another file with the same embedding has the same"),
    ]
    words = _words_html(neighbours, model) if neighbours else render(VIEW, "no_words", model)
    return render(VIEW, "look", embedding, numbers, _pictures(embedding, neighbours, model), words)


def _pictures(embedding: Embedding, neighbours: Neighbours | None, model: str) -> list[Markup]:
    from workbench.plots.embeddings import norms_figure, plane_figure, values_figure

    token_vectors = neighbours.sample if neighbours else None
    lengths, token_norms = norms(embedding.values), norms(token_vectors) if token_vectors is not None else None
    band = f"; the band holds nine tenths of the tokens of {model}" if neighbours else ""
    pictures = [
        picture(
            "Values: tokens from left to right, channels upwards",
            f"The values of {embedding.name}: {embedding.tokens} tokens from left to right, "
            f"{embedding.hidden} channels upwards.",
            lambda width, height: values_figure(embedding.values, width, height),
            (2.4, 2.0),
        ),
        picture(
            f"Norm of each token's vector{band}",
            f"Norms of the tokens of {embedding.name}, from {lengths.min():.3g} to {lengths.max():.3g}.",
            lambda width, height: norms_figure(lengths, token_norms, width, height),
            (1.8, 1.7),
        ),
    ]
    if neighbours is not None:
        # Vectors of speech may be many times longer than those of tokens, which would then all lie on one point.
        plane = principal(directions(embedding.values), directions(neighbours.sample))
        words = [row[0] for row in neighbours.texts]
        pictures.append(
            picture(
                f"The plane in which their directions differ most, among {len(neighbours.sample)} tokens of {model}",
                f"Principal components of {embedding.name} among the tokens of {model}.",
                lambda width, height: plane_figure(plane.tokens, plane.others, plane.shares, words, width, height),
                (4.0, 3.4),
            )
        )
    return pictures


def _words_html(neighbours: Neighbours, model: str) -> str:
    """Returns the nearest tokens of every vector, up to a readable number."""
    lines = [zip(words, cosines.tolist()) for words, cosines in zip(neighbours.texts[:MAX_ROWS], neighbours.cosines)]
    return render(VIEW, "words", model, neighbours.ids.shape[1], lines, len(neighbours.texts) - MAX_ROWS)
