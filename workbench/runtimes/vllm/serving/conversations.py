"""Conversations of vLLM's own server: the project's sessions, each in a thread, over the server's engine.

The codec is loaded with the first conversation, in the server's process. A conversation whose client leaves is aborted
in the engine. This file knows no routes.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.core.errors import WorkbenchError, named_message_of
from workbench.families.family import load
from workbench.families.speechlm.model import CODEC_ON_TORCH, SpeechLmModel, read_speechlm
from workbench.pipelines.conversation.conversation_session import ConversationSession
from workbench.runtimes.vllm.serving.engine import ServedEngine
from workbench.runtimes.vllm.streams.network import EngineNetwork, engine_steps
from workbench.runtimes.vllm.streams.shared_codec import SharedCodec
from workbench.session.conversation import ConversationEvent
from workbench.speech.network import Codec

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM

MAX_AT_ONCE = 256  # conversations, each with its thread; further ones wait


@dataclass(frozen=True)
class Parts:
    """The parts that all conversations share."""

    model: SpeechLmModel
    codec: Codec | None


class Conversations:
    """The conversations of a server with one model. It is made in the server's event loop.

    Args:
        llm: the server's front end of its engine.
        directory: the directory that the engine has loaded.
        name: of the model.
    """

    def __init__(self, llm: AsyncLLM, directory: Path, name: str):
        self._llm, self._directory, self._name = llm, directory, name
        self._loop = asyncio.get_running_loop()
        self._turns = asyncio.Semaphore(MAX_AT_ONCE)
        self._opening = threading.Lock()

    async def events(
        self, messages: Sequence[Mapping[str, Any]], options: Mapping[str, Any]
    ) -> AsyncGenerator[ConversationEvent, None]:
        """Yields the events of a conversation; closing the generator aborts it.

        Raises the errors of `ConversationSession.converse_stream`.
        """
        engine = ServedEngine(self._llm, self._loop, self._name)
        arrivals: asyncio.Queue[ConversationEvent | BaseException | None] = asyncio.Queue()

        def enqueue(item: ConversationEvent | BaseException | None) -> None:
            with contextlib.suppress(RuntimeError):  # the server is stopping, and the reader is gone
                self._loop.call_soon_threadsafe(arrivals.put_nowait, item)

        def converse() -> None:
            try:
                with contextlib.closing(self._session(engine).converse_stream(messages, **options)) as stream:
                    for event in stream:
                        enqueue(event)
            except BaseException as error:
                enqueue(error)
            else:
                enqueue(None)

        async with self._turns:
            threading.Thread(target=converse, name="conversation", daemon=True).start()
            try:
                while (item := await arrivals.get()) is not None:
                    if isinstance(item, WorkbenchError):
                        raise item
                    if isinstance(item, BaseException):
                        raise WorkbenchError(f"the answer failed: {named_message_of(item)}") from item
                    yield item
            finally:
                engine.give_up()

    def _session(self, engine: ServedEngine) -> ConversationSession:
        with self._opening:
            parts = self._parts
        return ConversationSession(
            self._name,
            "vllm",
            parts.model,
            EngineNetwork(parts.model, engine),
            parts.codec,
            parts.model.audio_notes,
            engine_steps,
        )

    @cached_property
    def _parts(self) -> Parts:
        model = read_speechlm(self._directory)
        codec = load(CODEC_ON_TORCH)(model)
        return Parts(model, None if codec is None else SharedCodec(codec))
