"""Shows transcripts, texts and answers as HTML in a notebook. The `_repr_html_` methods of the values call it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from workbench.display.html import Html, card, element, facts, folded, notes, table
from workbench.display.pictures import picture
from workbench.display.sound import player
from workbench.display.timeline import timeline
from workbench.display.words import duration, speed
from workbench.session.conversation import Answer
from workbench.session.values import Alternative, Generation, Segment, Transcript
from workbench.system.memory import size

MOST_CODE_ROWS = 2000  # codec rows in a picture


def transcript_html(found: Transcript) -> str:
    """Returns the text, the tokens at their times, the segments and the hypotheses of a transcript."""
    title = f"Transcript by {_made_by(found)}"
    about = facts(
        f"{found.audio_seconds:.2f} s of audio",
        f"computed in {duration(found.compute_seconds)}",
        speed(found.compute_seconds, found.audio_seconds),
        _loaded(found),
        f"language {found.language}" if found.language else None,
        *(f"{name}: {value}" for name, value in found.tags.items()),
    )
    tokens = [token for segment in found.segments for token in segment.tokens]
    marks = [(each.start, each.end, each.text) for each in tokens if each.start is not None and each.end is not None]
    marks = marks or [(each.start, each.end, each.text) for each in found.segments if len(found.segments) > 1]
    parts = [element("p", found.text or "(no words)", class_="text"), timeline(marks, found.audio_seconds)]
    if len(found.segments) > 1:
        parts.append(_segments(found.segments))
    if found.hypotheses:
        parts.append(hypothesis_table([(each.text, each.score, each.acoustic, each.lm) for each in found.hypotheses]))
    return card(title, *parts, about, notes((*found.notes, *([found.doubt.sentence] if found.doubt else []))))


def _segments(segments: Sequence[Segment]) -> Html:
    tagged = any(each.tags for each in segments)
    rows: list[tuple[Any, ...]] = [
        (f"{each.start:.2f}", f"{each.end:.2f}", each.text, *([", ".join(each.tags.values())] if tagged else []))
        for each in segments
    ]
    return table(("start s", "end s", "text", *(["tags"] if tagged else [])), rows, words=(2, 3))


def hypothesis_table(found: Sequence[tuple[str, float, float, float]]) -> Html:
    """Returns hypotheses as a table, best first.

    Args:
        found: (text, score, acoustic score, score of all language models) of each hypothesis. The table's bonus is the
            rest of the score: the bonus for tokens, words and phrases.
    """
    rows = []
    for place, (text, score, acoustic, lm) in enumerate(found, 1):
        bonus = score - acoustic - lm
        # + 0.0 turns the -0 that rounding leaves into 0
        rows.append((place, text, *(f"{round(each, 3) + 0.0:.3f}" for each in (score, acoustic, lm, bonus))))
    return table(("", "hypothesis", "score", "acoustic", "language models", "bonus"), rows, words=(1,))


def hypotheses_html(found: Sequence[tuple[str, float, float, float]], title: str) -> str:
    """Returns the results of a beam search as a card; see `hypothesis_table`."""
    if not found:
        return card(title, element("p", "no hypotheses", class_="quiet"))
    return card(title, hypothesis_table(found), facts("natural logarithms; best first"))


def generation_html(found: Generation) -> str:
    """Returns the text of a language model, and the alternatives of each token if there are any."""
    speed_said = f"{len(found.tokens) / found.compute_seconds:.0f} tokens/s" if found.compute_seconds > 0 else None
    about = facts(
        f"{len(found.tokens)} tokens after a prompt of {found.prompt_tokens}",
        f"ended by {_ENDS.get(found.finish, found.finish)}",
        f"computed in {duration(found.compute_seconds)}",
        speed_said,
        _loaded(found),
    )
    text = element("p", found.text or "(nothing)", class_="text")
    parts = [folded("Alternatives of each token", _alternatives(found.alternatives))] if found.alternatives else []
    return card(f"Text by {_made_by(found)}", text, *parts, about, notes(found.notes))


def _alternatives(steps: Sequence[Sequence[Alternative]]) -> Html:
    most = max(map(len, steps), default=0)
    rows = [
        (place, *(f"{each.text!r} {np.exp(each.logprob):.1%}" for each in step), *[""] * (most - len(step)))
        for place, step in enumerate(steps)
    ]
    ranks = [f"{rank}." for rank in range(1, most + 1)]
    return table(("step", *ranks), rows, words=tuple(range(1, most + 1)))


def answer_html(found: Answer) -> str:
    """Returns the text and the sound of an answer, and a picture of its codec streams."""
    sound = found.audio is not None and len(found.audio) > 0
    about = facts(
        f"{found.audio_seconds:.2f} s of audio at {found.sample_rate} Hz" if sound else None,
        f"{len(found.token_ids)} positions after a prompt of {found.prompt_rows}",
        f"ended by {_ENDS.get(found.finish, found.finish)}",
        f"computed in {duration(found.compute_seconds)}",
        speed(found.compute_seconds, found.audio_seconds),
        _loaded(found),
    )
    parts = [element("p", found.text, class_="text")] if found.text else []
    if found.audio is not None and found.sample_rate and sound:
        parts.append(player(found.audio, found.sample_rate, "the answer"))
    if found.streams is not None and len(found.streams):
        parts.append(_streams(found.streams, found.layout))
    if not parts:
        parts.append(element("p", "(nothing)", class_="text"))
    return card(f"Answer of {_made_by(found)}", *parts, about, notes(found.notes))


def _streams(streams: np.ndarray, layout: Any) -> Html:
    """Returns a picture of all streams' codes, in the delay pattern of the generation."""

    def draw() -> Any:
        from workbench.plots.codes import codes_figure

        return codes_figure(_codes(streams, layout), width=7.0)

    rows, count = streams.shape
    caption = f"{rows} rows of {count} codec streams; stream n runs n rows behind stream 0"
    return picture(draw, f"the codes of {count} streams over {rows} rows", caption)


def _codes(streams: np.ndarray, layout: Any) -> np.ndarray:
    """Returns codes counted from 0 in each stream, and -1 for pads; ids as they are where the layout is unknown."""
    shown = streams[:MOST_CODE_ROWS]
    if not layout or not {"codec_first", "layer_size"} <= set(layout):
        return shown
    pads = layout["codec_first"] + layout["layer_size"] * np.arange(shown.shape[1])
    codes: np.ndarray = shown - pads - 1
    return codes


_ENDS = {"stop": "the model", "length": "a limit of length", "cancelled": "somebody who stopped it"}


def _made_by(found: Transcript | Generation | Answer) -> str:
    return " ".join(filter(None, (found.model, "on", found.runtime, found.quantization)))


def _loaded(found: Transcript | Generation | Answer) -> str:
    memory = f", {size(found.memory_bytes)} of memory" if found.memory_bytes else ""
    return f"loaded in {duration(found.load_seconds)}{memory}" if found.load_seconds else memory.removeprefix(", ")
