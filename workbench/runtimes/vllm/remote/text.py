"""A plain language model on a server: chats, texts to continue, and chats with embeddings."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Generator, Mapping, Sequence
from itertools import islice
from typing import Any

from workbench.core.errors import BadInput, Unavailable
from workbench.core.options import build_options, conversation_options_class
from workbench.embeddings import Embedding
from workbench.embeddings.prompt import Injected, check_placeholders, read_embeddings, with_own_placeholder
from workbench.families.language.causal_lm import CausalLmOptions, conversation
from workbench.families.language.directory import PLACEHOLDER
from workbench.pipelines.text.text_conversation import text_answer, text_messages
from workbench.runtimes.vllm.remote.answers import read_event
from workbench.runtimes.vllm.remote.client import Call, Client
from workbench.runtimes.vllm.remote.embedding import HOW, message_content, placeholder_there
from workbench.runtimes.vllm.remote.sampling import alternatives_fields, sampling_fields, streaming_fields
from workbench.runtimes.vllm.remote.service import CHAT, COMPLETIONS, Service, pieces
from workbench.runtimes.vllm.remote.session import RemoteSession
from workbench.session.conversation import ConversationEvent, Messages
from workbench.session.protocols import Converses, Generates
from workbench.session.values import Alternative, Generation, Piece, Prompt

NUMBERED = "token_id:"  # the prefix of an id that represents a token
RULED_OUT = -9999.0  # the log-probability that such servers send for minus infinity


class RemoteTextSession(RemoteSession, Generates, Converses):
    """A language model on a server (see `workbench.session.protocols`). Several threads may call it.

    Raises `Unavailable` if the server offers neither chats nor completions.
    """

    def __init__(self, model: str, client: Client, service: Service):
        if not service.routes & {CHAT, COMPLETIONS}:
            raise Unavailable(
                f"the server {client.server.url} offers neither {CHAT} nor {COMPLETIONS} for {service.model}; "
                "expected one of them"
            )
        super().__init__(model, client, service)
        self._pieces: dict[int, str] = {}  # texts of the tokens seen so far

    def generate_stream(
        self, prompt: Prompt, *, embeddings: Sequence[Injected] = (), **options: Any
    ) -> Generator[Piece | Generation, None, None]:
        """See `Generates.generate_stream`. A text without a conversation is completed as written.

        Raises `Unavailable` for embeddings if the server accepts none.
        """
        yield from self._write(prompt, self._options(options), embeddings)

    def converse_stream(self, messages: Messages, **options: Any) -> Generator[ConversationEvent, None, None]:
        """See `Converses.converse_stream`; the messages and the answer are text."""
        checked_options = build_options(conversation_options_class(CausalLmOptions), options, self.model)
        yield from text_answer(
            self._write(text_messages(messages, checked_options, self.model), checked_options), checked_options
        )

    def _write(
        self, prompt: Prompt, checked_options: CausalLmOptions, embeddings: Sequence[Injected] = ()
    ) -> Generator[Piece | Generation, None, None]:
        """Yields the same as `generate_stream`, for options that are checked."""
        client = self.client
        messages = conversation(prompt, checked_options, self._service.has_chat_template, self.model)
        if arrays := read_embeddings(embeddings):
            prompt_fields: dict[str, Any] = {"messages": self._with_embeddings(client, messages, arrays)}
        else:
            prompt_fields = (
                {"prompt": prompt} if messages is None else {"messages": [dict(message) for message in messages]}
            )
        yield from self._generate(client, self._call(prompt_fields, checked_options), checked_options.alternatives)

    def _with_embeddings(
        self, client: Client, messages: Sequence[Mapping[str, str]] | None, embeddings: Sequence[Embedding]
    ) -> list[dict[str, Any]]:
        """Returns the messages of a conversation, with each embedding as a part at its placeholder."""
        if messages is None:
            raise Unavailable(
                f"the server {client.server.url} takes embeddings only in conversations; leave option chat on, or "
                "open the model on this machine"
            )
        placeholder = placeholder_there(client, self._service)
        if placeholder is None:
            raise Unavailable(
                f"the server {client.server.url} takes no embeddings in the chats of {self._service.model}; {HOW}"
            )
        texts = with_own_placeholder(
            [message["content"] for message in messages], PLACEHOLDER, placeholder, len(embeddings)
        )
        check_placeholders(texts, placeholder, len(embeddings))
        rows = iter([each.values for each in embeddings])
        merged = []
        for message, text in zip(messages, texts, strict=True):
            message_rows = list(islice(rows, text.count(placeholder)))
            parts = message_content(text, message_rows, placeholder)
            merged.append({**message, "content": parts if message_rows else text})
        return merged

    def _options(self, options: Mapping[str, Any]) -> CausalLmOptions:
        return build_options(CausalLmOptions, options, self.model)

    def _call(self, prompt_fields: Mapping[str, Any], options: CausalLmOptions) -> Call:
        chats = "messages" in prompt_fields
        route = CHAT if chats else COMPLETIONS
        if route not in self._service.routes:
            raise BadInput(
                f"the server {self.client.server.url} does not offer {route} for {self._service.model}; turn option "
                f"chat {'off' if chats else 'on'}"
            )
        # Templates that know nothing of thinking ignore the variable.
        thinking = {"chat_template_kwargs": {"enable_thinking": options.thinking}} if chats else {}
        fields = sampling_fields(options, options.max_new_tokens, self._service.stop_ids) | streaming_fields()
        fields |= alternatives_fields(options.alternatives, chats)
        return Call(route, {"model": self._service.model, **prompt_fields, **thinking, **fields})

    def _generate(self, client: Client, call: Call, alternatives: int) -> Generator[Piece | Generation, None, None]:
        start_time = time.perf_counter()
        texts, ids, all_alternatives = list[str](), list[int](), list[tuple[Alternative, ...]]()
        finish, prompt_tokens, first = "length", 0, 0.0
        with contextlib.closing(client.stream([call])) as events:
            for item in events:
                if item is None:
                    yield Piece("", ())  # a reader can only stop here
                    continue
                added = read_event(item[1], client.server)
                prompt_tokens = added.prompt_tokens or prompt_tokens
                finish = added.finish or finish
                if added.text or added.ids:
                    first = first or time.perf_counter() - start_time
                    texts.append(added.text)
                    ids += added.ids
                    step_alternatives = self._alternatives(client, added.steps, alternatives)
                    all_alternatives += step_alternatives
                    if alternatives and added.text and not all_alternatives:
                        raise Unavailable(
                            f"the server {client.server.url} does not return the likeliest tokens of each step; set "
                            "alternatives to 0, or open the model on this machine"
                        )
                    yield Piece(
                        added.text,
                        added.ids,
                        step_alternatives[0] if len(step_alternatives) == 1 else (),
                        prompt_tokens,
                    )
        yield Generation(
            model=self.model,
            runtime=self.runtime,
            text="".join(texts),
            tokens=tuple(ids),
            prompt_tokens=prompt_tokens,
            finish=finish,
            load_seconds=self.load_seconds,
            compute_seconds=time.perf_counter() - start_time,
            first_token_seconds=first,
            alternatives=tuple(all_alternatives),
        )

    def _alternatives(
        self, client: Client, steps: Sequence[Sequence[tuple[str, float]]], count: int
    ) -> list[tuple[Alternative, ...]]:
        """Returns the alternatives of an event's tokens.

        vLLM names them by their ids, whose texts it is asked for; other servers send texts only.
        """
        steps = [[each for each in step if RULED_OUT < each[1] < math.inf][:count] for step in steps]
        numbers = {token: int(token.removeprefix(NUMBERED)) for step in steps for token, _ in step if _is_id(token)}
        new = [number for number in numbers.values() if number not in self._pieces]
        self._pieces.update(zip(new, pieces(client, self._service, new), strict=True))
        token_pieces = {token: (number, self._pieces[number]) for token, number in numbers.items()}
        return [
            tuple(Alternative(*token_pieces.get(token, (-1, token)), value) for token, value in step) for step in steps
        ]


def _is_id(token: str) -> bool:
    return token.startswith(NUMBERED) and token.removeprefix(NUMBERED).isdecimal()
