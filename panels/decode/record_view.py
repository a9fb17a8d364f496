"""The record of a search as the value of the view that follows it frame by frame in the browser (assets/search.js).

The value is plain data. This file knows neither Gradio nor HTML, and runs no search.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from panels.decode.heads import has_separate_tokens, marks_words
from workbench.decoding.ctc_alignment import best_alignment
from workbench.decoding.ctc_beam.hypothesis import Hypothesis
from workbench.decoding.ctc_beam.record import Scores, SearchRecord
from workbench.decoding.rivals import TERMS
from workbench.families.vocabularies.funasr import WORD_START

MAX_LABELS = 40  # tokens in the picture
WORTH_A_ROW = 0.02  # a token is in the picture if it has this probability in some frame
MAX_LINES = 16  # active hypotheses of a frame that are sent
MAX_PRUNED = 6
MAX_MOMENTS = 12
BLANK = "blank"
RECORDED = TERMS | {"look_ahead": "look-ahead"}


@dataclass(frozen=True)
class Loss:
    """A hypothesis of a wider search that is better than the result, and the frame in which this search dropped it."""

    hypothesis: Hypothesis
    frame: int
    id: int | None  # the pruned hypothesis of that frame that it grows from; None if that was not recorded
    rank: int | None  # its rank among the pruned hypotheses
    lead: float  # how much higher its score is than the result's


@dataclass(frozen=True)
class Moment:
    """A frame that is worth a look, and why."""

    frame: int
    sentence: str


@dataclass(frozen=True)
class Followed:
    """A search to follow, with the names of its tokens and times."""

    record: SearchRecord
    pieces: Sequence[str]
    blank: int
    frame_seconds: float | None = None
    begin: float = 0.0  # seconds from the start of the recording to the first frame
    loss: Loss | None = None
    notes: tuple[str, ...] = field(default=())


def search_value(followed: Followed, text: str) -> dict[str, Any]:
    """Returns the value of the view; `text` is what the search found."""
    record, pieces = followed.record, followed.pieces
    names = [field for field in RECORDED if field == "acoustic" or _is_used(record, field)]
    is_spaced = has_separate_tokens(pieces)
    ids: dict[int, int] = {}
    prefixes: list[list[Any]] = []

    def number(hypothesis: int) -> int:
        """Returns the index of a hypothesis among those that are sent; its ancestors come before it."""
        chain = []
        while hypothesis >= 0 and hypothesis not in ids:
            chain.append(hypothesis)
            hypothesis = int(record.parents[hypothesis])
        for each in reversed(chain):
            parent = int(record.parents[each])
            ids[each] = len(prefixes)
            prefixes.append([ids.get(parent, -1), _label(record, each, pieces, is_spaced)])
        return ids[chain[0]] if chain else ids[hypothesis]

    number(_root(record))  # comes first
    frames = []
    for frame in record.frames:
        active = _lines(frame.active, names, number, MAX_LINES)
        frames.append(
            {
                "active": active,
                "pruned": _lines(frame.pruned, names, number, MAX_PRUNED),
                "more": int(frame.active_count) - len(active),
                "dropped": int(frame.pruned_count),
                "alike": _homophones(record, frame.active.ids[:MAX_LINES], number),
            }
        )
    best = record.hypotheses[0] if record.hypotheses else None
    rows, labels = _rows(record, pieces, followed.blank, best)
    loss = followed.loss
    moments = [*([Moment(loss.frame, _loss_sentence(loss, pieces, text))] if loss else []), *decisions(record, pieces)]
    return {
        "labels": labels,
        "grid": base64.b64encode(_grey(record.log_probs[:, rows]).tobytes()).decode("ascii"),
        "path": _path(record, rows, followed.blank, best),
        "seconds": followed.frame_seconds,
        "begin": followed.begin,
        "terms": [RECORDED[name] for name in names],
        "prefixes": prefixes,
        "frames": frames,
        "moments": [{"frame": each.frame, "sentence": each.sentence} for each in moments[:MAX_MOMENTS]],
        "lost": {"frame": loss.frame, "id": ids.get(loss.id, -1)} if loss and loss.id is not None else None,
        "at": moments[0].frame if moments else len(frames) // 2,
        "caption": "Probabilities of the CTC head, full colour is likely; the line is the best alignment of the result."
        + "".join(f" {note}" for note in followed.notes),
        "alternative": f"Probabilities of {len(labels)} tokens over {len(frames)} frames, with the best alignment of: "
        f"{text or 'nothing'}",
    }


def _root(record: SearchRecord) -> int:
    return int(np.flatnonzero(record.parents < 0)[0])


def _is_used(record: SearchRecord, name: str) -> bool:
    return any(np.any(getattr(each, name)) for frame in record.frames for each in (frame.active, frame.pruned))


def _lines(scores: Scores, names: Sequence[str], number: Callable[[int], int], limit: int) -> list[list[float]]:
    """Returns hypotheses as [index, terms]; minus infinity, which JSON lacks, becomes a very low number."""
    terms = [np.maximum(getattr(scores, name)[:limit], -1e9).round(4).tolist() for name in names]
    return [[number(int(hypothesis)), *line] for hypothesis, *line in zip(scores.ids[:limit], *terms)]


def _label(record: SearchRecord, hypothesis: int, pieces: Sequence[str], is_spaced: bool) -> str:
    """Returns what a hypothesis adds to the one before it: its token, and the word that it completes."""
    token = int(record.tokens[hypothesis])
    token_text = pieces[token].replace(WORD_START, " ") if token >= 0 else ""
    if token_text and is_spaced:
        token_text = f" {token_text}"
    if record.words is None or token < 0:
        return token_text
    words, parent_words = record.words[hypothesis], record.words[int(record.parents[hypothesis])]
    completed_words = words[len(parent_words) :]
    if not completed_words:
        return token_text
    return (
        f" {completed_words[-1]}"
        if completed_words == (token_text.strip(),)
        else f"{token_text}⟨{' '.join(completed_words)}⟩"
    )


def _homophones(record: SearchRecord, ids: np.ndarray, number: Callable[[int], int]) -> list[int]:
    """Returns the active hypotheses that share their tokens with another one and have other words."""
    if record.words is None:
        return []
    groups: dict[tuple[int, ...], list[int]] = {}
    for each in ids:
        groups.setdefault(record.tokens_of(int(each)), []).append(int(each))
    return [number(each) for group in groups.values() if len(group) > 1 for each in group]


def _rows(
    record: SearchRecord, pieces: Sequence[str], blank: int, best: Hypothesis | None
) -> tuple[list[int], list[str]]:
    """Returns the tokens of the picture and their names: ordered by the frame in which each is likeliest, the blank
    last.
    """
    highest = np.exp(record.log_probs.max(axis=0)) if len(record.log_probs) else np.zeros(len(pieces))
    peaks = record.log_probs.argmax(axis=0) if len(record.log_probs) else np.zeros(len(pieces), int)
    result_tokens = [token for token in dict.fromkeys(best.tokens if best else ()) if token != blank]
    likely_tokens = [int(token) for token in np.argsort(-highest) if highest[token] >= WORTH_A_ROW]
    shown_tokens = [token for token in dict.fromkeys([*result_tokens, *likely_tokens]) if token != blank][
        : MAX_LABELS - 1
    ]
    rows = [*sorted(shown_tokens, key=lambda token: int(peaks[token])), blank]
    return rows, [BLANK if token == blank else pieces[token].replace(WORD_START, "") or "␣" for token in rows]


def _grey(log_probs: np.ndarray) -> np.ndarray:
    """Returns log-probabilities [frames, tokens] as shades uint8 [tokens, frames]: the square roots of the
    probabilities, so that small ones are visible.
    """
    shades: np.ndarray = np.rint(255 * np.exp(log_probs / 2)).clip(0, 255).astype(np.uint8)
    return np.ascontiguousarray(shades.T)


def _path(record: SearchRecord, rows: Sequence[int], blank: int, best: Hypothesis | None) -> list[int]:
    """Returns the row of the best alignment in each frame."""
    places = {token: row for row, token in enumerate(rows)}
    path = [places[blank]] * len(record.frames)
    for token in (best_alignment(record.log_probs, best.tokens, blank) if best else None) or ():
        path[token.first : token.end] = [places.get(token.id, places[blank])] * (token.end - token.first)
    return path


def units_of(tokens: Sequence[int], words: Sequence[str] | None, pieces: Sequence[str]) -> tuple[list[str], bool]:
    """Returns the words of a hypothesis, and whether the last one may still grow.

    Without a lexicon, a word begins with a piece that has the mark of a word's start; without such marks, each token is
    a word.
    """
    if words is not None:
        return list(words), False
    token_texts = [pieces[token] for token in tokens]
    if not marks_words(pieces):
        return token_texts, False
    words_of_tokens: list[str] = []
    for piece in token_texts:
        if piece.startswith(WORD_START) or not words_of_tokens:
            words_of_tokens.append(piece.removeprefix(WORD_START))
        else:
            words_of_tokens[-1] += piece
    return words_of_tokens, True


def decisions(record: SearchRecord, pieces: Sequence[str]) -> list[Moment]:
    """Returns the frames in which a word of the result replaces another word for good after a later word has begun.

    There, the later word decides.
    """
    if not record.hypotheses or not record.frames:
        return []
    best = record.hypotheses[0]
    final, _ = units_of(best.tokens, best.words, pieces)
    leaders = []
    for frame in record.frames:
        leader = int(frame.active.ids[0]) if len(frame.active.ids) else _root(record)
        words = None if record.words is None else record.words[leader]
        leaders.append(units_of(record.tokens_of(leader), words, pieces))
    moments = []
    for place, word in enumerate(final):
        last_wrong_frame = None
        for number, (units, grows) in enumerate(leaders):
            complete_units = len(units) - (1 if grows else 0)  # the last word may still grow
            if place < complete_units and units[place] != word:
                last_wrong_frame = number
        if last_wrong_frame is None or last_wrong_frame + 1 >= len(leaders):
            continue
        units_before, units_after = leaders[last_wrong_frame][0], leaders[last_wrong_frame + 1][0]
        if len(units_after) <= place + 1 or units_after[place] != word:
            continue
        moments.append(
            Moment(
                last_wrong_frame + 1,
                f"“{word}” takes the place of “{units_before[place]}” as word {place + 1}; “{units_after[-1]}” decides",
            )
        )
    if leaders[-1][0] != final and not _leads(record, best):
        leading_text = " ".join(leaders[-1][0]) or "nothing"
        moments.append(
            Moment(len(leaders) - 1, f"“{leading_text}” leads here; the end of the sentence decides for the result")
        )
    return sorted(moments, key=lambda each: each.frame)


def _leads(record: SearchRecord, best: Hypothesis) -> bool:
    """Returns whether the result also has the highest score in the last frame, perhaps together with others."""
    active = record.frames[-1].active
    for hypothesis, total in zip(active.ids, active.total):
        words = None if record.words is None else record.words[int(hypothesis)]
        if record.tokens_of(int(hypothesis)) == best.tokens and words == best.words:
            return bool(total >= active.total[0] - 1e-9)
    return False


def find_loss(record: SearchRecord, wider_hypotheses: Sequence[Hypothesis]) -> Loss | None:
    """Returns the best hypothesis of a wider search with the frame in which this search dropped it; None if the wider
    search found nothing better.
    """
    if not wider_hypotheses or not record.hypotheses:
        return None
    target, best = wider_hypotheses[0], record.hypotheses[0]
    if (target.tokens, target.words) == (best.tokens, best.words) or target.score <= best.score + 1e-9:
        return None
    cache: dict[int, bool] = {}

    def leads_to_target(hypothesis: int) -> bool:
        if hypothesis not in cache:
            tokens = record.tokens_of(hypothesis)
            words = () if record.words is None else record.words[hypothesis]
            target_words = () if target.words is None else target.words
            cache[hypothesis] = target.tokens[: len(tokens)] == tokens and target_words[: len(words)] == words
        return cache[hypothesis]

    for number, frame in enumerate(record.frames):
        if any(leads_to_target(int(each)) for each in frame.active.ids):
            continue
        if frame.active_count > len(frame.active.ids):
            continue  # not all active hypotheses are recorded, and it may be among the others
        rank = next((place for place, each in enumerate(frame.pruned.ids) if leads_to_target(int(each))), None)
        hypothesis_id = None if rank is None else int(frame.pruned.ids[rank])
        return Loss(target, number, hypothesis_id, rank, target.score - best.score)
    return None


def _loss_sentence(loss: Loss, pieces: Sequence[str], text: str) -> str:
    words, _ = units_of(loss.hypothesis.tokens, loss.hypothesis.words, pieces)
    hypothesis_text = " ".join(words) or "nothing"
    return f"“{hypothesis_text}” would have won by {loss.lead:.2f}, and was pruned here: a wider beam keeps it"
