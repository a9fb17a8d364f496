"""Texts of a recording against its reference as HTML, with every difference marked by shape and not by colour alone."""

from __future__ import annotations

from workbench.display.html import Html, element, joined
from workbench.text.rates import Score

HIDDEN = "unseen"  # a class of what only a screen reader says


def marked(score: Score) -> Html:
    """Returns the normalised hypothesis: wrong units over the right ones, missing ones framed, added ones after a +."""
    if not score.differences:
        return element("span", "no words", class_="quiet")
    parts = []
    for piece in score.differences:
        parts.append(Html(piece.separator))
        if piece.kind == "equal":
            parts.append(element("span", piece.hypothesis))
        elif piece.kind == "delete":
            parts.append(element("del", _unseen("missing: "), piece.reference))
        elif piece.kind == "insert":
            parts.append(element("ins", _unseen("added: "), piece.hypothesis))
        else:
            right = element("small", _unseen(" instead of "), piece.reference)
            parts.append(element("span", element("span", piece.hypothesis), right, class_="wrong"))
    return joined(parts)


def _unseen(text: str) -> Html:
    return element("span", text, class_=HIDDEN)
