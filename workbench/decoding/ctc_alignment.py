"""The best alignment of a known token sequence with the outputs of a CTC head.

Graves et al., "Connectionist Temporal Classification", ICML 2006: the Viterbi path through the tokens with a blank
before, between and after them. Works on numpy arrays of any runtime.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from workbench.decoding.ctc import CtcToken


def best_alignment(log_probs: np.ndarray, tokens: Sequence[int], blank: int = 0) -> list[CtcToken] | None:
    """Returns the frames of each token on the likeliest path of log-probabilities [frames, vocabulary] that collapses
    to the tokens; None if no path does, as there are too few frames or some probability is zero.
    """
    frames = len(log_probs)
    path = np.full(2 * len(tokens) + 1, blank)
    path[1::2] = tokens
    # A place is reached from itself, from the one before, and from the last token if that is another one.
    skips = np.zeros(len(path), dtype=bool)
    skips[3::2] = path[3::2] != path[1:-2:2]
    best = np.full(len(path), -np.inf)
    came = np.zeros((frames, len(path)), dtype=np.int8)  # places back
    for frame in range(frames):
        if frame == 0:
            best[:2] = log_probs[0, path[:2]]
            continue
        ways = np.full((3, len(path)), -np.inf)
        ways[0] = best
        ways[1, 1:] = best[:-1]
        ways[2, 2:] = np.where(skips[2:], best[:-2], -np.inf)
        came[frame] = ways.argmax(axis=0)
        best = ways.max(axis=0) + log_probs[frame, path]
    if not frames:
        return None if len(tokens) else []
    place = len(path) - 1 if len(path) == 1 or best[-1] >= best[-2] else len(path) - 2
    if best[place] == -np.inf:
        return None
    places = np.zeros(frames, dtype=np.int64)
    for frame in range(frames - 1, -1, -1):
        places[frame] = place
        place -= int(came[frame, place])
    found = []
    for number, token in enumerate(tokens):
        inside = np.flatnonzero(places == 2 * number + 1)
        found.append(CtcToken(int(token), int(inside[0]), int(inside[-1]) + 1))
    return found
