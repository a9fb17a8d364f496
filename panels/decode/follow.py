"""Searches once more with a record of every step, and looks for what a wider search would have found.

It makes the value of the view that follows a search. It knows neither Gradio nor HTML.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from panels.decode.hypotheses import text_of
from panels.decode.record_view import Followed, find_loss, search_value
from panels.decode.run import Decodings, Row
from workbench.decoding.ctc_beam.decoder import CtcDecoder

MAX_FRAMES = 600  # frames of a recording that are followed; more would take long to search and to send
WIDER, WIDEST = 8, 512  # the wider search keeps WIDER times as many hypotheses, at most WIDEST
SMALL_VOCABULARY, WIDE_TOKENS = 200, 40  # in larger vocabularies, it tries WIDE_TOKENS tokens in each frame


def follow(decodings: Decodings, row: Row) -> dict[str, Any]:
    """Returns the value of the view for a row's search. Raises `BadInput` if the run did not get that far."""
    decoder, logits, layout = decodings.search_of(row)
    notes = []
    if len(logits) > MAX_FRAMES:
        logits = logits[:MAX_FRAMES]
        notes.append(f"The first {MAX_FRAMES} frames are shown, as if the recording ended there.")
    record = decoder.explain(logits)
    text = text_of(record.hypotheses[0], layout.pieces) if record.hypotheses else ""
    loss = find_loss(record, wider_search(decoder).decode([logits])[0])
    times = layout.frame_seconds, layout.start_seconds
    followed = Followed(record, layout.pieces, layout.blank, *times, loss, tuple(notes))
    return search_value(followed, text)


def wider_search(decoder: CtcDecoder) -> CtcDecoder:
    """Returns a search with the same models that keeps more hypotheses and has no threshold for scores."""
    beam = max(decoder.options.beam_size, min(WIDER * decoder.options.beam_size, WIDEST))
    tokens_per_frame = (
        None if decoder.vocabulary <= SMALL_VOCABULARY else max(decoder.options.tokens_per_frame or 0, WIDE_TOKENS)
    )
    return decoder.with_options(
        replace(decoder.options, beam_size=beam, nbest=1, threshold=None, tokens_per_frame=tokens_per_frame)
    )
