"""A SpeechLM on a server that runs this project's plugin: text and recordings out, text, speech and all ids back.

The request is an ordinary chat completion of OpenAI's form, with the model's options as further fields. The server adds
what that form has no place for (see `workbench.openai_api.chat_answer`).
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import time
from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from workbench.core.errors import Unavailable
from workbench.core.options import build_options
from workbench.families.speechlm.model import SpeechLmOptions
from workbench.openai_api.sound_formats import PCM
from workbench.pipelines.conversation.spoken_messages import read_recording
from workbench.runtimes.vllm.remote.answers import ENDS
from workbench.runtimes.vllm.remote.client import Call, Client
from workbench.runtimes.vllm.remote.refusals import shortened, unexpected_answer_error
from workbench.runtimes.vllm.remote.service import CHAT, Service
from workbench.runtimes.vllm.remote.session import RemoteSession
from workbench.runtimes.vllm.remote.sound import FULL_SCALE, wav
from workbench.session.conversation import Answer, AnswerSoFar, AnswerStart, AudioPiece, ConversationEvent, Messages
from workbench.session.messages import Message, Part, TextPart, check_messages, where_of
from workbench.session.protocols import Converses
from workbench.session.values import Piece


class RemoteConversationSession(RemoteSession, Converses):
    """A SpeechLM on a server (see `workbench.session.protocols`). Several threads may call it.

    Raises `Unavailable` if the server offers no chats.
    """

    def __init__(self, model: str, client: Client, service: Service):
        if CHAT not in service.routes:
            raise Unavailable(f"the server {client.server.url} does not offer {CHAT} for {service.model}; expected it")
        super().__init__(model, client, service)

    def converse_stream(self, messages: Messages, **options: Any) -> Generator[ConversationEvent, None, None]:
        """See `Converses.converse_stream`. The server has the defaults of options that are not set."""
        client = self.client
        build_options(SpeechLmOptions, options, self.model)
        notes: list[str] = []
        sent_messages = [_message(message, number, notes) for number, message in enumerate(check_messages(messages))]
        body = {
            "model": self._service.model,
            "messages": sent_messages,
            "modalities": "auto",
            **{name: value for name, value in options.items() if value is not None},
            "audio": {"format": PCM},
            "stream": True,
            "return_token_ids": True,
        }
        start_time = time.perf_counter()
        reader = _ChunkReader(client, tuple(notes))
        answer = AnswerSoFar(self.model, self.runtime)
        reading_seconds = 0.0  # seconds until the server had read the messages
        with contextlib.closing(client.stream([Call(CHAT, body)])) as stream:
            for item in stream:
                if item is None:
                    if reader.started:
                        yield Piece("", ())  # a reader can only stop here
                    continue
                for event in reader.events(item[1]):
                    if isinstance(event, AnswerStart):
                        event = replace(event, load_seconds=self.load_seconds)
                        reading_seconds = time.perf_counter() - start_time
                    answer.add(event)
                    yield event
        yield reader.completed(answer.answer(reader.finish), reading_seconds)


class _ChunkReader:
    """Turns the chunks of one answer into events.

    Args:
        notes: on how the recordings were read here.
    """

    def __init__(self, client: Client, notes: tuple[str, ...]):
        self._server, self._notes = client.server, notes
        self.started = False
        self.finish = "length"
        self._rate = self._rows = 0
        self._server_notes: tuple[str, ...] = ()  # the server's notes
        self._probabilities: np.ndarray | None = None

    def events(self, chunk: Mapping[str, Any]) -> list[ConversationEvent]:
        """Returns the events of a chunk; raises `WorkbenchError` for one of another form."""
        try:
            return self._events(chunk)
        except (TypeError, ValueError, KeyError, AttributeError, IndexError, binascii.Error):
            raise unexpected_answer_error(
                self._server, f"with an event of another form ({shortened(str(chunk))})"
            ) from None

    def _events(self, chunk: Mapping[str, Any]) -> list[ConversationEvent]:
        extension = chunk.get("speech_workbench")
        events: list[ConversationEvent] = []
        if not self.started:
            if extension is None:
                raise unexpected_answer_error(
                    self._server, "without the ids of a SpeechLM; install this project there as well"
                )
            self.started = True
            notes = (*self._notes, *map(str, extension["notes"]))
            events.append(
                AnswerStart(extension["settings"], int(extension["prompt_rows"]), extension["layout"], notes=notes)
            )
        [choice] = chunk["choices"]
        delta = choice["delta"]
        audio = delta.get("audio") or {}
        ids = tuple(map(int, choice.get("token_ids") or ()))
        self._rate = int(audio.get("sample_rate") or self._rate)
        samples = _samples(audio.get("data") or "")
        rows = choice.get("streams")
        text = (delta.get("content") or "") + (audio.get("transcript") or "")
        if rows is not None or len(samples):
            streams = None if rows is None else np.array(rows, dtype=np.int64)
            if streams is not None and (streams.ndim != 2 or streams[:, 0].tolist() != list(ids)):
                raise ValueError
            self._rows += 0 if streams is None else len(streams)
            events.append(AudioPiece(samples, self._rate, self._rows, streams))
        elif text or ids:
            events.append(Piece(text, ids))
        if choice.get("finish_reason"):
            self.finish = ENDS[choice["finish_reason"]]
            fields = extension or {}
            self._server_notes = tuple(map(str, fields.get("notes") or ()))
            if (probabilities := fields.get("probabilities")) is not None:
                self._probabilities = np.array(probabilities, dtype=np.float64)
        return events

    def completed(self, answer: Answer, reading_seconds: float) -> Answer:
        """Returns the complete answer.

        Args:
            answer: the answer since the server had read the messages.
            reading_seconds: until then.
        """
        return replace(
            answer,
            compute_seconds=answer.compute_seconds + reading_seconds,
            first_text_seconds=_add_seconds(answer.first_text_seconds, reading_seconds),
            first_audio_seconds=_add_seconds(answer.first_audio_seconds, reading_seconds),
            probabilities=self._probabilities,
            notes=(*self._notes, *self._server_notes),
        )


def _add_seconds(seconds: float | None, reading_seconds: float) -> float | None:
    return None if seconds is None else seconds + reading_seconds


def _samples(data: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(data, validate=True), "<i2").astype(np.float32) / np.float32(FULL_SCALE)


def _message(message: Message, number: int, notes: list[str]) -> Mapping[str, Any]:
    """Returns a message as a server takes it; adds how its recordings were read to the notes."""
    parts = [_part(part, number, place, notes) for place, part in enumerate(message.parts)]
    return {"role": message.role, "content": parts}


def _part(part: Part, number: int, place: int, notes: list[str]) -> Mapping[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if part.streams is not None:
        return {"type": "audio", "streams": part.streams.tolist()}
    recording = read_recording(part, number, place, None)
    notes += [f"{where_of(number, place)}: {note}" for note in recording.notes]
    sound = base64.b64encode(wav(recording.samples)).decode("ascii")
    return {"type": "input_audio", "input_audio": {"data": sound, "format": "wav"}}
