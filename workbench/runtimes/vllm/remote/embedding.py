"""Embeddings in the chats of a server that runs this project's plugin: builds message parts and finds the
placeholder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from workbench.core.errors import BadInput
from workbench.embeddings.prompt import mismatch
from workbench.runtimes.vllm.embedding_parts.content_part import PART, embedding_part, stated_placeholder
from workbench.runtimes.vllm.remote.client import Client
from workbench.runtimes.vllm.remote.service import CHAT, Service

HOW = (
    "start it on a machine with this project installed, with vllm serve MODEL --hf-overrides "
    '\'{"architectures": ["SpeechWorkbenchEmbeddingLM"]}\''
)


def message_content(text: str, embeddings: Sequence[np.ndarray], placeholder: str) -> list[Mapping[str, Any]]:
    """Returns the parts of a message, with each embedding at one placeholder of its text, in order.

    Raises `BadInput` if the numbers of placeholders and embeddings differ, and for invalid embeddings.
    """
    texts = text.split(placeholder)
    if len(texts) - 1 != len(embeddings):
        raise BadInput(mismatch("the prompt", placeholder, len(texts) - 1, len(embeddings)))
    parts: list[Mapping[str, Any]] = []
    for number, piece in enumerate(texts):
        if number:
            parts.append(embedding_part(embeddings[number - 1]))
        if piece:
            parts.append({"type": "text", "text": piece})
    return parts


def placeholder_there(client: Client, service: Service) -> str | None:
    """Returns the server's placeholder for an embedding in a text.

    Returns None if the server's chats do not accept embeddings; `HOW` says how to start a server that does. The request
    contains an empty part, which a server with the plugin refuses with this project's message.
    """
    if CHAT not in service.routes:
        return None
    messages = [{"role": "user", "content": [{"type": PART}]}]
    answer = client.ask("POST", CHAT, {"model": service.model, "messages": messages, "max_tokens": 1})
    error = answer.content.get("error") if isinstance(answer.content, dict) else None
    return stated_placeholder(str(error.get("message"))) if isinstance(error, dict) else None
