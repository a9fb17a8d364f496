"""Writes a transcript in the forms of OpenAI's API: JSON, text, subtitles, verbose JSON, or the events of a stream.

Numbers that no model computes are null: a segment's average log-probability, and its probability of no speech.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

from workbench.openai_api.transcription_request import JSON, SRT, TEXT, VTT, TranscriptionRequest
from workbench.session.values import Partial, Segment, Transcript
from workbench.text.exports import FORMATS
from workbench.text.scripts import join_texts
from workbench.text.subtitles import timed_words

NO_WORDS = "this model gives no times of words, so words is empty"
DELTA, DONE_EVENT = "transcript.text.delta", "transcript.text.done"
TYPES = {JSON: "application/json", TEXT: "text/plain", SRT: "application/x-subrip", VTT: "text/vtt"}


def transcription(transcript: Transcript, request: TranscriptionRequest) -> tuple[str, str]:
    """Returns (the body of the answer, its media type)."""
    if request.form in (TEXT, SRT, VTT):
        text = FORMATS["txt" if request.form == TEXT else request.form].write(transcript)
        return text, TYPES[request.form]
    if request.form == JSON:
        notes = {"notes": list(transcript.notes)} if transcript.notes else {}
        found: dict[str, Any] = {"text": transcript.text, "usage": usage(transcript), **notes}
    else:
        found = verbose(transcript, request)
    return json.dumps(found, ensure_ascii=False, allow_nan=False), TYPES[JSON]


def usage(transcript: Transcript) -> dict[str, Any]:
    """Returns the seconds of audio that a request had."""
    return {"type": "duration", "seconds": round(transcript.audio_seconds, 3)}


def verbose(transcript: Transcript, request: TranscriptionRequest) -> dict[str, Any]:
    """Returns a transcript as verbose JSON, with its notes. One more says if the model gives no times of words."""
    notes = list(transcript.notes)
    found: dict[str, Any] = {
        "task": "transcribe",
        "language": transcript.language,
        "duration": round(transcript.audio_seconds, 3),
        "text": transcript.text,
        "usage": usage(transcript),
    }
    if request.segments:
        found["segments"] = [
            _segment(number, segment, request.temperature) for number, segment in enumerate(transcript.segments)
        ]
    if request.words:
        found["words"] = [
            {"word": word, "start": round(start, 3), "end": round(end, 3)}
            for segment in transcript.segments
            for word, start, end in timed_words(segment)
        ]
        if transcript.text and not found["words"]:
            notes.append(NO_WORDS)
    if notes:
        found["notes"] = notes
    return found


def _segment(number: int, segment: Segment, temperature: float) -> Mapping[str, Any]:
    text = segment.text.encode()
    return {
        "id": number,
        "seek": 0,
        "start": round(segment.start, 3),
        "end": round(segment.end, 3),
        "text": segment.text,
        "tokens": [token.id for token in segment.tokens],
        "temperature": temperature,
        "avg_logprob": None,
        "compression_ratio": round(len(text) / len(zlib.compress(text)), 3) if text else 0.0,
        "no_speech_prob": None,
    }


class TranscriptionStream:
    """Turns the events of a session into the events of a stream. The deltas, joined, are the text of the last event,
    unless the model changed what it had written.
    """

    def __init__(self) -> None:
        self._finished: list[str] = []
        self._sent = ""

    def events(self, event: Any) -> list[dict[str, Any]]:
        """Returns the events to send for the next event of the session."""
        if isinstance(event, Segment):
            self._finished.append(event.text)
            return self._grown(join_texts(self._finished))
        if isinstance(event, Partial):
            return self._grown(join_texts([*self._finished, event.text]))
        if isinstance(event, Transcript):
            return [*self._grown(event.text), {"type": DONE_EVENT, "text": event.text}]
        return []

    def _grown(self, text: str) -> list[dict[str, Any]]:
        new = text[len(self._sent) :] if text.startswith(self._sent) else ""
        if not new:
            return []
        self._sent = text
        return [{"type": DELTA, "delta": new}]
