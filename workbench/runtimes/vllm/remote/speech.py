"""Speech language models on a server: one request for each chunk of speech, many in parallel.

A server that accepts audio in chats gets the family's own prompt and returns tokens. vLLM's own classes of these models
accept only transcriptions: the server writes the prompt and returns text.
"""

from __future__ import annotations

import base64
import contextlib
import copy
import threading
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np

from workbench.core.errors import BadInput, Unavailable
from workbench.core.options import ListeningOptions, build_options, conversation_options_class
from workbench.families.speech_llm.instruction import DEFAULT_INSTRUCTION, Instruction
from workbench.pipelines.conversation.instructed_session import InstructedSession
from workbench.pipelines.recognition.recogniser import Recognition
from workbench.pipelines.recognition.speech_language import CUT_OFF, run_to_end
from workbench.runtimes.vllm.recogniser import PENALTY_NOTE
from workbench.runtimes.vllm.remote.answers import read_event
from workbench.runtimes.vllm.remote.client import Call, Client
from workbench.runtimes.vllm.remote.sampling import form_fields, sampling_fields, streaming_fields
from workbench.runtimes.vllm.remote.service import CHAT, TRANSCRIPTIONS, Service, pieces
from workbench.runtimes.vllm.remote.sound import wav
from workbench.runtimes.vllm.remote.wording import Wording
from workbench.session.conversation import ConversationEvent, Messages
from workbench.session.values import AudioSource, Event, Token
from workbench.trace.recorder import Stages
from workbench.trace.trace import OutputPath, StageFilter, StageSource, Trace

NO_TOKENS = "the server offers only transcriptions, with its own prompt, and does not send their tokens"
NO_STAGES = "a remote server does not show its stages; open the model on this machine to trace it"


class RemoteRecogniser:
    """A speech model on a server, as a `workbench.pipelines.recognition.recogniser.Recogniser`.

    Several threads may call it.

    Args:
        client: the connections; `close` closes them.
        service: the model on the server.
        wording: of the family.

    Raises `Unavailable` if the server offers neither chats nor transcriptions.
    """

    dtype = "as the server has it"
    # As in `workbench.pipelines.recognition.recogniser.BatchingRecogniser`: the server batches by itself.
    max_batch_size = 32

    def __init__(self, client: Client, service: Service, wording: Wording):
        if not service.routes & {CHAT, TRANSCRIPTIONS}:
            raise Unavailable(
                f"the server {client.server.url} offers neither {CHAT} nor {TRANSCRIPTIONS} for {service.model}; "
                "expected one of them"
            )
        self.client = client
        self.service = service
        self.wording = wording
        self._pieces: dict[int, str] = {}  # texts of the tokens seen so far
        self._pieces_lock = threading.Lock()
        self._instruction = DEFAULT_INSTRUCTION

    def instructed(self, instruction: Instruction) -> RemoteRecogniser:
        """See `InstructedRecogniser.instructed`; raises `Unavailable` if the server writes the prompt itself."""
        if not self.chats:
            raise Unavailable(
                f"the server {self.client.server.url} offers only transcriptions of {self.service.model}, with its own "
                "prompt; open the model on this machine to converse"
            )
        recogniser = copy.copy(self)
        recogniser._instruction = instruction
        return recogniser

    @property
    def options_class(self) -> type[ListeningOptions]:
        """The family's options."""
        return self.wording.options_class

    @property
    def chats(self) -> bool:
        """Whether the server gets the family's own prompt, in a chat."""
        return CHAT in self.service.routes

    def check(self, options: Any) -> None:
        """Raises `BadInput` for an option that this server does not support."""
        self.wording.check(options)
        if not self.chats:
            self.wording.fields(options)
            form_fields(options, 1)

    def recognise_stream(
        self, chunks: Sequence[np.ndarray], options: Any
    ) -> Generator[list[str], None, list[Recognition]]:
        """See `StreamingRecogniser.recognise_stream`; all chunks are sent at once and the server batches them."""
        self.check(options)
        calls = [self._call(row, samples, options) for row, samples in enumerate(chunks)]
        texts, ids, finish = [""] * len(calls), [list[int]() for _ in calls], [""] * len(calls)
        prompts = [0] * len(calls)
        last_texts = list(texts)
        with contextlib.closing(self.client.stream(calls)) as events:
            for item in events:
                if item is not None:
                    row, event = item
                    added = read_event(event, self.client.server)
                    texts[row] += added.text
                    ids[row] += added.ids
                    finish[row] = added.finish or finish[row]
                    prompts[row] = added.prompt_tokens or prompts[row]
                    last_texts[row] = self.wording.text(texts[row])
                yield list(last_texts)
        notes = [] if options.repetition_penalty == 1.0 else [PENALTY_NOTE]
        return [self._recognition(*each, notes) for each in zip(texts, ids, finish, prompts, strict=True)]

    def recognise(self, samples: np.ndarray, options: Any) -> Recognition:
        """Returns what is said in float32 samples [n] at 16 kHz."""
        return run_to_end(self.recognise_stream([samples], options))[0]

    def text_of(self, ids: Sequence[int]) -> str:
        """Returns the transcript of some tokens, as far as the server has sent their text."""
        return self.wording.text("".join(self._pieces.get(number, "") for number in ids))

    def trace(
        self, samples: np.ndarray, options: Any, requested_stages: StageFilter, given: Stages | None = None
    ) -> dict[str, np.ndarray]:
        """Raises `Unavailable`, as a server shows no stages."""
        raise Unavailable(NO_STAGES)

    def close(self) -> None:
        """Closes the connections."""
        self.client.close()

    def _call(self, row: int, samples: np.ndarray, options: Any) -> Call:
        max_tokens = self.wording.max_tokens(len(samples), options)
        model = {"model": self.service.model}
        if not self.chats:
            fields = {
                **model,
                **form_fields(options, max_tokens, row),
                **self.wording.fields(options),
                "stream": "true",
            }
            return Call(TRANSCRIPTIONS, fields, {"file": ("speech.wav", wav(samples), "audio/wav")})
        sound = base64.b64encode(wav(samples)).decode()
        speech = {"type": "input_audio", "input_audio": {"data": sound, "format": "wav"}}
        content = self.wording.content(speech, options)
        if self._instruction.text:
            content = [{**part, "text": self._instruction.text} if part["type"] == "text" else part for part in content]
        system = [{"role": "system", "content": self._instruction.system}] if self._instruction.system else []
        messages = [*system, {"role": "user", "content": content}]
        fields = sampling_fields(options, max_tokens, self.service.stop_ids, row) | streaming_fields()
        return Call(CHAT, {**model, "messages": messages, **fields})

    def _recognition(
        self, text: str, ids: Sequence[int], finish: str, prompt_tokens: int, notes: Sequence[str]
    ) -> Recognition:
        ended = finish == "stop"
        text_ids = ids[:-1] if ended else ids  # the end is a token without text
        pieces = self._read(text_ids)
        notes = [*([] if self.chats else [NO_TOKENS]), *([] if ended else [CUT_OFF]), *notes]
        return Recognition(
            text=self.wording.text(text),
            language=None,
            tags={},
            tokens=tuple(Token(number, piece) for number, piece in zip(text_ids, pieces, strict=True)),
            ids=tuple(ids),
            notes=tuple(notes),
            ended=ended,
            prompt_tokens=prompt_tokens,
        )

    def _read(self, ids: Sequence[int]) -> list[str]:
        """Returns the text of each token; asks the server for new ones."""
        with self._pieces_lock:
            new = [number for number in dict.fromkeys(ids) if number not in self._pieces]
            self._pieces.update(zip(new, pieces(self.client, self.service, new), strict=True))
            return [self._pieces[number] for number in ids]


class RemoteSpeechSession(InstructedSession):
    """A speech session whose model is on a server (see `workbench.session.protocols`)."""

    def __init__(self, model: str, recogniser: RemoteRecogniser):
        super().__init__(model, "vllm", recogniser)
        self._remote = recogniser

    def stream_batch(
        self, audios: Sequence[AudioSource], **options: Any
    ) -> Generator[tuple[int, Event | BadInput], None, None]:
        """See `Transcribes.stream_batch`; options that the server does not support are refused before a recording is
        read.
        """
        self._remote.check(build_options(self.recogniser.options_class, options, self.model))
        yield from super().stream_batch(audios, **options)

    def converse_stream(self, messages: Messages, **options: Any) -> Generator[ConversationEvent, None, None]:
        """See `Converses.converse_stream`; options that the server does not support are refused first."""
        self._remote.check(
            build_options(conversation_options_class(self.recogniser.options_class), options, self.model)
        )
        yield from super().converse_stream(messages, **options)

    def trace(
        self, source: AudioSource, stages: str = "*", given: StageSource = None, out: OutputPath = None, **options: Any
    ) -> Trace:
        """Raises `Unavailable`, as a server shows no stages."""
        raise Unavailable(NO_STAGES)
