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
    steps_back = np.zeros((frames, len(path)), dtype=np.int8)  # places back
    for frame in range(frames):
        if frame == 0:
            best[:2] = log_probs[0, path[:2]]
            continue
        predecessors = np.full((3, len(path)), -np.inf)
        predecessors[0] = best
        predecessors[1, 1:] = best[:-1]
        predecessors[2, 2:] = np.where(skips[2:], best[:-2], -np.inf)
        steps_back[frame] = predecessors.argmax(axis=0)
        best = predecessors.max(axis=0) + log_probs[frame, path]
    if not frames:
        return None if len(tokens) else []
    state = len(path) - 1 if len(path) == 1 or best[-1] >= best[-2] else len(path) - 2
    if best[state] == -np.inf:
        return None
    states = np.zeros(frames, dtype=np.int64)
    for frame in range(frames - 1, -1, -1):
        states[frame] = state
        state -= int(steps_back[frame, state])
    aligned_tokens = []
    for number, token in enumerate(tokens):
        token_frames = np.flatnonzero(states == 2 * number + 1)
        aligned_tokens.append(CtcToken(int(token), int(token_frames[0]), int(token_frames[-1]) + 1))
    return aligned_tokens
