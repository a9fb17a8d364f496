"""Makes the chat completions of vLLM's server answer in text and speech where its model is a SpeechLM.

vLLM's handler of this route writes text alone, and vLLM has no interface for another one that needs no setting of the
user (its endpoint plugins must be allowed by name). So this file wraps one method of that handler, only in processes
whose engine has such a model. If a version of vLLM has another method, nothing is changed, and the log says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from vllm.logger import init_logger

from workbench.core.errors import WorkbenchError
from workbench.core.options import option_specs
from workbench.families.speechlm.model import SpeechLmOptions
from workbench.openai_api.chat_answer import DONE, ChatAnswer, error_event, events
from workbench.openai_api.chat_request import read_chat_request
from workbench.openai_api.errors import error_answer
from workbench.openai_api.kept_answers import KeptAnswers
from workbench.runtimes.vllm.models.directory import directory_of
from workbench.session.conversation import Answer, ConversationEvent

if TYPE_CHECKING:
    from workbench.runtimes.vllm.serving.conversations import Conversations

ARCHITECTURE = "SpeechWorkbenchSpeechLM"
METHOD = "create_chat_completion"
PARAMETERS = ("self", "request", "raw_request")  # the method's parameters
WRAPPED = "answers_in_speech"  # the mark of the wrapped method
OPTIONS = tuple(spec.name for spec in option_specs(SpeechLmOptions))
BEFORE_STREAMING = 2  # events that come before a stream's first byte: after them, hardly anything can be refused

logger = init_logger("vllm.speech_workbench")


def teach_conversations() -> None:
    """Makes the chat completions of this process answer in speech. May be called again."""
    from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat

    handler = getattr(OpenAIServingChat, METHOD, None)
    if hasattr(handler, WRAPPED):
        return
    if not callable(handler) or tuple(inspect.signature(handler).parameters)[: len(PARAMETERS)] != PARAMETERS:
        logger.warning_once(
            "The chat completions of this version of vLLM have no %s of the form that is known here: they answer "
            "without speech. Expected vLLM 0.32.",
            METHOD,
        )
        return
    wrapped = _with_speech(handler, OpenAIServingChat)
    setattr(wrapped, WRAPPED, True)
    setattr(OpenAIServingChat, METHOD, wrapped)


def _with_speech(handler: Callable[..., Any], its_class: type) -> Callable[..., Any]:
    routes: WeakKeyDictionary[Any, ChatRoute] = WeakKeyDictionary()

    @functools.wraps(handler)
    async def answer_chat(self: Any, request: Any, raw_request: Any = None) -> Any:
        # Subclasses are handlers of other routes, whose bodies have other forms.
        has_speech = ARCHITECTURE in (getattr(self.model_config.hf_config, "architectures", None) or ())
        if not has_speech or raw_request is None or type(self) is not its_class:
            return await handler(self, request, raw_request)
        if self not in routes:
            routes[self] = _route_of(self)
        return await routes[self].answer(await raw_request.json())

    return answer_chat


def _route_of(handler: Any) -> ChatRoute:
    from workbench.runtimes.vllm.serving.conversations import Conversations

    names = [each.name for each in handler.models.base_model_paths]
    directory = directory_of(handler.model_config)
    return ChatRoute(names, Conversations(handler.engine_client, directory, names[0]))


class ChatRoute:
    """The route of one server.

    Args:
        names: of the model; requests may use each of them.
    """

    def __init__(self, names: list[str], conversations: Conversations):
        self._names, self._conversations = names, conversations
        self._stored_answers = KeptAnswers()

    async def answer(self, body: Any) -> Any:
        """Returns what vLLM's route sends: a whole answer, an iterator of events, or an error."""
        from workbench.runtimes.vllm.serving.replies import ErrorReply, WholeReply

        stream = None
        try:
            request = read_chat_request(body, self._names, OPTIONS, self._stored_answers)
            writing = ChatAnswer(request, self._stored_answers)
            stream = self._conversations.events(request.messages, request.options)
            first = [await anext(stream) for _ in range(BEFORE_STREAMING if request.stream else 0)]
            if request.stream:
                return _sent_events(writing, first, stream)
            async with contextlib.aclosing(stream):
                async for event in stream:
                    if isinstance(event, Answer):
                        return WholeReply.from_body(await asyncio.to_thread(writing.whole, event))
            raise WorkbenchError("the conversation ended without an answer")
        except WorkbenchError as error:
            return ErrorReply.from_body(*error_answer(error))
        except BaseException:
            if stream is not None:
                await stream.aclose()
            raise


async def _sent_events(
    writing: ChatAnswer, first: list[ConversationEvent], later_events: AsyncGenerator[ConversationEvent, None]
) -> AsyncGenerator[str, None]:
    """Yields the server-sent events of an answer."""
    async with contextlib.aclosing(later_events):
        for event in first:
            yield events(writing.chunks(event))
        try:
            async for event in later_events:
                if text := events(writing.chunks(event)):
                    yield text
        except WorkbenchError as error:
            yield error_event(error)
            return
        yield DONE
