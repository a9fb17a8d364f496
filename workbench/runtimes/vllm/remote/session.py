"""What all sessions on a server have in common: their connections, and that they show no stages."""

from __future__ import annotations

from typing import Any

from workbench.core.errors import BadInput, Unavailable
from workbench.runtimes.vllm.remote.client import Client
from workbench.runtimes.vllm.remote.service import Service
from workbench.runtimes.vllm.remote.speech import NO_STAGES
from workbench.session.protocols import Session, Traces
from workbench.trace.trace import OutputPath, StageSource, Trace


class RemoteSession(Session, Traces):
    """A model on a server. Several threads may call it."""

    def __init__(self, model: str, client: Client, service: Service):
        self.model = model
        self.runtime = "vllm"
        self.load_seconds = 0.0  # set by the code that opens the session
        self._client: Client | None = client
        self._service = service

    @property
    def client(self) -> Client:
        """The connections; reading them after `close` raises `BadInput`."""
        if self._client is None:
            raise BadInput(f"the session of {self.model} is closed; open it again")
        return self._client

    def trace(
        self, source: Any, stages: str = "*", given: StageSource = None, out: OutputPath = None, **options: Any
    ) -> Trace:
        """Raises `Unavailable`, as a server shows no stages."""
        raise Unavailable(NO_STAGES)

    def close(self) -> None:
        """Closes the connections."""
        client, self._client = self._client, None
        if client is not None:
            client.close()
