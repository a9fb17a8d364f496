"""The hypotheses of beams at the end of a recording, with the end of the sentence scored."""

from __future__ import annotations

import numpy as np

from workbench.decoding.ctc_beam.hypothesis import Hypothesis
from workbench.decoding.ctc_beam.knowledge import Knowledge, weighed
from workbench.decoding.ctc_beam.rows import (
    EARNED,
    HISTORY,
    LENGTH,
    LEXICON_STATE,
    MASS,
    NEURAL_LM,
    NEURAL_STATE,
    PHRASE,
    PREFIX,
    TOKEN_LM,
    TOKEN_STATE,
    WORD_LM,
    WORD_STATE,
    WORDS,
    Rows,
)


def score_ends(rows: Rows, knowledge: Knowledge) -> None:
    """Asks the neural model for the ends of all utterances' hypotheses in one call. It remembers the answers."""
    if knowledge.neural_lm is None:
        return
    active = (rows.ints[PREFIX] >= 0) & (rows.floats[MASS] > -np.inf)
    if knowledge.automaton is not None:
        active &= knowledge.automaton.complete[rows.ints[LEXICON_STATE]]
    if active.any():
        knowledge.neural_lm.final(np.unique(rows.ints[NEURAL_STATE][active]))


def hypotheses(rows: Rows, utterance: int, knowledge: Knowledge, limit: int) -> list[Hypothesis]:
    """Returns the best hypotheses of an utterance that end here, best first.

    With a lexicon, those with an unfinished word are left out. Equal scores are ordered by tokens, then words.
    """
    ints, floats = rows.ints[:, utterance], rows.floats[:, utterance]
    is_complete = (ints[PREFIX] >= 0) & (floats[MASS] > -np.inf)
    if knowledge.automaton is not None:
        is_complete &= knowledge.automaton.complete[ints[LEXICON_STATE]]
    ints, floats = ints[:, is_complete], floats[:, is_complete]
    options = knowledge.options
    parts = {TOKEN_LM: floats[TOKEN_LM], WORD_LM: floats[WORD_LM], NEURAL_LM: floats[NEURAL_LM]}
    for part, model, state, weight in (
        (TOKEN_LM, knowledge.token_lm, TOKEN_STATE, options.alpha),
        (WORD_LM, knowledge.word_lm, WORD_STATE, options.gamma),
        (NEURAL_LM, knowledge.neural_lm, NEURAL_STATE, options.gamma),
    ):
        if model is not None and is_complete.any():
            parts[part] = parts[part] + weighed(weight, model.final(ints[state]))
    boost = np.zeros(ints.shape[1])
    if knowledge.phrases is not None:
        boost = options.boost_score * (ints[EARNED] + knowledge.phrases.at_end[ints[PHRASE]])
    bonus = options.beta * ints[LENGTH]
    if knowledge.lexicon is not None:
        bonus = bonus + options.word_bonus * ints[WORDS]
    scores = floats[MASS] + (parts[TOKEN_LM] + parts[WORD_LM] + parts[NEURAL_LM]) + bonus + boost
    possible = np.flatnonzero(scores > -np.inf)
    if len(possible) > limit:
        lowest = np.partition(scores[possible], len(possible) - limit)[len(possible) - limit]
        possible = possible[scores[possible] >= lowest]
    words = None if knowledge.lexicon is None else knowledge.lexicon.words
    results = [
        Hypothesis(
            rows.prefixes.sequence(int(ints[PREFIX, row])),
            None if words is None else tuple(words[w] for w in rows.histories.sequence(int(ints[HISTORY, row]))),
            float(floats[MASS, row]),
            float(parts[TOKEN_LM][row]),
            float(parts[WORD_LM][row]),
            float(parts[NEURAL_LM][row]),
            float(bonus[row]),
            float(boost[row]),
        )
        for row in possible.tolist()
    ]
    results.sort(key=lambda each: (-each.score, each.tokens, each.words or ()))
    return results[:limit]
