"""Models on a remote vLLM server, as sessions with the same interface as local ones.

`client` sends HTTP requests, `service` finds what a server offers; `speech`, `text` and `conversation` are the
sessions. Nothing here imports vllm or torch, so a client machine needs neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.core.errors import BadInput, Unavailable
from workbench.core.progress import report
from workbench.core.settings import SessionSpec
from workbench.families import FAMILIES, load
from workbench.session.protocols import Session
from workbench.session.values import CONVERSATION, PROMPT

if TYPE_CHECKING:
    from workbench.runtimes.vllm.remote.wording import Wording


def open_session(spec: SessionSpec) -> Session:
    """Opens a session for the model on `spec.server`; results call the model `spec.name`.

    Raises `Unavailable` if the server cannot be reached, refuses access or does not offer what the family needs, and
    `BadInput` if it has no model of that name.
    """
    from workbench.runtimes.vllm.remote.client import Client
    from workbench.runtimes.vllm.remote.conversation import RemoteConversationSession
    from workbench.runtimes.vllm.remote.service import find_service
    from workbench.runtimes.vllm.remote.speech import RemoteRecogniser, RemoteSpeechSession
    from workbench.runtimes.vllm.remote.text import RemoteTextSession

    if spec.server is None:
        raise BadInput(f"{spec.name} names no server; expected one in the source of its card")
    report(0.0, f"asking the server {spec.server.url}")
    client = Client(spec.server, spec.name)
    try:
        service = find_service(client, spec.server.model)
        family = FAMILIES[spec.family]
        if family.vllm.wording:
            wording: Wording = load(family.vllm.wording)()
            return RemoteSpeechSession(spec.name, RemoteRecogniser(client, service, wording))
        if family.input == CONVERSATION:
            return RemoteConversationSession(spec.name, client, service)
        if family.input != PROMPT:
            raise Unavailable(f"{family.title} has no prompt for servers; open the model on this machine")
        return RemoteTextSession(spec.name, client, service)
    except BaseException:
        client.close()
        raise
