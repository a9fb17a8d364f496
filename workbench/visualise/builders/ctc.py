"""The view of a CTC head: posteriors, and the best alignment of the tokens with the frames.

Graves et al., "Connectionist Temporal Classification", ICML 2006. The lattice has a row for each token of the result,
and a row for the blank before, between and after them; the path goes through it from the first frame to the last.
"""

from __future__ import annotations

import numpy as np

from workbench.decoding.ctc import greedy
from workbench.decoding.ctc_alignment import best_alignment
from workbench.plots.layers import Axis, Layer, Scale
from workbench.visualise.options import ViewOptions
from workbench.visualise.scene import Scene
from workbench.visualise.view_content import ViewContent, token_spans

MAX_ROWS = 24  # tokens in the image of posteriors
MIN_PEAK = 0.01  # a token that never reaches this probability is left out
MAX_STATES = 121  # rows of a lattice: sixty tokens; a longer one would be read as a slope
BLANK = "∅"
PROBABILITY = Scale("probability", 0.0, 1.0)


def ctc(scene: Scene, options: ViewOptions) -> ViewContent:
    """Returns posteriors, lattice with alignment, and blanks over time."""
    posteriors = scene.stage("ctc.posteriors", "posteriors of a CTC head")
    ids = scene.stage("tokens").tolist()
    blank = blank_of(posteriors, ids)
    x = scene.rows("ctc.posteriors")
    tokens = scene.tokens()
    shown_ids = _peak_tokens(posteriors, ids, blank)
    words = dict(zip(shown_ids, scene.texts(shown_ids), strict=True)) | {blank: BLANK}
    image = Layer(
        "posteriors",
        "image",
        "posteriors of the likeliest tokens",
        posteriors[:, shown_ids].T,
        x,
        Axis("token", "tokens", ticks=tuple(words[number] for number in shown_ids), down=True),
        scale=PROBABILITY,
    )
    blanks = Layer(
        "blank",
        "lines",
        "blank, and the likeliest other token",
        np.stack([posteriors[:, blank], np.delete(posteriors, blank, axis=1).max(axis=1)]),
        x,
        Axis("probability"),
        labels=("blank", "likeliest token"),
    )
    layers, notes = [image], []
    if 2 * len(ids) + 1 <= MAX_STATES:
        lattice_layers = _lattice(posteriors, ids, blank, x, scene.texts(ids))
        layers += lattice_layers
        if len(lattice_layers) == 1:
            notes.append("no path through the lattice has a probability above zero, so no alignment is drawn")
    else:
        notes.append(f"the lattice of {len(ids)} tokens is too tall to read and is left out; expected at most 60")
    spans = token_spans(tokens)
    return ViewContent("CTC lattice", (*layers, blanks, *([spans] if len(spans.values) else [])), tokens, tuple(notes))


def blank_of(posteriors: np.ndarray, ids: list[int]) -> int:
    """Returns the blank: of the tokens on the best path that are not in its result, the one with most frames.

    Args:
        posteriors: [frames, vocabulary].
        ids: the result, after collapsing repeats and dropping blanks.
    """
    path = posteriors.argmax(axis=1)
    dropped = path[~np.isin(path, ids)]
    return int(np.bincount(dropped).argmax()) if dropped.size else 0


def peaks_of(scores: np.ndarray, blank: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns for each run of a token on the best path its likeliest frame, and the token.

    Args:
        scores: [frames, vocabulary], probabilities or logits.
    """
    tokens = greedy(scores, blank)
    frames = [token.first + int(scores[token.first : token.end, token.id].argmax()) for token in tokens]
    return np.array(frames, dtype=np.int64), np.array([token.id for token in tokens], dtype=np.int64)


def _peak_tokens(posteriors: np.ndarray, ids: list[int], blank: int) -> list[int]:
    """Returns the blank, and the tokens of the result and others that become likely, in the order of their peaks."""
    peak = posteriors.max(axis=0)
    peak[blank] = 0.0
    by_height = np.argsort(-peak, kind="stable")[: MAX_ROWS - 1]
    likely_ids = [int(number) for number in by_height if peak[number] >= MIN_PEAK or number in ids]
    return [blank, *sorted(likely_ids, key=lambda number: (int(posteriors[:, number].argmax()), number))]


def _lattice(posteriors: np.ndarray, ids: list[int], blank: int, x: Axis, words: tuple[str, ...]) -> list[Layer]:
    """Returns the image of the lattice's states [states, frames], and the best path through it if there is one."""
    states = np.full(2 * len(ids) + 1, blank)
    states[1::2] = ids
    ticks = [BLANK] * len(states)
    ticks[1::2] = words
    image = Layer(
        "lattice",
        "image",
        "lattice of the result, with its best path",
        posteriors[:, states].T,
        x,
        Axis("state", "tokens", ticks=tuple(ticks), down=True),
        scale=PROBABILITY,
    )
    with np.errstate(divide="ignore"):
        aligned = best_alignment(np.log(posteriors.astype(np.float64)), ids, blank)
    if aligned is None:
        return [image]
    places = np.zeros(len(posteriors))
    for number, token in enumerate(aligned):
        places[token.first : token.end] = 2 * number + 1
        places[token.end :] = 2 * number + 2
    middles = x.start + (np.arange(len(places)) + 0.5) * x.step
    path = np.stack([middles, places + 0.5], axis=1)
    return [image, Layer("path", "points", "best path", path, x, image.y, over=True)]
