"""Scores of texts by a language model: the tokens of each text, and the definition of its log-probability.

ln P(text) is the sum of ln P of its tokens, the first one after the token that begins texts (bos), or that ends them
(eos) if the tokenizer has no other; no division by length. A runtime computes the log-probabilities of rows of tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from workbench.core.errors import BadInput
from workbench.core.finite import nan_logits_error
from workbench.families.language.causal_lm import CausalLmModel
from workbench.session.values import TextScore

ScoreRows = Callable[[Sequence[Sequence[int]]], Sequence[np.ndarray]]
"""Returns the log-probabilities of each row's tokens after the first (see `Language.score`)."""


def scored(model: CausalLmModel, texts: Sequence[str], end: bool, score_rows: ScoreRows) -> list[TextScore]:
    """Returns the scores of texts (see `ScoresTexts.score_texts`); equal texts are computed once.

    Raises `NotFinite` for log-probabilities that are NaN.
    """
    begin, last = _edges(model)
    numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    rows = [[begin, *model.tokenizer.encode_plain(text), *([last] if end else [])] for text in numbers]
    for row, text in zip(rows, numbers, strict=True):
        _check_length(model, len(row) - 1 - end, text)
    scored_rows = [number for number, row in enumerate(rows) if len(row) > 1]
    log_probs = dict(
        zip(scored_rows, score_rows([rows[number] for number in scored_rows]) if scored_rows else (), strict=True)
    )
    scores = [_score(row, log_probs.get(number, np.zeros(0)), end) for number, row in enumerate(rows)]
    return [scores[numbers[text]] for text in texts]


def _score(row: Sequence[int], logprobs: np.ndarray, end: bool) -> TextScore:
    if np.isnan(logprobs).any():
        raise nan_logits_error()
    count = len(row) - 1 - end
    ids = np.array(row[1 : 1 + count], dtype=np.int64)
    return TextScore(ids, logprobs[:count].astype(np.float64), float(logprobs[count]) if end else None)


def _edges(model: CausalLmModel) -> tuple[int, int]:
    """Returns the ids of the token before a text and of the one after it."""
    special = model.tokenizer.special_ids
    stops = model.language.stop_ids
    last = special.get("eos", stops[0] if stops else None)
    if last is None:
        raise BadInput(f"{model.language.directory.name} names no token that ends a text (eos); texts cannot be scored")
    return special.get("bos", last), last


def _check_length(model: CausalLmModel, tokens: int, text: str) -> None:
    max_tokens = model.language.context - 1  # one position is that of the token before the text
    if tokens > max_tokens:
        raise BadInput(
            f"the text {text[:40]!r}... has {tokens} tokens; expected at most {max_tokens}, which the context of "
            f"{model.language.directory.name} has room for"
        )
