"""Writes the answer to a chat completion in OpenAI's form: whole, or as chunks of a stream.

Where a request asks for speech, the text of the answer is the transcript of its speech. `return_token_ids` adds what
OpenAI's form has no place for: the ids of all streams, and under `speech_workbench` the options that were used, the
length of the prompt and the layout of the ids. The option `probabilities` adds `speech_workbench` too, which has them.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import uuid4

import numpy as np

from workbench.core.errors import WorkbenchError
from workbench.openai_api.chat_request import ChatRequest
from workbench.openai_api.errors import error_answer
from workbench.openai_api.kept_answers import KeptAnswers, new_audio_id
from workbench.openai_api.logprobs import chat_entry
from workbench.openai_api.sound_formats import PCM, encode_sound
from workbench.session.conversation import Answer, AnswerStart, AudioPiece, ConversationEvent, plain_probabilities
from workbench.session.values import Piece

NO_TEXT = "the answer is speech alone, so it has no transcript"
WITHOUT_PADDING = 3  # samples of 16 bits, whose base64 has no padding; clients join the texts of all deltas
DONE = "data: [DONE]\n\n"  # the last event of a stream


class ChatAnswer:
    """The answer to one request. `chunks` takes all events of its conversation, `whole` only the last one."""

    def __init__(self, request: ChatRequest, answers: KeptAnswers):
        self.request, self._answers = request, answers
        self.id, self.created = f"chatcmpl-{uuid4().hex}", int(time.time())
        self._audio_id = new_audio_id()
        self._id_sent = self._rate_sent = False  # whether the stream has told the id of the audio, and its sample rate
        self._held_samples = np.empty(0, np.float32)  # generated, and not yet sent

    def whole(self, answer: Answer, pieces: Sequence[Piece] = ()) -> dict[str, Any]:
        """Returns the `chat.completion` of a complete answer.

        Args:
            pieces: its tokens, for a request that asks for log-probabilities.
        """
        request = self.request
        message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None, "audio": None}
        if not request.wants_speech:
            message["content"] = answer.text
        if request.wants_speech or answer.audio is not None:
            message["audio"] = self._audio(answer)
        choice: dict[str, Any] = {"index": 0, "message": message, "logprobs": None, "finish_reason": answer.finish}
        choice["logprobs"] = self._logprobs(pieces)
        found = self._frame("chat.completion", [choice])
        found["usage"] = usage(answer)
        if notes := self._notes(answer):
            found["notes"] = notes
        if request.token_ids:
            choice["token_ids"] = list(answer.token_ids)
            choice["streams"] = None if answer.streams is None else answer.streams.tolist()
        if self._has_inside(answer):
            found["speech_workbench"] = _inside(answer)
        return found

    def chunks(self, event: ConversationEvent) -> list[dict[str, Any]]:
        """Returns the `chat.completion.chunk` objects for the next event of the conversation."""
        if isinstance(event, AnswerStart):
            return [self._first(event)]
        if isinstance(event, Piece):
            return self._text(event)
        if isinstance(event, AudioPiece):
            return self._speech(event)
        return self._last(event)

    def _first(self, event: AnswerStart) -> dict[str, Any]:
        content = None if self.request.wants_speech else ""
        first = self._chunk({"role": "assistant", "content": content, "refusal": None})
        if self.request.token_ids:
            first["speech_workbench"] = _inside(event)
        return first

    def _text(self, piece: Piece) -> list[dict[str, Any]]:
        delta: dict[str, Any] = {}
        if piece.text:
            delta = self._audio_delta(transcript=piece.text) if self.request.wants_speech else {"content": piece.text}
        ids = list(piece.tokens) if self.request.token_ids else []
        logprobs = self._logprobs([piece])
        extra_fields = {**({"token_ids": ids} if ids else {}), **({"logprobs": logprobs} if logprobs else {})}
        return [self._chunk(delta, None, **extra_fields)] if delta or extra_fields else []

    def _speech(self, piece: AudioPiece) -> list[dict[str, Any]]:
        audio_fields: dict[str, Any] = {} if self._rate_sent else {"sample_rate": piece.sample_rate}
        self._rate_sent = True
        samples = np.concatenate([self._held_samples, piece.samples])
        ready = len(samples) // WITHOUT_PADDING * WITHOUT_PADDING
        self._held_samples = samples[ready:]
        if ready:
            audio_fields["data"] = _encoded(encode_sound(samples[:ready], piece.sample_rate, PCM))
        delta = self._audio_delta(**audio_fields) if audio_fields else {}
        rows = piece.streams if self.request.token_ids else None
        if rows is None or not len(rows):
            return [self._chunk(delta)] if delta else []
        return [self._chunk(delta, token_ids=rows[:, 0].tolist(), streams=rows.tolist())]

    def _last(self, answer: Answer) -> list[dict[str, Any]]:
        found = []
        if self.request.wants_speech or answer.audio is not None:
            rest = encode_sound(self._held_samples, answer.sample_rate or 0, PCM)
            data = {"data": _encoded(rest)} if rest else {}
            found.append(self._chunk(self._audio_delta(**data, expires_at=self._keep(answer))))
        end = self._chunk({}, finish_reason=answer.finish)
        if notes := self._notes(answer):
            end["notes"] = notes
        if self._has_inside(answer):
            end["speech_workbench"] = _inside(answer)
        found.append(end)
        if self.request.include_usage:
            found.append({**self._frame("chat.completion.chunk", []), "usage": usage(answer)})
        return found

    def _audio(self, answer: Answer) -> dict[str, Any]:
        samples = np.empty(0, np.float32) if answer.audio is None else answer.audio
        rate = answer.sample_rate
        return {
            "id": self._audio_id,
            "data": _encoded(encode_sound(samples, rate, self.request.format)) if rate else "",
            "expires_at": self._keep(answer),
            "transcript": answer.text if self.request.wants_speech else "",
            "sample_rate": rate,
        }

    def _audio_delta(self, **audio_fields: Any) -> dict[str, Any]:
        """Returns a delta of the audio. Clients join the texts of all deltas, so only one of them has the id."""
        id_fields = {} if self._id_sent else {"id": self._audio_id}
        self._id_sent = True
        return {"audio": {**id_fields, **audio_fields}}

    def _keep(self, answer: Answer) -> int:
        return self._answers.keep(self._audio_id, answer.text, answer.streams, answer.speaks_first)

    def _logprobs(self, pieces: Sequence[Piece]) -> dict[str, Any] | None:
        if not self.request.extensions.get("logprobs"):
            return None
        entries = [chat_entry(piece, self.request.extensions.get("top_logprobs", 0)) for piece in pieces]
        found = [entry for entry in entries if entry is not None]
        return {"content": found, "refusal": None} if found else None

    def _has_inside(self, answer: Answer) -> bool:
        return self.request.token_ids or answer.probabilities is not None

    def _notes(self, answer: Answer) -> list[str]:
        only_speech = self.request.modalities == "audio" and not answer.text and answer.audio is not None
        return [*self.request.notes, *answer.notes, *([NO_TEXT] if only_speech else [])]

    def _chunk(self, delta: Mapping[str, Any], finish_reason: str | None = None, **extra_fields: Any) -> dict[str, Any]:
        choice = {"index": 0, "delta": dict(delta), "logprobs": None, "finish_reason": finish_reason, **extra_fields}
        return self._frame("chat.completion.chunk", [choice])

    def _frame(self, kind: str, choices: list[Any]) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.request.model, "choices": choices}


def usage(answer: Answer) -> dict[str, Any]:
    """Returns the number of positions of prompt and answer; a row of speech is one position."""
    rows, length = 0 if answer.streams is None else len(answer.streams), len(answer.token_ids)
    return {
        "prompt_tokens": answer.prompt_rows,
        "completion_tokens": length,
        "total_tokens": answer.prompt_rows + length,
        "completion_tokens_details": {"audio_tokens": rows},
    }


def events(chunks: Iterable[Mapping[str, Any]]) -> str:
    """Returns server-sent events, one for each chunk."""
    return "".join(f"data: {json.dumps(each, ensure_ascii=False)}\n\n" for each in chunks)


def error_event(error: WorkbenchError) -> str:
    """Returns the event for an error in the middle of a stream; nothing follows it."""
    return events([error_answer(error)[1]])


def _inside(event: AnswerStart | Answer) -> dict[str, Any]:
    layout = None if event.layout is None else dict(event.layout)
    fields: dict[str, Any] = {"prompt_rows": event.prompt_rows, "layout": layout, "settings": dict(event.settings)}
    if isinstance(event, Answer):
        fields["probabilities"] = plain_probabilities(event.probabilities)
    return {**fields, "notes": list(event.notes)}


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")
