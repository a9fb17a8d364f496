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

MAX_CODE_ROWS = 2000  # codec rows in a picture


def transcript_html(transcript: Transcript) -> str:
    """Returns the text, the tokens at their times, the segments and the hypotheses of a transcript."""
    title = f"Transcript by {_made_by(transcript)}"
    about = facts(
        f"{transcript.audio_seconds:.2f} s of audio",
        f"computed in {duration(transcript.compute_seconds)}",
        speed(transcript.compute_seconds, transcript.audio_seconds),
        _loaded(transcript),
        f"language {transcript.language}" if transcript.language else None,
        *(f"{name}: {value}" for name, value in transcript.tags.items()),
    )
    tokens = [token for segment in transcript.segments for token in segment.tokens]
    marks = [(each.start, each.end, each.text) for each in tokens if each.start is not None and each.end is not None]
    marks = marks or [(each.start, each.end, each.text) for each in transcript.segments if len(transcript.segments) > 1]
    parts = [element("p", transcript.text or "(no words)", class_="text"), timeline(marks, transcript.audio_seconds)]
    if len(transcript.segments) > 1:
        parts.append(_segments(transcript.segments))
    if transcript.hypotheses:
        parts.append(
            hypothesis_table([(each.text, each.score, each.acoustic, each.lm) for each in transcript.hypotheses])
        )
    return card(
        title, *parts, about, notes((*transcript.notes, *([transcript.doubt.sentence] if transcript.doubt else [])))
    )


def _segments(segments: Sequence[Segment]) -> Html:
    tagged = any(each.tags for each in segments)
    rows: list[tuple[Any, ...]] = [
        (f"{each.start:.2f}", f"{each.end:.2f}", each.text, *([", ".join(each.tags.values())] if tagged else []))
        for each in segments
    ]
    return table(("start s", "end s", "text", *(["tags"] if tagged else [])), rows, words=(2, 3))


def hypothesis_table(hypotheses: Sequence[tuple[str, float, float, float]]) -> Html:
    """Returns hypotheses as a table, best first.

    Args:
        hypotheses: (text, score, acoustic score, score of all language models) of each hypothesis. The table's bonus is
            the rest of the score: the bonus for tokens, words and phrases.
    """
    rows = []
    for place, (text, score, acoustic, lm) in enumerate(hypotheses, 1):
        bonus = score - acoustic - lm
        # + 0.0 turns the -0 that rounding leaves into 0
        rows.append((place, text, *(f"{round(each, 3) + 0.0:.3f}" for each in (score, acoustic, lm, bonus))))
    return table(("", "hypothesis", "score", "acoustic", "language models", "bonus"), rows, words=(1,))


def hypotheses_html(hypotheses: Sequence[tuple[str, float, float, float]], title: str) -> str:
    """Returns the results of a beam search as a card; see `hypothesis_table`."""
    if not hypotheses:
        return card(title, element("p", "no hypotheses", class_="quiet"))
    return card(title, hypothesis_table(hypotheses), facts("natural logarithms; best first"))


def generation_html(generation: Generation) -> str:
    """Returns the text of a language model, and the alternatives of each token if there are any."""
    token_speed = (
        f"{len(generation.tokens) / generation.compute_seconds:.0f} tokens/s"
        if generation.compute_seconds > 0
        else None
    )
    about = facts(
        f"{len(generation.tokens)} tokens after a prompt of {generation.prompt_tokens}",
        f"ended by {_ENDS.get(generation.finish, generation.finish)}",
        f"computed in {duration(generation.compute_seconds)}",
        token_speed,
        _loaded(generation),
    )
    text = element("p", generation.text or "(nothing)", class_="text")
    parts = (
        [folded("Alternatives of each token", _alternatives(generation.alternatives))]
        if generation.alternatives
        else []
    )
    return card(f"Text by {_made_by(generation)}", text, *parts, about, notes(generation.notes))


def _alternatives(steps: Sequence[Sequence[Alternative]]) -> Html:
    width = max(map(len, steps), default=0)
    rows = [
        (place, *(f"{each.text!r} {np.exp(each.logprob):.1%}" for each in step), *[""] * (width - len(step)))
        for place, step in enumerate(steps)
    ]
    ranks = [f"{rank}." for rank in range(1, width + 1)]
    return table(("step", *ranks), rows, words=tuple(range(1, width + 1)))


def answer_html(answer: Answer) -> str:
    """Returns the text and the sound of an answer, and a picture of its codec streams."""
    sound = answer.audio is not None and len(answer.audio) > 0
    about = facts(
        f"{answer.audio_seconds:.2f} s of audio at {answer.sample_rate} Hz" if sound else None,
        f"{len(answer.token_ids)} positions after a prompt of {answer.prompt_rows}",
        f"ended by {_ENDS.get(answer.finish, answer.finish)}",
        f"computed in {duration(answer.compute_seconds)}",
        speed(answer.compute_seconds, answer.audio_seconds),
        _loaded(answer),
    )
    parts = [element("p", answer.text, class_="text")] if answer.text else []
    if answer.audio is not None and answer.sample_rate and sound:
        parts.append(player(answer.audio, answer.sample_rate, "the answer"))
    if answer.streams is not None and len(answer.streams):
        parts.append(_streams(answer.streams, answer.layout))
    if not parts:
        parts.append(element("p", "(nothing)", class_="text"))
    return card(f"Answer of {_made_by(answer)}", *parts, about, notes(answer.notes))


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
    rows = streams[:MAX_CODE_ROWS]
    if not layout or not {"codec_first", "layer_size"} <= set(layout):
        return rows
    pads = layout["codec_first"] + layout["layer_size"] * np.arange(rows.shape[1])
    codes: np.ndarray = rows - pads - 1
    return codes


_ENDS = {"stop": "the model", "length": "a limit of length", "cancelled": "somebody who stopped it"}


def _made_by(result: Transcript | Generation | Answer) -> str:
    return " ".join(filter(None, (result.model, "on", result.runtime, result.quantization)))


def _loaded(result: Transcript | Generation | Answer) -> str:
    memory = f", {size(result.memory_bytes)} of memory" if result.memory_bytes else ""
    return f"loaded in {duration(result.load_seconds)}{memory}" if result.load_seconds else memory.removeprefix(", ")
